package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Record captures the stream's current work in e: e completes when that work has. It
// returns [ErrContextMismatch] if e belongs to another context. Source: cuEventRecord.
func (s *Stream) Record(e *Event) error {
	const op = "Stream.Record"
	if code := s.recordQuick(e); code != rt.CodeCapturing {
		return check(op, code)
	}
	return s.recordWith(op, e, 0)
}

// RecordExternal adds a node to the graph that the stream captures: each launch of the
// graph records e, for waits outside of the graph. The stream must be capturing.
// Source: cuEventRecordWithFlags with CU_EVENT_RECORD_EXTERNAL.
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
		err = refuse(op, ErrContextMismatch, "the event is of %v, the stream of %v", v.ctx.device, c.ctx.device)
	}
	v.Release()
	c.Release()
	return err
}

// recordQuick is Record where nothing is in the way, and rt.CodeCapturing elsewhere.
func (s *Stream) recordQuick(e *Event) driver.CUresult {
	c := s.quick()
	if c == nil {
		return rt.CodeCapturing
	}
	code := rt.CodeCapturing
	if v := e.quick(); v != nil {
		if v.ctx.same(c.ctx) {
			code = rt.Record(c.callContext, v.raw, c.raw)
		}
		if code == 0 && !v.recorded.Load() {
			v.recorded.Store(true)
		}
		v.gate.leave()
	}
	c.mu.Unlock()
	return code
}

func (s *streamCore) record(op string, e *eventCore, flags driver.CUevent_record_flags) error {
	capture, err := s.enter(op)
	if err != nil {
		return err
	}
	defer s.leave(capture)
	switch {
	case flags != 0:
		return s.recordNode(op, e, flags, capture)
	case capture == nil && e.gate.enter():
		code := rt.Record(s.callContext, e.raw, s.raw)
		if code == 0 && !e.recorded.Load() {
			e.recorded.Store(true)
		}
		e.gate.leave()
		if code != rt.CodeCapturing {
			return check(op, code)
		}
	}
	return s.recordCaptured(op, e, capture)
}

// recordNode makes a node of a graph that records the event when the graph is launched.
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

// recordCaptured records an event that stands for captured work, or will.
func (s *streamCore) recordCaptured(op string, e *eventCore, capture *capturing) error {
	return e.exclude(op, capture, func() error {
		captures := capture != nil || s.capturing()
		if captures && e.waiting.Load() > 0 {
			return refuse(op, ErrCapturing, "a wait for the event is under way")
		}
		code := rt.RecordWith(s.callContext, e.raw, s.raw, 0)
		if code != 0 && code != rt.CodeCaptured {
			return check(op, code)
		}
		e.stands(code == rt.CodeCaptured, capture)
		return nil
	})
}

// WaitEvent makes work enqueued on the stream from now on wait for the latest record of
// e. Later records of e do not change the wait. An event that was never recorded causes
// no wait. e may belong to another context or device. Source: cuStreamWaitEvent.
//
// If e was recorded in a capture of another stream, this stream joins the capture until
// it ends. WaitEvent then waits until launches that wait for room in the stream's queue
// have returned. It returns [ErrCapturing] if the stream belongs to another capture.
func (s *Stream) WaitEvent(e *Event) error { return s.waitEventWith("Stream.WaitEvent", e, 0) }

// WaitEventExternal adds a node to the graph that the stream captures: each launch of
// the graph waits there for the latest record of e outside of the graph. The stream must
// be capturing. Source: cuStreamWaitEvent with CU_EVENT_WAIT_EXTERNAL.
func (s *Stream) WaitEventExternal(e *Event) error {
	return s.waitEventWith("Stream.WaitEventExternal", e, driver.CU_EVENT_WAIT_EXTERNAL)
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
	for {
		again, err := c.waitEvent(op, v, flags)
		if !again {
			return err
		}
		if again, err = c.joinBy(op, v); !again {
			return err
		}
	}
}

// waitEvent waits for an event, or returns again where that makes the stream one of
// a capture's.
func (s *streamCore) waitEvent(op string, e *eventCore, flags driver.CUevent_wait_flags) (again bool, err error) {
	capture, err := s.enter(op)
	if err != nil {
		return false, err
	}
	defer s.leave(capture)
	if e.ctx.shared.reset.Load() {
		return false, &Error{Op: op, Err: ErrReset}
	}
	if flags != 0 && !capture.retains(&e.Handle) {
		return false, &Error{Op: op, Err: ErrClosed}
	}
	if e.gate.enter() { // without a closure, which would be allocated
		defer e.gate.leave()
		outside := flags == 0 && e.recorded.Load() // of captures
		if outside && capture != nil {
			return false, refuse(op, ErrCapturing, "the event stands for work outside of the capture")
		}
		return false, check(op, rt.WaitEvent(s.callContext, s.raw, e.raw, uint32(flags), outside))
	}
	if c := e.capture.Load(); flags == 0 && capture != nil && c != nil && c != capture {
		return false, &Error{Op: op, Err: errForeign} // also of one that has ended
	}
	err = e.exclude(op, capture, func() error { return check(op, rt.WaitEvent(s.callContext, s.raw, e.raw, uint32(flags), false)) })
	return capture == nil && flags == 0 && errors.Is(err, errForeign), err
}

// joinBy has the stream join the capture whose work the event stands for. It returns
// again where the event stands for other work by now.
func (s *streamCore) joinBy(op string, e *eventCore) (again bool, err error) {
	c := e.capture.Load()
	if c == nil {
		return true, nil
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
		if again = c.over || e.capture.Load() != c; again {
			return nil
		}
		err := check(op, rt.WaitEvent(s.callContext, s.raw, e.raw, 0, false))
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
