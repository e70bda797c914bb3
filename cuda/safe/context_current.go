package safe

import (
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// in calls f on a thread where c is current and whose capture mode is RELAXED,
// so that what f does destroys no capture that another thread has under way.
// Afterwards the thread is as it was. Calls that are made often have a function
// in package rt instead, which does all this in one crossing.
func (c *contextCore) withCurrent(f func() error) error { return c.withCurrentMode(true, f) }

func (c *contextCore) withCurrentMode(relaxed bool, f func() error) error {
	if c.shared != nil && c.shared.reset.Load() {
		return rt.CodeReset
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var scope rt.Scope
	if code := rt.Enter(&scope, c.raw, c.id, relaxed); code != 0 {
		return code
	}
	defer rt.Leave(&scope)
	return f()
}

// lock locks mu, but not on a thread of the driver: whoever holds mu may be waiting for
// the function that the driver calls there.
func lock(op string, mu locker) error {
	if mu.TryLock() {
		return nil
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	mu.Lock()
	return nil
}

// destroying is in for the destruction of an object, which a reset of the
// context has done already.
func (c *contextCore) destroying(op string, f func() error) error {
	err := c.withCurrent(f)
	if err == rt.CodeReset {
		return nil
	}
	return wrap(op, err)
}

// bare is the context to make current for a call that carries a handle: none
// where the driver is known to need none.
func (c *contextCore) handleContext() driver.CUcontext {
	if rt.HandlesSuffice {
		return 0
	}
	return c.raw
}

// home is the context for calls of package rt that notice a reset of it.
func (c *contextCore) home() rt.Home {
	return rt.Home{Set: c.handleContext(), Context: c.raw, ID: c.id}
}

// home is that of the event's context.
func (e *eventCore) home() rt.Home {
	return rt.Home{Set: e.callContext, Context: e.ctx.raw, ID: e.ctx.id}
}

// home is that of the stream's context.
func (s *streamCore) home() rt.Home {
	return rt.Home{Set: s.callContext, Context: s.ctx.raw, ID: s.ctx.id}
}
