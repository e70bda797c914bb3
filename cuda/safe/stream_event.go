package safe

import (
	"context"
	"errors"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Record records e in the stream: e completes when the work that has been enqueued there so far has completed. It
// returns [ErrContextMismatch] if e belongs to another context. It blocks while about 1,000 operations are pending on
// the stream, unless e was created with DisableTiming. Source: cuEventRecord.
func (s *Stream) Record(e *Event) error {
	const op = "Stream.Record"
	if code := s.recordQuick(e); code != rt.CodeCapturing {
		return check(op, code)
	}
	return s.recordWith(op, e, 0)
}

// RecordExternal adds a node to the graph that the stream captures: each launch of the
// graph records e for waits outside the graph. The stream must be capturing. Source:
// cuEventRecordWithFlags with CU_EVENT_RECORD_EXTERNAL.
func (s *Stream) RecordExternal(e *Event) error {
	return s.recordWith("Stream.RecordExternal", e, driver.CU_EVENT_RECORD_EXTERNAL)
}

func (s *Stream) recordWith(op string, e *Event, flags driver.CUevent_record_flags) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	v, err := e.acquire(op)
	if err != nil {
		c.Release()
		return err
	}
	if v.ctx.same(c.ctx) {
		err = c.record(op, v, flags)
	} else {
		err = refuse(op, ErrContextMismatch, "the event belongs to a context of %v, the stream to one of %v", v.ctx.device, c.ctx.device)
	}
	v.Release()
	c.Release()
	return err
}

// recordQuick records the event in the common case: nothing captures, and no lock is contended. Otherwise it does
// nothing and returns rt.CodeCapturing.
func (s *Stream) recordQuick(e *Event) driver.CUresult {
	c := s.quick()
	if c == nil {
		return rt.CodeCapturing
	}
	code := rt.CodeCapturing
	if v := e.quick(); v != nil {
		switch {
		case !v.ctx.same(c.ctx):
		case v.untimed || c.hasRoom(1, 0):
			c.worked = true
			code = rt.Record(c.callContext, v.raw, c.raw)
			if code != 0 {
				c.giveBack(v.places())
			} else if !v.recorded.Load() {
				v.recorded.Store(true)
			}
		}
		v.gate.Leave()
	}
	c.mu.Unlock()
	return code
}

func (s *streamCore) record(op string, e *eventCore, flags driver.CUevent_record_flags) error {
	a := admission{op: op, stream: s, flags: enqueues, places: e.places()}
	if err := a.admit(); err != nil {
		return wrap(op, err)
	}
	err := s.recordAdmitted(op, e, flags, a.capture)
	a.leave(err == nil)
	return err
}

// recordAdmitted records the event in a call that is admitted; capture is the admission's.
func (s *streamCore) recordAdmitted(op string, e *eventCore, flags driver.CUevent_record_flags, capture *capturing) error {
	switch {
	case flags != 0:
		return s.recordNode(op, e, flags, capture)
	case capture == nil && e.gate.Enter():
		code := rt.Record(s.callContext, e.raw, s.raw)
		if code == 0 && !e.recorded.Load() {
			e.recorded.Store(true)
		}
		e.gate.Leave()
		if code != rt.CodeCapturing {
			return check(op, code)
		}
	}
	return s.recordCaptured(op, e, capture)
}

// recordNode adds a node that records the event at each launch of the graph.
func (s *streamCore) recordNode(op string, e *eventCore, flags driver.CUevent_record_flags, capture *capturing) error {
	if !capture.retains(&e.Handle) {
		return &Error{Op: op, Err: ErrClosed}
	}
	e.recorded.Store(true)
	return e.use(op, capture, func() error {
		code := rt.RecordWith(s.callContext, e.raw, s.raw, uint32(flags))
		if code == rt.CodeCaptured {
			return nil
		}
		return check(op, code)
	})
}

// recordCaptured records an event whose old or new record is of captured work.
func (s *streamCore) recordCaptured(op string, e *eventCore, capture *capturing) error {
	if e.pooled && capture == nil { // the event could not be destroyed before the end
		return refuse(op, ErrCapturing, "a stream is in a capture that this package did not begin: use Record and WaitEvent")
	}
	return e.exclude(op, capture, func() error {
		captures := capture != nil || s.capturing()
		if captures && !e.unawaited() {
			poller.sweep() // a wait that was given up may still be there
			if !patiently(true, e.unawaited) {
				return refuse(op, ErrCapturing, "the event cannot be recorded in a capture during a wait for it")
			}
		}
		code := rt.RecordWith(s.callContext, e.raw, s.raw, 0)
		if code != 0 && code != rt.CodeCaptured {
			return check(op, code)
		}
		e.setCaptured(code == rt.CodeCaptured, capture)
		return nil
	})
}

// WaitEvent makes later work of the stream wait for the latest record of e. Later records of e do not change the wait.
// If e was never recorded, WaitEvent does nothing. e may belong to another context or device.
//
// If e was recorded in a capture of another stream, this stream joins the capture until the capture ends. WaitEvent
// then first waits for launches on this stream that are waiting for room in its queue. It returns [ErrCapturing] if the
// stream belongs to another capture, and [ErrInvalidArgument] if e was last recorded in a capture that has ended:
// nothing would complete that record. Source: cuStreamWaitEvent.
func (s *Stream) WaitEvent(e *Event) error {
	const op = "Stream.WaitEvent"
	if code := s.waitQuick(e); code != rt.CodeCapturing {
		return check(op, code)
	}
	return s.waitEventWith(op, e, 0)
}

// WaitEventExternal adds a node to the graph that the stream captures: each launch of the
// graph waits there for the latest record of e outside the graph. The stream must be
// capturing. WaitEventExternal returns [ErrInvalidArgument] if e was last recorded in a
// capture that has ended, for which CUDA would invalidate the stream's capture.
// Source: cuStreamWaitEvent with CU_EVENT_WAIT_EXTERNAL.
func (s *Stream) WaitEventExternal(e *Event) error {
	return s.waitEventWith("Stream.WaitEventExternal", e, driver.CU_EVENT_WAIT_EXTERNAL)
}

// waitQuick makes the stream wait for the event in the common case: nothing captures, no lock is contended, and the
// event was recorded. Otherwise it does nothing and returns rt.CodeCapturing.
func (s *Stream) waitQuick(e *Event) driver.CUresult {
	c := s.quick()
	if c == nil {
		return rt.CodeCapturing
	}
	code := rt.CodeCapturing
	if v := e.quick(); v != nil {
		if v.recorded.Load() && v.ctx.same(c.ctx) {
			c.worked = true
			code = rt.WaitEvent(c.callContext, c.raw, v.raw, 0, true)
		}
		v.gate.Leave()
	}
	c.mu.Unlock()
	return code
}

func (s *Stream) waitEventWith(op string, e *Event, flags driver.CUevent_wait_flags) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer v.Release()
	return c.waitFor(op, v, flags)
}

// waitFor makes the stream wait for an event, and join its capture if it must.
func (s *streamCore) waitFor(op string, e *eventCore, flags driver.CUevent_wait_flags) error {
	for {
		again, err := s.waitEvent(op, e, flags)
		if !again {
			return err
		}
		if again, err = s.joinBy(op, e); !again {
			return err
		}
	}
}

// waitEvent enqueues the wait. It returns again if the stream must first join a capture.
func (s *streamCore) waitEvent(op string, e *eventCore, flags driver.CUevent_wait_flags) (again bool, err error) {
	a := admission{op: op, stream: s}
	if err := a.admit(); err != nil {
		return false, err
	}
	defer a.leave(true)
	capture := a.capture
	if flags != 0 && !capture.retains(&e.Handle) {
		return false, &Error{Op: op, Err: ErrClosed}
	}
	if e.gate.Enter() {
		if flags != 0 || e.recorded.Load() || capture == nil && !s.capturing() {
			defer e.gate.Leave() // written out, as a closure would be allocated
			return false, e.wait(op, s, capture, flags, flags == 0)
		}
		e.gate.Leave() // the first record may be in flight, which a capture cannot wait for: exclude tells
	}
	if c := e.capture.Load(); flags == 0 && capture != nil && c != nil && c != capture && !c.ended.Load() {
		return false, &Error{Op: op, Err: errForeign}
	}
	err = e.exclude(op, capture, func() error {
		if e.stale() {
			return refuse(op, ErrInvalidArgument, staleRecord)
		}
		err := e.wait(op, s, capture, flags, flags == 0 && !e.captured && e.recorded.Load())
		if e.captured && errors.Is(err, driver.CUDA_ERROR_INVALID_VALUE) { // in a capture of other code
			return refuse(op, ErrInvalidArgument, staleRecord)
		}
		return err
	})
	return capture == nil && flags == 0 && errors.Is(err, errForeign), err
}

// wait makes s wait for the event, which was recorded outside the stream's capture if outside
// is set: the wait would invalidate that capture.
func (e *eventCore) wait(op string, s *streamCore, capture *capturing, flags driver.CUevent_wait_flags, outside bool) error {
	if outside && capture != nil {
		return refuse(op, ErrCapturing, "the event was recorded outside of the capture; WaitEventExternal can wait for it")
	}
	s.worked = true
	return check(op, rt.WaitEvent(s.callContext, s.raw, e.raw, uint32(flags), outside))
}

// joinBy makes the stream join the capture in which the event was recorded. It returns
// again if the event was recorded elsewhere in the meantime.
func (s *streamCore) joinBy(op string, e *eventCore) (again bool, err error) {
	c := e.capture.Load()
	if c == nil {
		return true, nil
	}
	if s.legacy() {
		return false, refuse(op, ErrCapturing, "the legacy default stream cannot join a capture")
	}
	gates, err := s.claim(op, c)
	if err != nil {
		return false, err
	}
	if err := lock(op, c.graph.mu); err != nil {
		s.disclaim(gates)
		return false, err
	}
	joined := false
	err = e.exclude(op, c, func() error {
		if c.endless.Load() {
			return c.refuses(op, "")
		}
		if again = c.over || e.capture.Load() != c; again {
			return nil
		}
		err := e.wait(op, s, nil, 0, false)
		if joined = err == nil; joined {
			c.join(s, gates)
		}
		return err
	})
	c.graph.mu.Unlock()
	if !joined {
		s.disclaim(gates)
		return again, err
	}
	s.mu.Unlock()
	return false, nil
}

// Time calls f, which enqueues work on the stream, waits for that work, and returns the
// time on the device from before its start to its end: see [Event.Since]. It includes other
// work that is enqueued on the stream meanwhile, and loading kernels at their first launch.
//
// If f returns an error, Time returns it at once. If ctx ends before the work has completed,
// Time returns its cause, and the work goes on. It returns [ErrCapturing] if the stream is
// capturing. Source: cuEventCreate, cuEventRecord, cuEventElapsedTime.
func (s *Stream) Time(ctx context.Context, f func() error) (time.Duration, error) {
	const op = "Stream.Time"
	c, err := s.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	if ctx == nil {
		return 0, noContext(op)
	}
	if f == nil {
		return 0, noFunction(op)
	}
	if err := c.notCapturing(op); err != nil {
		return 0, err
	}
	var events [2]*Event
	for i := range events {
		events[i], err = makeEvent(op, c.ctx.view(), func(raw *driver.CUevent) error { return driver.CuEventCreate(raw, 0) })
		if err != nil {
			return 0, err
		}
		defer events[i].Close()
	}
	start, end := events[0], events[1]
	if err := c.record(op, start.core, 0); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := c.record(op, end.core, 0); err != nil {
		return 0, err
	}
	if err := end.Wait(ctx); err != nil {
		return 0, wrap(op, err)
	}
	took, err := end.Since(start)
	return took, wrap(op, err)
}
