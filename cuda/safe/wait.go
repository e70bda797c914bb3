package safe

import (
	"context"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A wait first spins in C, where most short work ends, and then asks again
// after a share of the time that it has taken so far.
const (
	spin     = 50 * time.Microsecond
	minPause = 20 * time.Microsecond
	maxPause = time.Millisecond
)

// await calls done until it says something else than "not ready".
func await(ctx context.Context, op string, done func() driver.CUresult) error {
	var timer *time.Timer
	for start := time.Now(); ; {
		code := done()
		if code != driver.CUDA_ERROR_NOT_READY {
			return check(op, code)
		}
		pause := max(min(time.Since(start)/16, maxPause), minPause)
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return &Error{Op: op, Err: context.Cause(ctx)}
		case <-timer.C:
		}
	}
}

// Wait waits until the work that is on the stream now is done: work that is
// added meanwhile is not waited for. Errors of that work, and of earlier work,
// arrive here. When ctx ends, Wait returns its cause at once; the work goes on.
// A capturing stream is [ErrCapturing]. No thread is blocked.
//
// Source: cuStreamQuery, cuEventRecord, cuEventQuery.
func (s *Stream) Wait(ctx context.Context) error {
	const op = "Stream.Wait"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	x := c.ctx
	x.hold()
	defer x.unmark()
	e, err := x.shared.events.get(x)
	if err != nil {
		c.unmark()
		return wrap(op, err)
	}
	defer x.shared.events.put(e)
	set := c.set
	code := rt.Point(set, c.raw, e, int64(spin))
	c.unmark()
	if code != driver.CUDA_ERROR_NOT_READY {
		return check(op, code)
	}
	return await(ctx, op, func() driver.CUresult { return rt.EventQuery(set, e, 0) })
}

// Synchronize is [Stream.Wait] without end.
func (s *Stream) Synchronize() error { return s.Wait(context.Background()) }

// SynchronizeBlocking has the driver wait. It blocks a thread, and answers fast
// also where computing goroutines keep every processor that Go may use busy,
// when a parked goroutine is woken late. Unlike [Stream.Wait] it waits for
// everything on the stream, also what is added meanwhile.
//
// Source: cuStreamSynchronize.
func (s *Stream) SynchronizeBlocking() error {
	const op = "Stream.SynchronizeBlocking"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.unmark()
	if c.capturing() {
		return &Error{Op: op, Err: ErrCapturing}
	}
	return wrap(op, c.ctx.in(func() error { return driver.CuStreamSynchronize(c.raw) }))
}

// Wait waits until the work that e stands for is done. When ctx ends, Wait
// returns its cause at once. If e is recorded again meanwhile, Wait waits for
// the newer record. No thread is blocked. Source: cuEventQuery.
func (e *Event) Wait(ctx context.Context) error {
	const op = "Event.Wait"
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer v.unmark()
	first := int64(spin)
	return await(ctx, op, func() driver.CUresult {
		code := v.query(first)
		first = 0
		return code
	})
}

// Synchronize is [Event.Wait] without end.
func (e *Event) Synchronize() error { return e.Wait(context.Background()) }
