//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// An own has the objects that only one goroutine uses. No other goroutine may disturb them, so
// every call has to succeed, and the values are always known.
type own struct {
	*task
	dev      *device
	streams  [2]*safe.Stream // the second works for the first only, between two events
	green    [2]bool         // which of them belong to the green context
	events   [2]*safe.Event
	buffers  [3]*values
	pattern  *values // pinned memory, that nothing writes to
	back     *values // pinned memory, that copies go to
	pool     *safe.Pool
	graphs   []*ownGraph
	retained []retention

	capture *ownCapture // under way, nil for none

	calls, wantCalls *atomic.Int64 // of host functions, which must not know o: it has graphs that have them
}

// values are memory and the content it will have once the work enqueued so far has completed.
type values struct {
	buffer *safe.Buffer[float32]
	host   *safe.Pinned[float32]
	want   []float32
}

// length is the number of values of an own buffer.
const length = 96

func newOwn(t *task) (*own, error) {
	o := &own{task: t, dev: t.devices[t.index%len(t.devices)], calls: new(atomic.Int64), wantCalls: new(atomic.Int64)}
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	var err error
	for i := range o.streams {
		o.green[i] = (t.index+i)%3 == 1 && o.dev.green != nil
		o.streams[i], err = o.stream(o.green[i], safe.StreamOptions{NonBlocking: (t.index+i)%3 != 0})
		note(err)
		o.events[i], err = safe.NewEventWith(o.dev.x, safe.EventOptions{DisableTiming: i == 0})
		note(err)
	}
	for i := range o.buffers {
		b, err := safe.NewBuffer[float32](o.dev.x, length)
		note(err)
		note(b.Fill(0))
		o.buffers[i] = &values{buffer: b, want: make([]float32, length)}
	}
	for _, v := range []**values{&o.pattern, &o.back} {
		h, err := safe.NewPinned[float32](o.dev.x, length)
		note(err)
		*v = &values{host: h, want: make([]float32, length)}
		if err == nil {
			clear(h.Data())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	for i := range o.pattern.want {
		o.pattern.want[i] = float32(i + t.index)
	}
	copy(o.pattern.host.Data(), o.pattern.want)
	o.pool, err = safe.NewPool(o.dev.x)
	if errors.Is(err, safe.ErrNotSupported) {
		err = nil
	}
	return o, err
}

// stream creates a stream, perhaps of the green context.
func (o *own) stream(green bool, options safe.StreamOptions) (*safe.Stream, error) {
	if green {
		options.NonBlocking = true
		return o.dev.green.NewStreamWith(options)
	}
	return safe.NewStreamWith(o.dev.x, options)
}

// close checks the values a last time and closes the objects.
func (o *own) close() error {
	errs := []error{o.endCapture(), o.check(waitPlain)}
	for _, g := range o.graphs {
		errs = append(errs, g.close())
	}
	for _, r := range o.retained {
		r.release()
	}
	for _, v := range o.buffers {
		errs = append(errs, v.buffer.Close())
	}
	errs = append(errs, o.pattern.host.Close(), o.back.host.Close())
	for i := range o.streams {
		errs = append(errs, o.streams[i].Close(), o.events[i].Close())
	}
	if o.pool != nil {
		errs = append(errs, o.pool.Close())
	}
	return o.strict(errors.Join(errs...))
}

// strict turns every error into a fault, except out of memory and a driver that is too old.
func (o *own) strict(err error) error {
	var f *fault
	switch {
	case err == nil, errors.As(err, &f), errors.Is(err, safe.ErrNotSupported), errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY):
		return err
	}
	return fmt.Errorf("on own objects: %w", &unexplained{err})
}

// unexplained is an error that is a fault, though it may be one that others may return.
type unexplained struct{ err error }

func (u *unexplained) Error() string { return u.err.Error() }

// As hides errors except those that print the text or tell that CUDA is lost.
func (u *unexplained) As(to any) bool {
	switch to := to.(type) {
	case **safe.Error:
		return errors.As(u.err, to)
	case *driver.CUresult:
		return safe.IsFatal(u.err) && errors.As(u.err, to)
	}
	return false
}

// do enqueues acts, alternating between both streams if forked is set. In a capture they become
// nodes of the graph.
func (o *own) do(forked bool, acts ...act) error {
	for i, a := range acts {
		s := o.streams[0]
		if forked && i%2 == 1 {
			s = o.streams[1]
		}
		if err := o.one(s, a); err != nil {
			return err
		}
		if o.capture != nil {
			o.capture.acts = append(o.capture.acts, a)
		} else {
			a.apply(o)
		}
	}
	return nil
}

// one enqueues an act on s, ordered after all earlier work and before all later work.
func (o *own) one(s *safe.Stream, a act) error {
	first, second := o.streams[0], o.streams[1]
	if s == first {
		return o.strict(o.enqueue(s, a))
	}
	if o.yes(40) {
		return o.strict(first.Fork(1+o.n(3), func(branches []*safe.Stream) error {
			return o.enqueue(branches[o.n(len(branches))], a)
		}))
	}
	err := o.orders(first, second, o.events[0])
	if err == nil {
		err = o.enqueue(second, a)
	}
	if err == nil {
		err = o.orders(second, first, o.events[1])
	}
	return o.strict(err)
}

// enqueue enqueues an act on s. In a capture, it may add a node instead.
func (o *own) enqueue(s *safe.Stream, a act) error {
	if o.capture == nil || a.raw > 0 || a.library != "" || o.yes(60) {
		return a.enqueue(o, s)
	}
	w, err := a.work(o)
	if err != nil {
		return err
	}
	_, err = s.AddNode(w)
	return err
}

// orders makes a stream wait for another, by an event or without.
func (o *own) orders(from, to *safe.Stream, by *safe.Event) error {
	if o.yes(50) {
		return to.WaitStream(from)
	}
	if err := from.Record(by); err != nil {
		return err
	}
	return to.WaitEvent(by)
}

// check waits in a random way and compares the values.
func (o *own) check(wait func(*own) error) error {
	if err := o.strict(wait(o)); err != nil {
		return err
	}
	if o.gone.Load() {
		return nil
	}
	if err := o.compare("pinned memory", o.back.host.Data(), o.back.want); err != nil {
		return err
	}
	if n, want := o.calls.Load(), o.wantCalls.Load(); n != want {
		return failf(mismatch, "host functions ran %d times instead of %d", n, want)
	}
	got, err := make([]float32, length), error(nil)
	for i, v := range o.buffers {
		if o.yes(30) {
			if got, err = v.buffer.Download(); err != nil {
				return o.strict(err)
			}
		} else if err := o.strict(v.buffer.CopyToHost(got)); err != nil {
			return err
		}
		if err := o.compare(fmt.Sprint("buffer ", i), got, v.want); err != nil {
			return err
		}
	}
	return nil
}

func (o *own) compare(what string, got, want []float32) error {
	for i := range want {
		if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) { // NaN is like NaN
			return failf(mismatch, "%s[%d] is %v instead of %v", what, i, got[i], want[i])
		}
	}
	return nil
}

func waitPlain(o *own) error { return o.streams[0].Synchronize() }
