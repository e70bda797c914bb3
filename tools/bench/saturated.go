package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// saturated is a stream that never runs out of kernels, and a goroutine that waits
// for a point on it. A thread of C waits in cuEventSynchronize for an event at
// the same place; what counts is by how much the goroutine is later.
var saturated = group{
	name:    "saturated",
	columns: []string{"p50 µs", "p90 µs", "p99 µs"},
	plot:    []string{"p50 µs", "p90 µs", "p99 µs"},
	run:     points,
}

const (
	ahead    = 4 // kernels that the stream has
	eachTook = uint64(100 * time.Microsecond)
)

func points(g *gpu, e effort) ([]*line, error) {
	f := &feeder{g: g}
	for range ahead {
		end, err := safe.NewEventWith(g.ctx, safe.EventOptions{DisableTiming: true})
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.ends = append(f.ends, end)
	}
	stopped := make(chan error)
	go func() { stopped <- g.ctx.WithCurrent(f.feed) }()
	lines, err := latenesses(g, e, &f.mu)
	f.stop.Store(true)
	return lines, errors.Join(err, <-stopped, g.idle(), f.close())
}

// feeder keeps kernels ahead on the stream. It waits by the driver, so as to have
// no part in the measured waits.
type feeder struct {
	g    *gpu
	ends []*safe.Event // of the last kernels
	mu   sync.Mutex    // held for calls that nothing may come between on the stream
	stop atomic.Bool
}

func (f *feeder) feed() error {
	for i := 0; !f.stop.Load(); i++ {
		end := f.ends[i%ahead]
		if err := driver.CuEventSynchronize(end.Raw()); err != nil {
			return err
		}
		f.mu.Lock()
		err := errors.Join(f.g.spin.Launch(f.g.stream, one, safe.Val(eachTook)), f.g.stream.Record(end))
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *feeder) close() error {
	var errs []error
	for _, e := range f.ends {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// latenesses has a line for each way of waiting for a point.
func latenesses(g *gpu, e effort, mu *sync.Mutex) ([]*line, error) {
	var lines []*line
	for _, way := range []struct {
		name  string
		begin func() (wait func() error) // with mu held
	}{
		{"Stream.Completion", func() func() error {
			f := g.stream.Completion()
			return func() error { return g.completed(f) }
		}},
		{"Event.Synchronize", func() func() error { return g.event.Synchronize }},
		{"raw CuEventSynchronize", func() func() error {
			return func() error { return driver.CuEventSynchronize(g.event.Raw()) }
		}},
	} {
		late := make([]int64, e.of(200, 5))
		for i := range late {
			var err error
			if late[i], err = lateness(g, mu, way.begin); err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
		}
		l := newLine("", way.name)
		for _, p := range []int{50, 90, 99} {
			l.Values[fmt.Sprintf("p%d µs", p)] = micros(percentile(late, float64(p)))
		}
		if way.name != "raw CuEventSynchronize" {
			l.atMost("p50 µs", 40)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// lateness is how much later than a thread of C a goroutine knows that a point is
// done, in nanoseconds.
func lateness(g *gpu, mu *sync.Mutex, begin func() func() error) (int64, error) {
	mu.Lock()
	if err := g.stream.Record(g.event); err != nil {
		mu.Unlock()
		return 0, err
	}
	wait := begin()
	mu.Unlock()
	c, ok := cloop.Start(g.fn("cuEventSynchronize"), uintptr(g.event.Raw()), g.fn("cuCtxSetCurrent"), uintptr(g.ctx.Raw()))
	if !ok {
		return 0, errors.Join(errors.New("the system has no thread"), wait())
	}
	err := wait()
	now := cloop.Now()
	at, code := c.Done()
	if code != 0 {
		err = errors.Join(err, driver.CUresult(code))
	}
	return now - at, err
}
