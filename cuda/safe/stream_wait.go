package safe

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A wait first spins in C, where most short work ends: for a stream, which is locked so that
// no more work is enqueued, and then for an event. If the last wait for the stream took long,
// or many goroutines spin already, it does not: see waiter.wait for what follows.
const eventSpin = 50 * time.Microsecond

var ( // variables for tests
	lockedSpin = 10 * time.Microsecond
	long       = 100 * time.Microsecond
)

var spinning atomic.Int32

// spins calls ask with the time to spin, 0 if too many goroutines spin.
func spins(limit time.Duration, ask func(spin int64) driver.CUresult) driver.CUresult {
	defer spinning.Add(-1)
	if spinning.Add(1) > mostSpin() {
		limit = 0
	}
	return ask(int64(limit))
}

// eventSoon queries an event for as long as a wait spins.
func (c *contextCore) eventSoon(callContext driver.CUcontext, e driver.CUevent) driver.CUresult {
	return spins(eventSpin, func(spin int64) driver.CUresult { return rt.EventQuery(callContext, e, spin) })
}

// soon waits a moment for the stream's work, in the common case. It returns
// driver.CUDA_ERROR_NOT_READY if that takes longer.
func (s *Stream) soon() driver.CUresult {
	c := s.quick()
	if c == nil {
		return driver.CUDA_ERROR_NOT_READY
	}
	defer c.mu.Unlock()
	if c.slow.Load() {
		return driver.CUDA_ERROR_NOT_READY
	}
	code := spins(lockedSpin, func(spin int64) driver.CUresult { return rt.Query(c.callContext, c.raw, spin) })
	if code == 0 {
		c.forgetBacklog()
	}
	return code
}

// waiter records an event after the stream's current work. If done is set, there is
// nothing to wait for: err says why, or the work has completed. Otherwise the caller
// waits for w. The caller has acquired the stream, and may release it before it waits. If
// ctx ends before the event is recorded, because launches wait for room in the stream's
// queue, the error is the cause.
func (s *streamCore) waiter(ctx context.Context, op string, slow bool) (w *waiter, done bool, err error) {
	e, end, err := s.ctx.event()
	if err != nil {
		return nil, true, wrap(op, err)
	}
	from := time.Now()
	order, err := s.recordEnd(ctx, op, e, false)
	if err != errPending {
		end()
		return nil, true, err
	}
	to := time.Now()
	code := driver.CUDA_ERROR_NOT_READY
	if !slow {
		code = s.ctx.eventSoon(s.callContext, e)
	}
	if code != driver.CUDA_ERROR_NOT_READY {
		end()
		return nil, true, check(op, code)
	}
	return &waiter{home: s.home(), event: e, queue: s.queue, order: order, from: from, to: to, end: end}, false, nil
}

// errPending means that the work has not completed yet.
var errPending = errors.New("pending")

// recordEnd records e after the stream's work and returns errPending and its place in the order of these
// records, or nil if the work has completed. With always, it records e even then.
func (s *streamCore) recordEnd(ctx context.Context, op string, e driver.CUevent, always bool) (order uint64, err error) {
	if err := s.lockContext(ctx, op); err != nil {
		return 0, err
	}
	a := admission{op: op, stream: s, flags: asks | locked}
	if err := a.admit(); err != nil {
		return 0, err
	}
	code := rt.Mark(s.callContext, s.raw, e)
	if code == 0 {
		s.forgetBacklog()
		if always {
			if code = rt.Record(s.callContext, e, s.raw); code == 0 {
				code = driver.CUDA_ERROR_NOT_READY
			}
		}
	}
	s.ends++
	order = s.ends
	a.leave(true)
	if code == driver.CUDA_ERROR_NOT_READY {
		return order, errPending
	}
	return 0, check(op, code)
}

// Wait waits until the current work of the stream has completed. It does not wait for work that is enqueued later. It
// also returns errors of earlier work. If ctx ends first, Wait returns its cause within milliseconds, and the work goes
// on: a Close of memory that the work uses, such as [Pinned.Close], then waits for it. Wait returns [ErrCapturing] if
// the stream is capturing. One goroutine polls for all waits, so together they block one thread. In addition, a few
// waits at a time block a thread each: at first, while they spin; and, if the last two waits for the stream took about
// the same time, until the expected end of this one.
//
// Source: cuStreamQuery, cuEventRecord, cuEventQuery.
func (s *Stream) Wait(ctx context.Context) error { return s.wait(ctx, "Stream.Wait") }

func (s *Stream) wait(ctx context.Context, op string) error {
	if ctx == nil {
		return noContext(op)
	}
	if code := s.soon(); code != driver.CUDA_ERROR_NOT_READY {
		return check(op, code)
	}
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	start := time.Now()
	w, done, err := c.waiter(ctx, op, c.slow.Load())
	c.Release()
	if !done {
		w.steady = c.steady.Load()
		if took := c.took.Load(); took > 0 {
			w.takes = time.Duration(took) - time.Since(start)
		}
		if err = w.wait(ctx, op); err == nil {
			c.learn(time.Since(start))
		}
	}
	c.waited(start)
	return err
}

// learn notes how long a wait took that did not end while it spun. If two in a row took alike, the next one sleeps until
// shortly before that time, and spins again.
func (s *streamCore) learn(took time.Duration) {
	const alike = 30 * time.Microsecond // as long as rt.Await spins, before and after
	last := time.Duration(s.took.Swap(int64(took)))
	if steady := (took - last).Abs() < alike; steady != s.steady.Load() {
		s.steady.Store(steady)
	}
}

// waited decides whether the next wait spins, by how long this one took.
func (s *streamCore) waited(start time.Time) {
	if slow := time.Since(start) > long; slow != s.slow.Load() {
		s.slow.Store(slow)
	}
}

// Synchronize waits until the current work of the stream has completed, without a deadline: see [Stream.Wait].
func (s *Stream) Synchronize() error { return s.wait(context.Background(), "Stream.Synchronize") }

// Shutdown waits for the stream's work, closes the stream, and joins the errors of both. If ctx ends first, Shutdown
// closes the stream anyway and returns the cause. The work goes on. To abandon a stream that may hang, call Shutdown
// with a deadline.
func (s *Stream) Shutdown(ctx context.Context) error {
	if s == nil || s.core == nil || s.core.Closed() {
		return nil
	}
	err := s.Wait(ctx)
	return errors.Join(wrap("Stream.Shutdown", err), s.Close())
}

// SynchronizeBlocking waits until the current work of the stream has completed, in the driver, which blocks a thread.
// Use it if computing goroutines occupy all processors (GOMAXPROCS): Go then wakes a parked goroutine late. The thread
// spins, or sleeps if the stream's synchronization policy says so: see [Stream.SetAttribute]. It also prints what
// completed kernels of the context have written by printf, even if the stream has no work.
//
// Source: cuStreamQuery, cuEventRecord, cuEventSynchronize.
func (s *Stream) SynchronizeBlocking() error {
	const op = "Stream.SynchronizeBlocking"
	code := s.soon()
	if code != driver.CUDA_SUCCESS && code != driver.CUDA_ERROR_NOT_READY {
		return check(op, code)
	}
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	event := func() (driver.CUevent, func(), error) { return c.blockingEvent(op) }
	if code == driver.CUDA_SUCCESS { // a wait for nothing prints, too
		event = c.ctx.event
	}
	e, end, err := event()
	if err != nil {
		return wrap(op, err)
	}
	defer end()
	defer c.waited(time.Now())
	if _, err := c.recordEnd(context.Background(), op, e, true); err != errPending { // before that, e marks other work
		return err
	}
	return c.waitInDriver(op, e)
}

// waitInDriver waits for an event, without the stream's lock: the wait may never end, and the
// driver's wait for a stream would see a capture that begins meanwhile.
func (s *streamCore) waitInDriver(op string, e driver.CUevent) error {
	return wrap(op, s.ctx.withCurrent(func() error {
		return hostWaits.With(s.number, func() error { return driver.CuEventSynchronize(e) })
	}))
}

// blockingEvent returns an event whose waits follow the stream's policy.
func (s *streamCore) blockingEvent(op string) (e driver.CUevent, end func(), err error) {
	a := admission{op: op, stream: s}
	if err := a.admit(); err != nil {
		return 0, nil, err
	}
	var policy driver.CUstreamAttrValue
	if err = s.unseen(op); err == nil {
		err = s.ctx.withCurrent(func() error { return s.fetch(op, driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy) })
	}
	a.leave(true)
	if errors.Is(err, ErrCapturing) {
		return 0, nil, err
	}
	if err != nil || *policy.SyncPolicy() != driver.CU_SYNC_POLICY_BLOCKING_SYNC {
		return s.ctx.event()
	}
	flags := driver.CU_EVENT_DISABLE_TIMING | driver.CU_EVENT_BLOCKING_SYNC
	err = s.ctx.allocating(func() error { return driver.CuEventCreate(&e, flags) })
	return e, func() {
		_ = s.ctx.withCurrent(func() error { return driver.CuEventDestroy(e) })
	}, err
}

// Wait waits until the latest record of e has completed. If e is recorded again
// meanwhile, Wait waits for the newer record. It returns at once if e was never recorded,
// and [ErrCapturing] if e was last recorded in a capture. If ctx ends first, Wait returns
// its cause at once. It takes threads as [Stream.Wait] does. Source: cuEventQuery.
func (e *Event) Wait(ctx context.Context) error { return e.wait(ctx, "Event.Wait") }

func (e *Event) wait(ctx context.Context, op string) error {
	if ctx == nil {
		return noContext(op)
	}
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	if !v.beginWait() {
		v.Release()
		return lastCaptured(op, "the event")
	}
	code := spins(eventSpin, v.query)
	if code != driver.CUDA_ERROR_NOT_READY {
		v.waiting.Add(-1)
		v.Release()
		return check(op, code)
	}
	w := &waiter{home: v.home(), event: v.raw, queue: v, end: func() {
		v.waiting.Add(-1)
		v.Release()
	}}
	return w.wait(ctx, op)
}

// beginWait counts a wait, so that no capture records the event. It fails if the event was last recorded in a
// capture.
func (e *eventCore) beginWait() bool {
	if !e.enter() {
		return false
	}
	e.waiting.Add(1)
	admit.Between()
	e.gate.Leave()
	return true
}

// Synchronize waits until the latest record of e has completed, without a deadline: see [Event.Wait].
func (e *Event) Synchronize() error { return e.wait(context.Background(), "Event.Synchronize") }

// Query reports whether all work of the stream has completed, without waiting. It returns false while a call that
// enqueues work on another goroutine blocks in the driver. It also returns errors of earlier work. It returns
// [ErrCapturing] if the stream is capturing. Source: cuStreamQuery.
func (s *Stream) Query() (done bool, err error) {
	const op = "Stream.Query"
	if c := s.quick(); c != nil {
		code := rt.Query(c.callContext, c.raw, 0)
		c.mu.Unlock()
		return answer(op, code)
	}
	c, err := s.acquire(op)
	if err != nil {
		return false, err
	}
	done, err = c.query(op)
	c.Release()
	return done, err
}

// queryPatience is how long a query waits for another call on the stream. One that takes longer
// enqueues work, and blocks in the driver.
const queryPatience = time.Millisecond

func (s *streamCore) query(op string) (done bool, err error) {
	for end := time.Now().Add(queryPatience); !s.mu.TryLock(); runtime.Gosched() {
		switch c := s.capture.Load(); {
		case rt.InCallback():
			return false, &Error{Op: op, Err: ErrInCallback}
		case c != nil:
			return false, c.refuses(op, "")
		case time.Now().After(end):
			return false, nil
		}
	}
	a := admission{op: op, stream: s, flags: asks | locked}
	if err := a.admit(); err != nil {
		return false, err
	}
	code := rt.Query(s.callContext, s.raw, 0)
	a.leave(true)
	return answer(op, code)
}
