package safe

import (
	"errors"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// ContextOptions are the options of [NewContextWith]. The zero value is CUDA's default.
type ContextOptions struct {
	// Flags, such as driver.CU_CTX_SCHED_BLOCKING_SYNC, say among other things how threads
	// wait inside the driver. Waits of this package are not affected.
	Flags driver.CUctx_flags
}

// NewContext creates a context of the program's own. Prefer [Open] unless the program
// must be isolated from the primary context: a context of its own has its own limits and
// is not reset with the primary context, but it takes a few hundred megabytes of device
// memory, work of several contexts does not run at the same time, and the runtime API and
// most libraries use the primary context. Memory of one context cannot be an argument of
// kernels of another one; copies between them work.
//
// [Context.Close] destroys the context, with everything that other code has made in it.
// Objects of this package keep it alive.
//
// Source: cuCtxCreate.
func NewContext(d Device) (*Context, error) { return NewContextWith(d, ContextOptions{}) }

// NewContextWith creates a context of the program's own with options: see [NewContext]. It returns
// driver.CUDA_ERROR_INVALID_VALUE if CUDA does not know the flags. Source: cuCtxCreate.
func NewContextWith(d Device, o ContextOptions) (*Context, error) {
	const op = "NewContext"
	if err := initialize(); err != nil {
		return nil, wrap(op, err)
	}
	if rt.InCallback() {
		return nil, &Error{Op: op, Err: ErrInCallback}
	}
	core := &contextCore{device: d, kind: createdContext}
	err := reclaiming(func() error {
		return inMode(op, CaptureRelaxed, func() error { return core.create(o.Flags) })
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return core.adopt(op)
}

// create creates the CUDA context, and restores the thread's current one. The goroutine
// is locked to its thread.
func (c *contextCore) create(flags driver.CUctx_flags) error {
	err := driver.CuCtxCreate_v4(&c.raw, nil, flags, c.device.raw)
	if errors.Is(err, ErrNotSupported) { // before CUDA 12.5
		err = driver.CuCtxCreate_v2(&c.raw, flags, c.device.raw)
	}
	if err != nil {
		return err
	}
	var top driver.CUcontext
	if err := driver.CuCtxPopCurrent(&top); err != nil {
		return errors.Join(err, driver.CuCtxDestroy(c.raw)) // which pops it, too
	}
	return nil
}

// destroyCreated destroys a context of NewContext, unless other code has done so: the
// handle may then belong to another context.
func (c *contextCore) destroyCreated() error {
	return inMode("Context.Close", CaptureRelaxed, func() error {
		var id uint64
		err := driver.CuCtxGetId(c.raw, &id)
		gone := err == driver.CUDA_ERROR_INVALID_CONTEXT || err == driver.CUDA_ERROR_CONTEXT_IS_DESTROYED || err == nil && id != c.id
		if c.id != 0 && gone {
			return nil
		}
		return driver.CuCtxDestroy(c.raw)
	})
}

// findPrimary finds out whether a borrowed context is its device's primary context, and keeps that from
// being reset until leavePrimary.
func (c *contextCore) findPrimary(op string) error {
	var flags driver.CUctx_flags
	var active int32
	if err := driver.CuDevicePrimaryCtxGetState(c.device.raw, &flags, &active); err != nil || active == 0 {
		return err
	}
	if err := c.device.usePrimary(op); err != nil {
		return err
	}
	var primary driver.CUcontext
	if err := driver.CuDevicePrimaryCtxRetain(&primary, c.device.raw); err != nil {
		c.device.leavePrimary()
		return err
	}
	var in error
	if primary == c.raw {
		if in = c.device.usePrimary(op); in == nil {
			c.kind = borrowedPrimary
		}
	}
	var last admit.Destruction // if others have released it since
	release := func() error {
		err := releasing(&last, false, func() error { return driver.CuDevicePrimaryCtxRelease(c.device.raw) })
		if !lifetime.Postponed(err) {
			c.device.leavePrimary()
		}
		return err
	}
	if err := release(); !lifetime.Postponed(err) {
		return errors.Join(in, err)
	}
	lifetime.Reaper.Add(func() (again bool) {
		err := release()
		if again = lifetime.Postponed(err); !again && err != nil {
			lifetime.Report(wrap("BorrowContext", err))
		}
		return again
	})
	return in
}

// resetPatience is how long a reset waits for what was closed. Tests set it.
var resetPatience = 5 * time.Second

// ResetPrimary destroys the device's primary context with everything in it, and the settings that need another context,
// such as its flags. The next [Open] makes another one. Other libraries in the process lose what they have created in
// it.
//
// Close everything of this package in the context first, its Contexts included: ResetPrimary returns [ErrInUse] and
// names an open object while there is one. It also returns ErrInUse if what was closed is not destroyed within five
// seconds, because work still uses it or a capture goes on, or because a host function runs, on any device: CUDA would
// wait for its end. It returns [ErrInCallback] on a thread of the driver, and driver.CUDA_ERROR_NOT_PERMITTED while
// other code has a green context of the device. Calls that open or release primary contexts wait meanwhile.
//
// Source: cuDevicePrimaryCtxReset.
func (d Device) ResetPrimary() error {
	const op = "Device.ResetPrimary"
	if err := initialize(); err != nil {
		return wrap(op, err)
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	for end := time.Now().Add(resetPatience); ; time.Sleep(lifetime.Retry) {
		if done, err := d.tryReset(); done {
			return wrap(op, err)
		}
		if kind := d.openInPrimary(); kind != "" {
			return refuse(op, ErrInUse, "close what is open in the primary context of %v: a %s, for instance", d, kind)
		}
		if time.Now().After(end) {
			return refuse(op, ErrInUse, "what was closed in the primary context of %v is still in use, or a host function runs: wait for them, and end captures", d)
		}
	}
}

// tryReset resets the device's primary context unless this package uses it.
func (d Device) tryReset() (done bool, err error) {
	primaries.Lock()
	defer primaries.Unlock()
	if primaries.users[d.raw] > 0 || hostFuncs.Load() > 0 {
		return false, nil
	}
	return true, executables.Exclusive(func() error {
		return hostWaits.With(0, func() error {
			return inMode("", CaptureRelaxed, func() error { return driver.CuDevicePrimaryCtxReset(d.raw) })
		})
	})
}

// primaries counts what uses the primary context of a device, and is locked while one is reset.
var primaries struct {
	admit.Leaf // guards users
	users      map[driver.CUdevice]int
}

// usePrimary keeps the device's primary context from being reset until leavePrimary.
func (d Device) usePrimary(op string) error {
	if err := lock(op, &primaries.Leaf); err != nil {
		return err
	}
	defer primaries.Unlock()
	if primaries.users == nil {
		primaries.users = map[driver.CUdevice]int{}
	}
	primaries.users[d.raw]++
	return nil
}

// leavePrimary ends a use. It may wait for a reset of any device, so the caller has no turn of executables.
func (d Device) leavePrimary() {
	primaries.Lock()
	defer primaries.Unlock()
	primaries.users[d.raw]--
}

// leavePrimary ends the use of the primary context, if c is one.
func (c *contextCore) leavePrimary() {
	if c.kind == retainedContext || c.kind == borrowedPrimary {
		c.device.leavePrimary()
	}
}

// openInPrimary returns the kind of an object that is open in the device's primary context, "" for none.
func (d Device) openInPrimary() string {
	states.Lock()
	defer states.Unlock()
	for _, s := range states.of {
		if !s.primary.Load() || s.device != d.raw {
			continue
		}
		for c := range s.contexts {
			if kind := c.OpenKind(); kind != "" {
				return kind
			}
		}
	}
	return ""
}
