package safe

import (
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// ResetPrimary destroys the device's primary context with everything in it, and the settings that need
// another context, such as its flags. The next [Open] makes another one. Other libraries in the process,
// which use the primary context too, lose what they have made in it.
//
// Close everything of this package in the context first, its Contexts included: ResetPrimary returns
// [ErrInUse] and names an open object while there is one. It also returns ErrInUse if what was closed is
// not destroyed within five seconds, because work still uses it or a capture goes on, or if a host
// function runs meanwhile, of any device: CUDA would wait for its end. It returns
// [ErrInCallback] on a thread of the driver, and driver.CUDA_ERROR_NOT_PERMITTED while other code has a
// green context of the device. Calls that open or release primary contexts wait meanwhile.
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
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(lifetime.Retry) {
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
	sync.Mutex
	users map[driver.CUdevice]int
}

// usePrimary keeps the device's primary context from being reset until leavePrimary.
func (d Device) usePrimary(op string) error {
	if err := lock(op, &primaries.Mutex); err != nil {
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
