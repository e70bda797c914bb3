package safe

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A wait first spins in C, where most short work ends, unless the work of the
// stream has been long lately or many spin already. Then the poller takes over.
const (
	spin = 50 * time.Microsecond
	long = 100 * time.Microsecond
)

var spinning atomic.Int32

// spins calls ask with the time to spin for.
func spins(slow bool, ask func(spin int64) driver.CUresult) driver.CUresult {
	if slow || spinning.Add(1) > max(1, processors.Load()/4) {
		if !slow {
			spinning.Add(-1)
		}
		return ask(0)
	}
	defer spinning.Add(-1)
	return ask(int64(spin))
}

// waiter marks the end of the stream's work. done tells that there is nothing to
// wait for, because of err or because the work is over; otherwise w waits. s is
// marked, and need not be when w is waited for.
func (s *streamCore) waiter(op string, slow bool) (w *waiter, done bool, err error) {
	x := s.ctx
	x.hold()
	e, err := x.shared.events.get(x)
	if err != nil {
		x.unmark()
		return nil, true, wrap(op, err)
	}
	end := func() {
		x.shared.events.put(e)
		x.unmark()
	}
	from := time.Now()
	code := spins(slow, func(spin int64) driver.CUresult {
		return s.ask(func() driver.CUresult { return rt.Point(s.set, s.raw, e, spin) })
	})
	if code != driver.CUDA_ERROR_NOT_READY {
		end()
		return nil, true, check(op, code)
	}
	return &waiter{set: s.set, event: e, line: s, from: from, to: time.Now(), end: end}, false, nil
}

// Wait waits until the work that is on the stream now is done: work that is
// added meanwhile is not waited for. Errors of that work, and of earlier work,
// arrive here. When ctx ends, Wait returns its cause at once; the work goes on.
// A capturing stream is [ErrCapturing]. No thread is blocked: a goroutine of the
// layer's looks after all waits.
//
// Source: cuStreamQuery, cuEventRecord, cuEventQuery.
func (s *Stream) Wait(ctx context.Context) error {
	const op = "Stream.Wait"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	start := time.Now()
	w, done, err := c.waiter(op, c.slow.Load())
	c.unmark()
	parked := time.Now()
	if !done {
		w.takes = time.Duration(c.took.Load())
		if err = w.wait(ctx, op); err == nil {
			c.took.Store(int64(time.Since(parked)))
		}
	}
	if slow := time.Since(start) > long; slow != c.slow.Load() {
		c.slow.Store(slow)
	}
	return err
}

// Synchronize is [Stream.Wait] without end.
func (s *Stream) Synchronize() error { return s.Wait(context.Background()) }

// Shutdown waits for the work that is on the stream and closes it, and joins the
// errors of both. If ctx ends first the stream is closed all the same, the error
// holds ctx's cause, and the work goes on.
func (s *Stream) Shutdown(ctx context.Context) error {
	if s == nil || s.core == nil || s.core.closed() {
		return nil
	}
	err := s.Wait(ctx)
	return errors.Join(wrap("Stream.Shutdown", err), s.Close())
}

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
	code := c.ask(func() driver.CUresult {
		if c.capturing() {
			return rt.CodeCapturing
		}
		err = c.ctx.in(func() error { return driver.CuStreamSynchronize(c.raw) })
		return 0
	})
	if err == nil {
		err = check(op, code)
	}
	return wrap(op, err)
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
	v.waiting.Add(1)
	code := spins(false, v.query)
	if code != driver.CUDA_ERROR_NOT_READY {
		v.waiting.Add(-1)
		v.unmark()
		return check(op, code)
	}
	w := &waiter{set: v.set, event: v.raw, line: v, end: func() {
		v.waiting.Add(-1)
		v.unmark()
	}}
	return w.wait(ctx, op)
}

// Synchronize is [Event.Wait] without end.
func (e *Event) Synchronize() error { return e.Wait(context.Background()) }
