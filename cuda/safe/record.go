package safe

import (
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Record makes e stand for the work that is on the stream now. e must be of the
// same context, else the error is [ErrContext]. With
// driver.CU_EVENT_RECORD_EXTERNAL, which only a capturing stream takes, the
// record becomes a node of the graph. Source: cuEventRecord,
// cuEventRecordWithFlags.
func (s *Stream) Record(e *Event, flags driver.CUevent_record_flags) error {
	const op = "Stream.Record"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	v, err := e.acquire(op)
	if err != nil {
		c.unmark()
		return err
	}
	switch {
	case !v.ctx.same(c.ctx):
		err = refuse(op, ErrContext, "the event is of %v, the stream of %v", v.ctx.device, c.ctx.device)
	case flags == 0 && c.captured() == nil && v.waiting.Load() == 0 && !v.captured.Load():
		code := rt.Record(c.set, v.raw, c.raw, 0)
		if code == rt.CodeCaptured { // by a capture that this package did not begin
			v.captured.Store(true)
		} else if code != 0 {
			err = check(op, code)
		}
	default:
		err = c.record(op, v, flags)
	}
	v.unmark()
	c.unmark()
	return err
}

// record is Record with a capture of this package, or with somebody who waits.
func (s *streamCore) record(op string, e *eventCore, flags driver.CUevent_record_flags) error {
	if e.waiting.Load() > 0 && s.capturing() {
		return refuse(op, ErrCapturing, "somebody waits for the event")
	}
	capture := s.lockCapture()
	defer capture.unlock()
	if flags != 0 && !capture.keeps(&e.handle) {
		return &Error{Op: op, Err: ErrClosed}
	}
	was := e.captured.Load()
	if capture != nil && flags == 0 { // from now on nobody asks the event
		e.captured.Store(true)
		for e.asking.Load() > 0 {
			time.Sleep(10 * time.Microsecond)
		}
	}
	code := rt.Record(s.set, e.raw, s.raw, uint32(flags))
	if code != 0 && code != rt.CodeCaptured {
		e.captured.Store(was)
		return check(op, code)
	}
	if captured := code == rt.CodeCaptured && flags == 0; captured || e.captured.Load() {
		e.capture.Store(capture)
		e.captured.Store(captured)
	}
	return nil
}

// WaitEvent makes what is put on the stream from now on wait for the work that
// e stands for now: later records of e change nothing. An event that was never
// recorded is no wait. e may be of another context or device. Source:
// cuStreamWaitEvent.
func (s *Stream) WaitEvent(e *Event, flags driver.CUevent_wait_flags) error {
	const op = "Stream.WaitEvent"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.unmark()
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer v.unmark()
	if flags == 0 && v.captured.Load() {
		return c.waitCaptured(op, v)
	}
	capture := c.lockCapture()
	defer capture.unlock()
	if flags != 0 && !capture.keeps(&v.handle) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return check(op, rt.WaitEvent(c.set, c.raw, v.raw, uint32(flags)))
}

// waitCaptured waits for an event that stands for captured work, which makes the
// stream a part of the capture.
func (s *streamCore) waitCaptured(op string, e *eventCore) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	capture := e.capture.Load()
	if capture == nil { // of a capture that this package did not begin
		return check(op, rt.WaitEvent(s.set, s.raw, e.raw, 0))
	}
	capture.graph.mu.Lock()
	defer capture.graph.mu.Unlock()
	if err := check(op, rt.WaitEvent(s.set, s.raw, e.raw, 0)); err != nil {
		return err
	}
	capture.join(s.root())
	return nil
}
