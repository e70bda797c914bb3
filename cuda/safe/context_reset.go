package safe

import (
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// ResetPrimary destroys everything in the device's primary context in this process:
// streams, memory and modules, including those of other libraries. Objects of this
// package that were made in the context then return [ErrReset], and closing them does
// nothing. Contexts opened afterwards are new.
//
// ResetPrimary waits for calls in flight on streams and executables of this package, and
// for pending destruction of closed or dropped objects. It returns [ErrCapturing] while a
// stream of the device is capturing. Nothing else may be in flight in the context: CUDA
// crashes if an allocation, or a call of package driver or of another library, coincides
// with a reset. For the same reason, close every object before you reset the context by
// other means. Source: cuDevicePrimaryCtxReset.
func (d Device) ResetPrimary() error {
	const op = "Device.ResetPrimary"
	if err := rt.Init(); err != nil {
		return wrap(op, err)
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	lifetime.Paused.Lock()
	defer lifetime.Paused.Unlock()
	queues := d.queues()
	for q := range queues {
		q.mu.second().Lock()
		defer q.mu.Unlock()
	}
	for q := range queues {
		if q.capture.Load() != nil {
			return refuse(op, ErrCapturing, "a stream of %v is capturing", d)
		}
	}
	d.noteReset()
	var err error
	for !executables.alone(lastWindow, func() { err = driver.CuDevicePrimaryCtxReset(d.raw) }) {
		time.Sleep(windowShare * lastWindow)
	}
	return wrap(op, err)
}

// noteReset makes calls on objects in the primary context return ErrReset.
func (d Device) noteReset() {
	states.Lock()
	defer states.Unlock()
	for _, s := range states.of {
		if s.own && s.device == d.raw {
			s.reset.Store(true)
		}
	}
}

// queues returns the queues of all streams in the device's primary context.
func (d Device) queues() map[*queue]struct{} {
	states.Lock()
	defer states.Unlock()
	all := map[*queue]struct{}{}
	for _, s := range states.of {
		for _, c := range s.live() {
			if c.ctx.device.raw == d.raw && c.ctx.owner == nil {
				all[c.queue] = struct{}{}
			}
		}
	}
	return all
}
