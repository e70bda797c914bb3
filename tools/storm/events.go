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

// isolated are what a wait or a record across the borders of captures may be; ErrInvalidArgument is that
// of an event that was recorded in a capture which is over.
var isolated = []error{
	safe.ErrContextMismatch, safe.ErrInvalidArgument, driver.CUDA_ERROR_STREAM_CAPTURE_ISOLATION, driver.CUDA_ERROR_STREAM_CAPTURE_MERGE,
	driver.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
}

func init() {
	add("event", []kind{
		{name: "event.new", weight: 5, run: func(t *task) error {
			e, err := safe.NewEventWith(t.device().x, safe.EventOptions{DisableTiming: t.yes(50), BlockingSync: t.yes(20)})
			return put(t, &t.events, e, err)
		}},
		{name: "event.raw", weight: 2, run: foreignEvent},
		{name: "event.record", weight: 10, run: func(t *task) error { return t.stream().Record(t.events.get(t.rng)) }, allow: isolated},
		{name: "event.external", weight: 2, run: func(t *task) error {
			return t.stream().RecordExternal(t.events.get(t.rng))
		}, allow: append([]error{driver.CUDA_ERROR_ILLEGAL_STATE, driver.CUDA_ERROR_INVALID_VALUE}, isolated...)},
		{name: "event.waitexternal", weight: 2, run: func(t *task) error {
			return t.stream().WaitEventExternal(t.events.get(t.rng))
		}, allow: append([]error{driver.CUDA_ERROR_ILLEGAL_STATE}, isolated...)},
		{name: "event.streamwait", weight: 10, run: func(t *task) error { return t.stream().WaitEvent(t.events.get(t.rng)) }, allow: isolated},
		{name: "event.waitstream", weight: 6, run: func(t *task) error { return t.stream().WaitStream(t.stream()) }, allow: isolated},
		{name: "event.fork", weight: 6, run: forkShared, allow: ended},
		{name: "event.time", weight: 3, run: func(t *task) error {
			ctx, cancel := t.soon()
			defer cancel()
			s := t.stream()
			_, err := s.Time(ctx, func() error { return t.some(s) })
			return err
		}, allow: append([]error{driver.CUDA_ERROR_NOT_READY}, ended...)},
		{name: "event.query", weight: 6, run: func(t *task) error { _, err := t.events.get(t.rng).Query(); return err }},
		{name: "event.wait", weight: 6, run: func(t *task) error {
			ctx, cancel := t.soon()
			defer cancel()
			return t.events.get(t.rng).Wait(ctx)
		}},
		{name: "event.since", weight: 2, run: func(t *task) error {
			_, err := t.events.get(t.rng).Since(t.events.get(t.rng))
			return err
		}, allow: []error{driver.CUDA_ERROR_NOT_READY, driver.CUDA_ERROR_INVALID_HANDLE, driver.CUDA_ERROR_INVALID_VALUE, safe.ErrContextMismatch}},
		{name: "event.close", weight: 2, run: func(t *task) error { return t.events.get(t.rng).Close() }},
	})
	add("capture", []kind{
		{name: "capture.scoped", weight: 8, run: captureShared, allow: ended},
		{name: "capture.begin", weight: 4, run: beginShared, allow: ended},
		{name: "capture.end", weight: 5, run: endShared, allow: ended},
		{name: "capture.to", weight: 3, run: captureToShared, allow: append([]error{safe.ErrGraphLost, safe.ErrConditional}, ended...)},
		{name: "capture.drop", weight: 3, run: dropShared, allow: ended},
		{name: "capture.update", weight: 2, run: updateDependencies, allow: append([]error{safe.ErrForeignNode, driver.CUDA_ERROR_ILLEGAL_STATE}, ended...)},
		{name: "capture.node", weight: 4, run: func(t *task) error {
			_, err := t.stream().AddNode(t.work())
			return err
		}, allow: append([]error{driver.CUDA_ERROR_ILLEGAL_STATE, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED}, ended...)},
		{name: "capture.condition", weight: 2, run: conditionShared, allow: append([]error{driver.CUDA_ERROR_ILLEGAL_STATE, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}, graphy...)},
		{name: "capture.mode", weight: 2, run: captureMode},
		{name: "capture.synchronize", weight: 3, run: func(t *task) error { return t.device().x.Synchronize() }},
	})
}

// foreignEvent takes over an event of raw calls, or borrows one whose Event is closed at once.
func foreignEvent(t *task) error {
	x := t.device().x
	if t.yes(50) {
		var raw driver.CUevent
		if err := x.WithCurrent(func() error { return driver.CuEventCreate(&raw, 0) }); err != nil {
			return fromRaw("cuEventCreate", err)
		}
		e, err := safe.EventFromRaw(raw, x)
		return put(t, &t.events, e, err)
	}
	e, err := safe.NewEvent(x)
	if err != nil {
		return err
	}
	borrowed, err := safe.BorrowEvent(e.Raw(), x, nil)
	if err := errors.Join(err, e.Close()); err != nil {
		return err
	}
	return put(t, &t.events, borrowed, nil)
}

// soon returns a context that ends shortly.
func (t *task) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(t.n(3000))*time.Microsecond)
}

// ended are the errors of a capture of a shared stream: other goroutines may have joined
// streams to it and not joined them back.
var ended = append([]error{
	driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, driver.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, safe.ErrWrongThread, safe.ErrOverlap,
	safe.ErrRange, safe.ErrInvalidArgument,
}, isolated...)

// forkShared forks a shared stream, and uses the branches after the end, too.
func forkShared(t *task) error {
	s := t.stream()
	var kept []*safe.Stream
	err := s.Fork(t.n(4), func(branches []*safe.Stream) error {
		kept = branches
		for _, branch := range branches {
			if err := t.some(branch); err != nil {
				return err
			}
		}
		return nil
	})
	for _, branch := range kept {
		if err := t.device().nothing.Launch(branch, one); !errors.Is(err, safe.ErrClosed) {
			return failf(wrong, "a launch on a branch after the fork returned %v", err)
		}
	}
	return err
}

// some enqueues work on a stream, which may be capturing.
func (t *task) some(s *safe.Stream) error {
	for range t.n(4) {
		var err error
		switch t.n(6) {
		case 0:
			err = t.deviceOf(s).nothing.Launch(s, one)
		case 1:
			err = t.buffers.get(t.rng).FillAsync(s, 1)
		case 2:
			err = t.fork(s)
		case 3:
			_, err = s.LaunchHostFunc(func() {})
		case 4:
			runtime.Gosched()
		default:
			_, err = s.Query()
		}
		if !explained(err, ended) {
			return err
		}
	}
	return nil
}

// fork has another of the shared streams work for s.
func (t *task) fork(s *safe.Stream) error {
	other, e, f := t.stream(), t.events.get(t.rng), t.events.get(t.rng)
	if err := s.Record(e); err != nil {
		return err
	}
	if err := other.WaitEvent(e); err != nil {
		return err
	}
	if err := t.deviceOf(other).nothing.Launch(other, one); err != nil {
		return err
	}
	if err := other.Record(f); err != nil {
		return err
	}
	return s.WaitEvent(f)
}

// keepGraph instantiates a graph and shares both with other goroutines.
func (t *task) keepGraph(g *safe.Graph, err error) error {
	if err != nil || g == nil {
		return err
	}
	e, err := g.Instantiate()
	if err := put(t, &t.execs, e, err); !explained(err, graphy) {
		return err
	}
	return put(t, &t.graphs, g, nil)
}

// working returns a function to run in a capture and one that judges the capture's error: a
// capture that did not begin does not count.
func (t *task) working(s *safe.Stream) (work func() error, ended func(error) error) {
	began := false
	work = func() error {
		began = true
		return t.some(s)
	}
	return work, func(err error) error {
		if !began {
			return err
		}
		return t.counts.captured(err)
	}
}

func captureShared(t *task) error {
	s := t.stream()
	work, ended := t.working(s)
	if t.yes(30) {
		e, err := s.CaptureExecutable(work)
		if err := ended(err); err != nil {
			return err
		}
		return put(t, &t.execs, e, nil)
	}
	g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: modes[t.n(3)]}, work)
	return t.keepGraph(g, ended(err))
}

// beginShared begins a capture that another goroutine may end.
func beginShared(t *task) error {
	c, err := t.stream().BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	if err != nil {
		return err
	}
	if old := t.captures.swap(t.rng, c); old != nil {
		return t.finish(old)
	}
	return nil
}

// finish ends a capture, or drops it.
func (t *task) finish(c *safe.Capture) error {
	if t.yes(t.profile.drops) {
		return nil // the garbage collector ends it
	}
	g, err := c.End()
	return t.keepGraph(g, t.counts.captured(err))
}

func endShared(t *task) error {
	if old := t.captures.swap(t.rng, nil); old != nil {
		return t.finish(old)
	}
	return nil
}

func captureToShared(t *task) error {
	s, g := t.stream(), t.graphs.get(t.rng)
	work, ended := t.working(s)
	return ended(s.CaptureTo(g, safe.CaptureToOptions{Mode: modes[t.n(3)]}, work))
}

func dropShared(t *task) error {
	s, how := t.stream(), t.n(2)
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		_, err = s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: modes[t.n(3)]}, func() error {
			if err := t.some(s); err != nil {
				return err
			}
			if how == 0 {
				panic(errDropped)
			}
			runtime.Goexit()
			return nil
		})
	}()
	<-done
	return err
}

func updateDependencies(t *task) error {
	s := t.stream()
	info, err := s.CaptureInfo()
	if err != nil || len(info.Dependencies) == 0 {
		return err
	}
	return s.UpdateCaptureDependencies(info.Dependencies[:1], nil, driver.CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
}

// conditionShared adds a conditional node to a capture that may be another goroutine's, and
// fills its body.
func conditionShared(t *task) error {
	s := t.stream()
	c, err := s.NewCondition(safe.ConditionOptions{Assign: true})
	if err != nil {
		return err
	}
	body, err := s.AddIf(c)
	if err != nil {
		return err
	}
	if t.yes(50) {
		_, err = body.Add(safe.FillNode(t.buffers.get(t.rng), 0))
		return err
	}
	other := t.stream()
	return other.CaptureTo(body, safe.CaptureToOptions{Mode: modes[t.n(3)]}, func() error {
		return t.buffers.get(t.rng).FillAsync(other, 0)
	})
}

func captureMode(t *task) error {
	s, b := t.stream(), t.buffers.get(t.rng)
	return safe.WithCaptureMode(modes[t.n(3)], func() error {
		_, err := s.Query()
		if err == nil && b != nil {
			err = b.Fill(0)
		}
		return err
	})
}
