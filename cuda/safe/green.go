package safe

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// GreenContext is a part of a device's multiprocessors with streams of its own:
// their kernels run on no others. Memory, modules and events are those of the
// device's context, and all work of this package with them can be put on its
// streams. Any number of goroutines may use a green context at once.
//
// That two have no multiprocessor in common does not promise that their kernels
// run at the same time: memory, caches and the queues of the device are shared.
type GreenContext struct {
	core    *greenCore
	cleanup runtime.Cleanup
}

// NewGreenContext makes a green context of parts of x's device: several must be of
// one split, else the error is [ErrInvalidArgument]. x
// must be the primary context, as that of [Open] is, else it is [ErrContextMismatch], and so
// are multiprocessors of another device. It is kept alive.
//
// CUDA keeps a description of the parts as long as the process lives, so that green
// contexts are better kept than made again and again. It needs a driver of CUDA
// 12.4. Source: cuDevResourceGenerateDesc, cuGreenCtxCreate.
func NewGreenContext(x *Context, parts ...SMResource) (*GreenContext, error) {
	const op = "NewGreenContext"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	resources, err := c.device.resources(op, parts)
	if err != nil {
		return nil, err
	}
	g := &greenCore{ctx: c}
	err = c.withCurrent(func() error {
		if err := c.primary(op); err != nil {
			return err
		}
		var desc driver.CUdevResourceDesc
		if err := driver.CuDevResourceGenerateDesc(&desc, &resources[0], uint32(len(resources))); err != nil {
			return err
		}
		return driver.CuGreenCtxCreate(&g.raw, desc, c.device.raw, uint32(driver.CU_GREEN_CTX_DEFAULT_STREAM))
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	if err := g.Open(g, &c.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, g.Destroy(true)))
	}
	u := &GreenContext{core: g}
	u.cleanup = lifetime.Cleanup(u, &g.Handle)
	return u, nil
}

// resources are those of the parts, which must be of d.
func (d Device) resources(op string, parts []SMResource) ([]driver.CUdevResource, error) {
	if len(parts) == 0 {
		return nil, refuse(op, ErrInvalidArgument, "without multiprocessors")
	}
	resources := make([]driver.CUdevResource, len(parts))
	for i, m := range parts {
		if m.Count() == 0 {
			return nil, refuse(op, ErrInvalidArgument, "part %d has no multiprocessors", i)
		}
		if m.cut != parts[0].cut {
			return nil, refuse(op, ErrInvalidArgument, "part %d is of another split than part 0", i)
		}
		if m.device.raw != d.raw {
			return nil, refuse(op, ErrContextMismatch, "%v, and the context is of %v", m, d)
		}
		resources[i] = m.raw
	}
	return resources, nil
}

// primary refuses a context that is not its device's primary one.
func (c *contextCore) primary(op string) error {
	if c.owner == nil {
		return nil // of Open
	}
	var raw driver.CUcontext
	err := driver.CuDevicePrimaryCtxRetain(&raw, c.device.raw)
	if err == nil {
		err = driver.CuDevicePrimaryCtxRelease(c.device.raw)
	}
	if err == nil && raw != c.raw {
		err = refuse(op, ErrContextMismatch, "%#x is not the primary context of %v", uintptr(c.raw), c.device)
	}
	return err
}

func (g *greenCore) Kind() string { return "GreenContext" }

func (g *greenCore) Destroy(bool) error {
	return g.ctx.destroying("GreenContext.Close", func() error { return driver.CuGreenCtxDestroy(g.raw) })
}

// acquire marks the green context for a call.
func (g *GreenContext) acquire(op string) (*greenCore, error) {
	if g == nil || g.core == nil || !g.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return g.core, nil
}

// in calls f, which uses the handle, with the context current.
func (g *greenCore) withCurrent(f func() error) error {
	return g.ctx.withCurrent(func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		return f()
	})
}

// do is in for a method.
func (g *GreenContext) do(op string, f func(c *greenCore) error) error {
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.withCurrent(func() error { return f(c) }))
}

// Close gives the multiprocessors back. Streams that are open keep working, and so
// do graphs with work that was captured on them; the green context goes with the
// last of them. Closing again does nothing. Source: cuGreenCtxDestroy.
func (g *GreenContext) Close() error {
	if g == nil || g.core == nil {
		return nil
	}
	g.cleanup.Stop()
	return g.core.Close()
}

// Raw is the green context for calls of package driver, which must not use it on
// two threads at once. It is 0 once the green context is closed; keep g
// reachable meanwhile.
func (g *GreenContext) Raw() driver.CUgreenCtx {
	if g == nil || g.core == nil || g.core.Closed() {
		return 0
	}
	return g.core.raw
}

// Device is the GPU of the green context.
func (g *GreenContext) Device() Device {
	if g == nil || g.core == nil {
		return Device{}
	}
	return g.core.ctx.device
}

// ID is unique to the green context in this process. Source: cuGreenCtxGetId;
// before CUDA 13.0 cuCtxFromGreenCtx and cuCtxGetId.
func (g *GreenContext) ID() (uint64, error) {
	var id uint64
	err := g.do("GreenContext.ID", func(c *greenCore) error {
		err := driver.CuGreenCtxGetId(c.raw, &id)
		if errors.Is(err, ErrNotSupported) {
			var x driver.CUcontext
			if err = driver.CuCtxFromGreenCtx(&x, c.raw); err == nil {
				err = driver.CuCtxGetId(x, &id)
			}
		}
		return err
	})
	return id, err
}

// SMs are the multiprocessors of the green context, which may be split further.
// Source: cuGreenCtxGetDevResource.
func (g *GreenContext) SMResource() (SMResource, error) {
	m := SMResource{device: g.Device()}
	err := g.do("GreenContext.SMResource", func(c *greenCore) error {
		return driver.CuGreenCtxGetDevResource(c.raw, &m.raw, driver.CU_DEV_RESOURCE_TYPE_SM)
	})
	return m, err
}

// NewStream makes a stream whose kernels run on the multiprocessors of the green
// context. It must be NonBlocking, else the error is [ErrInvalidArgument]; CUDA makes no
// others here. A priority outside of [Context.StreamPriorityRange] is [ErrRange].
// Source: cuGreenCtxStreamCreate; before CUDA 12.5 cuCtxFromGreenCtx and
// cuStreamCreateWithPriority.
func (g *GreenContext) NewStream(o StreamOptions) (*Stream, error) {
	const op = "GreenContext.NewStream"
	c, err := g.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if !o.NonBlocking {
		return nil, refuse(op, ErrInvalidArgument, "streams of a green context must be NonBlocking")
	}
	s := &streamCore{queue: newQueue(), ctx: c.ctx, green: c, callContext: c.ctx.handleContext(), owned: true, nonBlocking: true}
	err = c.withCurrent(func() error {
		if err := s.choosePriority(op, o); err != nil {
			return err
		}
		const flags = uint32(driver.CU_STREAM_NON_BLOCKING)
		err := driver.CuGreenCtxStreamCreate(&s.raw, c.raw, flags, int32(s.priority))
		if errors.Is(err, ErrNotSupported) {
			var x driver.CUcontext
			if err = errors.Join(driver.CuCtxFromGreenCtx(&x, c.raw), driver.CuCtxSetCurrent(x)); err == nil {
				err = driver.CuStreamCreateWithPriority(&s.raw, flags, int32(s.priority))
			}
		}
		return err
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return s.adopt(op)
}

// GreenContext is the green context that the stream is of, as [GreenContext.Raw]
// is, and 0 if it is of none. The legacy default stream is [ErrCapturing] while it
// would disturb a capture. It needs a driver of CUDA 12.4.
// Source: cuStreamGetGreenCtx.
func (s *Stream) GreenContext() (driver.CUgreenCtx, error) {
	const op = "Stream.GreenContext"
	var raw driver.CUgreenCtx
	err := s.with(op, func(c *streamCore) error {
		if c.legacy() && c.capturing() {
			return &Error{Op: op, Err: ErrCapturing}
		}
		return driver.CuStreamGetGreenCtx(c.raw, &raw)
	})
	return raw, err
}

// Record makes e stand for the work that is on all streams of the green context
// now. e must be of the context that the green context is of, else the error is
// [ErrContextMismatch]. While one of the streams captures it is [ErrCapturing].
// Source: cuGreenCtxRecordEvent.
func (g *GreenContext) Record(e *Event) error {
	const op = "GreenContext.Record"
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer v.Release()
	return g.do(op, func(c *greenCore) error {
		if !v.ctx.same(c.ctx) {
			return refuse(op, ErrContextMismatch, "the event is of %v, the green context of %v", v.ctx.device, c.ctx.device)
		}
		if v.gate.enter() {
			defer v.gate.leave()
			v.recorded.Store(true)
			return c.record(op, v.raw)
		}
		return v.exclude(op, nil, func() error {
			err := c.record(op, v.raw)
			if err == nil {
				v.setCaptured(false, nil)
			}
			return err
		})
	})
}

// record records an event. The context is current.
func (g *greenCore) record(op string, e driver.CUevent) error {
	return g.uncaptured(op, func() error { return driver.CuGreenCtxRecordEvent(g.raw, e) })
}

// WaitEvent makes what is put on any stream of the green context from now on wait
// for the work that e stands for now: see [Stream.WaitEvent]. While one of the
// streams captures, or where e was recorded on a stream that captures, the error
// is [ErrCapturing]. Source: cuGreenCtxWaitEvent.
func (g *GreenContext) WaitEvent(e *Event) error {
	const op = "GreenContext.WaitEvent"
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer v.Release()
	return g.do(op, func(c *greenCore) error {
		if !v.enter() {
			return refuse(op, ErrCapturing, "the event was last recorded in a capture")
		}
		defer v.gate.leave()
		return c.uncaptured(op, func() error { return driver.CuGreenCtxWaitEvent(c.raw, v.raw) })
	})
}

// uncaptured calls f, which no capture of a stream of the green context would
// survive, unless there is one. None begins meanwhile.
func (g *greenCore) uncaptured(op string, f func() error) error {
	captures := !g.gate.enter()
	if !captures {
		defer g.gate.leave()
	}
	for _, s := range g.ctx.shared.live() { // captures that this package did not begin
		if s.green == g && !captures && s.Acquire() {
			captures = s.capturing()
			s.Release()
		}
	}
	if captures {
		return refuse(op, ErrCapturing, "a stream of the green context captures")
	}
	return f()
}

// Wait waits until the work that is on all streams of the green context now is
// done: see [Stream.Wait]. While one of the streams captures the error is
// [ErrCapturing]. Source: cuGreenCtxRecordEvent, cuEventQuery.
func (g *GreenContext) Wait(ctx context.Context) error {
	const op = "GreenContext.Wait"
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	w, done, err := c.waiter(op)
	c.Release()
	if done {
		return err
	}
	return w.wait(ctx, op)
}

// Synchronize is [GreenContext.Wait] without end.
func (g *GreenContext) Synchronize() error { return g.Wait(context.Background()) }

// waiter marks the end of the work of all streams. done tells that there is nothing
// to wait for, because of err or because the work is over.
func (g *greenCore) waiter(op string) (w *waiter, done bool, err error) {
	x := g.ctx
	e, end, err := x.event()
	if err != nil {
		return nil, true, wrap(op, err)
	}
	from := time.Now()
	if err = g.withCurrent(func() error { return g.record(op, e) }); err == nil {
		code := spins(func(spin int64) driver.CUresult { return rt.EventQuery(x.handleContext(), e, spin) })
		if code == driver.CUDA_ERROR_NOT_READY {
			return &waiter{home: x.home(), event: e, queue: g, from: from, to: time.Now(), end: end}, false, nil
		}
		err = check(op, code)
	}
	end()
	return nil, true, wrap(op, err)
}

// keepsGreen keeps the green context of s, on which what is captured from s will
// run. The graph is locked, and s marked.
func (c *capturing) retainsGreen(s *streamCore) {
	if g := s.green; g != nil {
		c.graph.kept.captured.retain(&g.Handle, g.TryRetain)
	}
}
