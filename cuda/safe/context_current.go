package safe

import (
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// withCurrent calls f on a thread where c is current and whose capture mode is RELAXED,
// so that f cannot invalidate a capture on another thread. Then it restores the thread.
// Frequent calls have a function in package rt instead, which does all of this in one cgo call and without a goroutine
// that is locked to its thread.
func (c *contextCore) withCurrent(f func() error) error {
	return c.withCurrentMode(rt.Relaxed, f)
}

func (c *contextCore) withCurrentMode(mode rt.Mode, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var scope rt.Scope
	if code := rt.Enter(&scope, c.raw, c.id, mode); code != 0 {
		return code
	}
	defer rt.Leave(&scope)
	return f()
}

// callForeign calls f, which calls other libraries, with c current. In f, calls of this
// package return ErrInCallback: they could wait for locks that the caller holds.
func (c *contextCore) callForeign(op string, f func() error) error {
	var from error
	err := c.withCurrentMode(rt.Foreign, func() error {
		from = f()
		return nil
	})
	if err != nil || from == nil {
		return wrap(op, err)
	}
	if code, ok := from.(driver.CUresult); ok {
		return failed(op, code)
	}
	return &Error{Op: op, Err: from}
}

// lock locks mu. Where rt.InCallback it does not wait: the holder of mu may be waiting
// for the function that runs there.
func lock(op string, mu admit.Locker) error {
	admit.MayWait(mu)
	if mu.TryLock() {
		return nil
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	mu.Lock()
	return nil
}

// destroying calls f, which destroys an object, with the context current. It does not call f if other code has reset
// the context, which has destroyed the object.
func (c *contextCore) destroying(op string, f func() error) error {
	if err := c.withCurrent(f); err != rt.CodeReset {
		return wrap(op, err)
	}
	return nil
}

// released translates the result of a call of package rt that destroys an object. A reset of the context
// by other code has destroyed it already.
func released(op string, code driver.CUresult) error {
	if code == rt.CodeReset {
		return nil
	}
	return check(op, code)
}

// handleContext returns the context to make current for a call that has a handle, or 0 if
// the driver takes the context from the handle.
func (c *contextCore) handleContext() driver.CUcontext {
	if rt.HandlesSuffice {
		return 0
	}
	return c.raw
}

// home returns the context for calls of package rt that detect a reset.
func (c *contextCore) home() rt.Home {
	return rt.Home{CallContext: c.handleContext(), Context: c.raw, ID: c.id}
}

// home returns the home of the event's context.
func (e *eventCore) home() rt.Home {
	return rt.Home{CallContext: e.callContext, Context: e.ctx.raw, ID: e.ctx.id}
}

// home returns the home of the stream's context.
func (s *streamCore) home() rt.Home {
	return rt.Home{CallContext: s.callContext, Context: s.ctx.raw, ID: s.ctx.id}
}
