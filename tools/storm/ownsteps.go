//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

func init() {
	add("own", []kind{
		{name: "own.work", weight: 20, run: func(t *task) error { return t.own.do(false, t.own.acts(4)...) }},
		{name: "own.forked", weight: 8, run: func(t *task) error { return t.own.do(true, t.own.acts(4)...) }},
		{name: "own.stuck", weight: 3, run: func(t *task) error { return t.own.stuck() }},
		{name: "own.check", weight: 10, run: func(t *task) error { return t.own.checked(waitPlain) }},
		{name: "own.replace", weight: 5, run: func(t *task) error { return t.own.replace() }},
		{name: "own.arena", weight: 5, run: func(t *task) error { return t.own.arena() }},
		{name: "own.newstream", weight: 2, run: func(t *task) error { return t.own.newStream() }},
	})
	rows := []kind{}
	for name, wait := range waits {
		rows = append(rows, kind{name: "own." + name, weight: 3, run: func(t *task) error { return t.own.checked(wait) }})
	}
	add("ownwait", rows)
}

// checked is check; during a capture it checks that waiting is refused.
func (o *own) checked(wait func(*own) error) error {
	if o.capture != nil {
		return o.refused()
	}
	return o.check(wait)
}

// waits are the ways to wait for the work of a stream.
var waits = map[string]func(o *own) error{
	"wait":     func(o *own) error { return o.streams[0].Wait(context.Background()) },
	"blocking": func(o *own) error { return o.streams[0].SynchronizeBlocking() },
	"done": func(o *own) error {
		<-o.streams[0].Completion().Done()
		return nil
	},
	"query": func(o *own) error {
		for {
			if done, err := o.streams[0].Query(); done || err != nil {
				return err
			}
			runtime.Gosched()
		}
	},
	"completion": func(o *own) error {
		f := o.streams[0].Completion()
		_, err := f.Wait(context.Background())
		return errors.Join(err, f.Err())
	},
	"event": func(o *own) error {
		if err := o.streams[0].Record(o.events[0]); err != nil {
			return err
		}
		return o.events[0].Wait(context.Background())
	},
	"hostfunc": func(o *own) error {
		f, err := o.streams[0].LaunchHostFunc(o.counted())
		if err != nil {
			return err
		}
		o.wantCalls.Add(1)
		_, err = f.Wait(context.Background())
		return err
	},
	"callback": func(o *own) error {
		told := make(chan error, 2)
		if err := o.streams[0].AddCallback(func(err error) { told <- err }); err != nil {
			return err
		}
		return <-told
	},
	"enqueue": func(o *own) error {
		f := safe.Enqueue(o.streams[0], func(*safe.Stream) (int, error) { return 5, nil })
		if n, err := f.Wait(context.Background()); err != nil || n != 5 {
			return errors.Join(err, failf(mismatch, "Enqueue's value is %d", n))
		}
		return nil
	},
	"scope":     (*own).scope,
	"cancelled": (*own).cancelled,
	"crowd":     (*own).crowd,
}

// scope copies to and from Go memory.
func (o *own) scope() error {
	in, out := make([]float32, length), make([]float32, length)
	for i := range in {
		in[i] = float32(o.n(1000))
	}
	v := o.buffers[o.n(len(o.buffers))]
	err := o.streams[0].Scope(func(c *safe.Scope) error {
		if err := safe.CopyFromSlice(c, v.buffer, in); err != nil {
			return err
		}
		return safe.CopyToSlice(c, out, v.buffer)
	})
	if err != nil {
		return err
	}
	copy(v.want, in)
	return o.compare("a slice", out, in)
}

// cancelled waits with contexts that end early, and then to the end.
func (o *own) cancelled() error {
	for range 1 + o.n(20) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.n(300))*time.Microsecond)
		if o.yes(20) {
			cancel()
		}
		err := o.streams[0].Wait(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return o.streams[0].Wait(context.Background())
}

// crowd waits on many goroutines at once.
func (o *own) crowd() error {
	n := 2 + o.n(60)
	errs := make(chan error, n)
	for i := range n {
		go func() {
			if i%2 == 0 {
				errs <- o.streams[0].Synchronize()
				return
			}
			_, err := o.streams[0].Completion().Wait(context.Background())
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// stuck makes the stream wait for the clock, or run a long kernel.
func (o *own) stuck() error {
	if o.capture != nil {
		return nil
	}
	if o.yes(50) {
		return o.strict(o.clock.wait(o.streams[0], 1+o.n(o.profile.ticks)))
	}
	return o.strict(o.dev.spin.Launch(o.streams[0], one, safe.Val(uint64(o.n(500_000)))))
}

// replace replaces a buffer with memory of another kind, and closes or drops the buffer, though
// it may be in use. Graphs retain it.
func (o *own) replace() error {
	if o.capture != nil {
		return nil
	}
	v := o.buffers[o.n(len(o.buffers))]
	b, err := o.memory()
	if errors.Is(err, safe.ErrNotSupported) || b == nil && err == nil {
		return nil
	}
	if err != nil {
		return o.strict(err)
	}
	if err := b.CopyFromAsync(o.streams[0], v.buffer); err != nil {
		return o.strict(err)
	}
	fresh := &values{buffer: b, want: append([]float32(nil), v.want...)}
	for i := range o.buffers {
		if o.buffers[i] == v {
			o.buffers[i] = fresh
		}
	}
	if o.yes(o.profile.drops) {
		return nil
	}
	return o.strict(v.buffer.Close())
}

// memory returns a new buffer of a random kind.
func (o *own) memory() (*safe.Buffer[float32], error) {
	switch o.n(7) {
	case 5:
		return safe.NewZeroed[float32](o.dev.x, length)
	case 6:
		return safe.Upload(o.streams[0].Context(), make([]float32, length))
	case 0:
		return safe.NewBufferAsync[float32](o.streams[0], length)
	case 1:
		if o.pool == nil {
			return nil, nil
		}
		return safe.NewBufferFrom[float32](o.pool, o.streams[0], length)
	case 2:
		return safe.NewManagedBuffer[float32](o.dev.x, length)
	case 3:
		return o.mapped()
	}
	return safe.NewBuffer[float32](o.dev.x, length)
}

// arena passes own values through buffers of an arena, which it resets before their work has
// completed.
func (o *own) arena() error {
	if o.capture != nil {
		return nil
	}
	s, v := o.streams[0], o.buffers[o.n(len(o.buffers))]
	a, err := safe.NewArena(s, 1+o.n(16*length))
	if err != nil {
		return o.strict(err)
	}
	for range 1 + o.n(3) {
		from := v.buffer
		for range 1 + o.n(6) {
			b, err := safe.NewBufferIn[float32](a, length)
			if err == nil {
				err = b.CopyFromAsync(s, from)
			}
			if err != nil {
				return o.strict(err)
			}
			from = b
		}
		if err := errors.Join(v.buffer.FillAsync(s, 0), v.buffer.CopyFromAsync(s, from), a.Reset()); err != nil {
			return o.strict(err)
		}
		if err := from.FillAsync(s, 0); !errors.Is(err, safe.ErrClosed) {
			return failf(wrong, "a buffer of an arena after its reset: %v", err)
		}
	}
	if o.yes(o.profile.drops) {
		return nil
	}
	return o.strict(a.Close())
}

// mapped returns a buffer of virtual memory, which only that buffer retains.
func (o *own) mapped() (*safe.Buffer[float32], error) {
	granule, _, err := o.dev.x.Granularity(safe.PhysicalMemoryOptions{})
	if err != nil {
		return nil, err
	}
	r, err := safe.ReserveAddress(o.dev.x, granule, safe.ReserveOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := safe.NewPhysicalMemory(o.dev.x, granule, safe.PhysicalMemoryOptions{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := r.Map(0, p); err != nil {
		return nil, err
	}
	if err := r.SetAccess(0, granule, driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE); err != nil {
		return nil, err
	}
	return safe.NewMappedBuffer[float32](r, 0, length)
}

// newStream replaces a stream by one that waits for its work.
func (o *own) newStream() error {
	if o.capture != nil {
		return nil
	}
	green := o.dev.green != nil && o.yes(30)
	s, err := o.stream(green, safe.StreamOptions{NonBlocking: o.yes(50), Priority: -o.n(9), ClampPriority: true})
	if err != nil {
		return o.strict(err)
	}
	if err := o.orders(o.streams[0], s, o.events[0]); err != nil {
		return o.strict(err)
	}
	old := o.streams[0]
	o.streams[0], o.green[0] = s, green
	if o.yes(o.profile.drops) {
		return nil
	}
	if o.yes(30) {
		return o.strict(old.Shutdown(context.Background()))
	}
	return o.strict(old.Close())
}
