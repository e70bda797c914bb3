package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// EventFromRaw takes ownership of an event that was created elsewhere: Close destroys it. The
// event must belong to x, which CUDA offers no way to check, and must not be recorded in a
// capture that has not ended. It returns driver.CUDA_ERROR_INVALID_HANDLE for 0.
func EventFromRaw(raw driver.CUevent, x *Context) (*Event, error) {
	return foreignEvent("EventFromRaw", raw, x, nil, true)
}

// BorrowEvent makes an event that was created elsewhere usable with this package, and
// never destroys it. owner may be nil; otherwise it stays reachable until the Event is
// closed. The conditions and errors are those of [EventFromRaw].
func BorrowEvent(raw driver.CUevent, x *Context, owner any) (*Event, error) {
	return foreignEvent("BorrowEvent", raw, x, owner, false)
}

func foreignEvent(op string, raw driver.CUevent, x *Context, owner any, owned bool) (*Event, error) {
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if raw == 0 {
		return nil, refuse(op, driver.CUDA_ERROR_INVALID_HANDLE, "the handle is 0")
	}
	// Only opens a foreign core at first, so that a failure destroys nothing of the caller's.
	e := &eventCore{ctx: c, raw: raw, callContext: c.handleContext(), foreign: true, owner: owner}
	c.shared.foreign.Lock()
	defer c.shared.foreign.Unlock()
	parent, release := e.share()
	defer release()
	return e.adopt(op, parent, owned)
}

// share gives e the state of another Event for the same event of the driver if there is
// one, which must outlive e then, or else a state of its own.
func (e *eventCore) share() (parent *lifetime.Handle, release func()) {
	s := e.ctx.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.known[e.raw]; o != nil && o.TryRetain() {
		e.recording = o.recording
		return &o.Handle, o.Release
	}
	e.recording = &recording{}
	e.recorded.Store(true) // perhaps
	return &e.ctx.Handle, func() {}
}

// addEvent notes e, unless it stands for an event that another Event stands for.
func (s *contextState) addEvent(e *eventCore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.known[e.raw]; o == nil || o.recording != e.recording {
		s.known[e.raw] = e
	}
}

func (s *contextState) dropEvent(e *eventCore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[e.raw] == e {
		delete(s.known, e.raw)
	}
}
