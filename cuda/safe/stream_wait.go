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
func spins(ask func(spin int64) driver.CUresult) driver.CUresult {
	defer spinning.Add(-1)
	if spinning.Add(1) > max(1, processors.Load()/4) {
		return ask(0)
	}
	return ask(int64(spin))
}

// waiter marks the end of the stream's work. done tells that there is nothing to
// wait for, because of err or because the work is over; otherwise w waits. s is
// marked, and need not be when w is waited for. When ctx ends before the mark could be
// set, as launches wait for room in the queue, the error is its cause.
func (s *streamCore) waiter(ctx context.Context, op string, slow bool) (w *waiter, done bool, err error) {
	e, end, err := s.ctx.event()
	if err != nil {
		return nil, true, wrap(op, err)
	}
	from := time.Now()
	if err := s.markEnd(ctx, op, e); err != errPending {
		end()
		return nil, true, err
	}
	to := time.Now()
	code := driver.CUDA_ERROR_NOT_READY
	if !slow {
		code = spins(func(spin int64) driver.CUresult { return rt.EventQuery(s.callContext, e, spin) })
	}
	if code != driver.CUDA_ERROR_NOT_READY {
		end()
		return nil, true, check(op, code)
	}
	return &waiter{home: s.home(), event: e, line: s, from: from, to: to, end: end}, false, nil
}

// errPending says that work is not done yet.
var errPending = errors.New("pending")

// markEnd records an event of the layer's, unless the work is done: then it returns
// nil, otherwise errPending.
func (s *streamCore) markEnd(ctx context.Context, op string, e driver.CUevent) error {
	if err := s.lockContext(ctx, op); err != nil {
		return err
	}
	if err := s.enteredAsk(op); err != nil {
		return err
	}
	code := rt.Point(s.callContext, s.raw, e)
	if code == 0 {
		s.forgetBacklog()
	}
	s.leave(nil)
	if code == driver.CUDA_ERROR_NOT_READY {
		return errPending
	}
	return check(op, code)
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
	w, done, err := c.waiter(ctx, op, c.slow.Load())
	c.Release()
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
	if s == nil || s.core == nil || s.core.Closed() {
		return nil
	}
	err := s.Wait(ctx)
	return errors.Join(wrap("Stream.Shutdown", err), s.Close())
}

// SynchronizeBlocking is [Stream.Synchronize] by a wait of the driver's. It blocks a
// thread, and answers fast also where computing goroutines keep every processor that
// Go may use busy, when a parked goroutine is woken late. The thread spins, or sleeps
// if [Stream.SetSynchronizationPolicy] says so.
//
// Source: cuStreamQuery, cuEventRecord, cuEventSynchronize.
func (s *Stream) SynchronizeBlocking() error {
	const op = "Stream.SynchronizeBlocking"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	e, end, err := c.blockingEvent(op)
	if err != nil {
		return wrap(op, err)
	}
	defer end()
	// The stream is not locked during the wait, which may take for ever, and the
	// driver's wait for a stream would see a capture that begins meanwhile.
	if err := c.markEnd(context.Background(), op, e); err != errPending {
		return err
	}
	return wrap(op, c.ctx.withCurrent(func() error { return driver.CuEventSynchronize(e) }))
}

// blockingEvent is an event to wait for as the stream's policy says.
func (s *streamCore) blockingEvent(op string) (e driver.CUevent, end func(), err error) {
	capture, err := s.enter(op)
	if err != nil {
		return 0, nil, err
	}
	var policy driver.CUstreamAttrValue
	err = s.ctx.withCurrent(func() error { return s.fetch(op, driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy) })
	s.leave(capture)
	if err != nil || *policy.SyncPolicy() != driver.CU_SYNC_POLICY_BLOCKING_SYNC {
		return s.ctx.event()
	}
	flags := uint32(driver.CU_EVENT_DISABLE_TIMING | driver.CU_EVENT_BLOCKING_SYNC)
	err = s.ctx.withCurrent(func() error { return driver.CuEventCreate(&e, flags) })
	return e, func() { s.ctx.withCurrent(func() error { return driver.CuEventDestroy(e) }) }, err
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
	if !v.enter() {
		v.Release()
		return &Error{Op: op, Err: ErrCapturing}
	}
	v.waiting.Add(1) // from now on no capture records the event
	v.gate.leave()
	code := spins(v.query)
	if code != driver.CUDA_ERROR_NOT_READY {
		v.waiting.Add(-1)
		v.Release()
		return check(op, code)
	}
	w := &waiter{home: v.home(), event: v.raw, line: v, end: func() {
		v.waiting.Add(-1)
		v.Release()
	}}
	return w.wait(ctx, op)
}

// Synchronize is [Event.Wait] without end.
func (e *Event) Synchronize() error { return e.Wait(context.Background()) }
