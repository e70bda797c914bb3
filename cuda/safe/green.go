package safe

import (
	"context"
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// GreenContext is a context with some of a device's multiprocessors: kernels on its
// streams run on no others. Memory, modules and events belong to the device's primary
// context, and all of them work on the streams of its green contexts. Any number of
// goroutines may use a green context at once.
//
// Kernels of two green contexts need not run at the same time even if they share no
// multiprocessor: they share memory, caches and hardware queues.
type GreenContext struct {
	core    *greenCore
	cleanup lifetime.Cleanup
}

// NewGreenContext creates a green context with the multiprocessors of parts. x must be
// the primary context, as [Open] returns it; the green context keeps it alive. All parts
// must come from one split. NewGreenContext returns [ErrInvalidArgument] if they do not,
// or if one has no multiprocessors, and [ErrContextMismatch] if a part belongs to another
// device, or if x is not the primary context.
//
// CUDA waits for all work of the primary context, and starts no work that streams of the
// context enqueue meanwhile. So create green contexts before that work.
//
// CUDA retains a description of the parts until the process exits, so reuse green
// contexts instead of creating them repeatedly. It returns [ErrNotSupported] with a
// driver before CUDA 12.4. Source: cuDevResourceGenerateDesc, cuGreenCtxCreate.
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
	err = c.allocating(func() error {
		if err := c.primary(op); err != nil {
			return err
		}
		var desc driver.CUdevResourceDesc
		if err := driver.CuDevResourceGenerateDesc(&desc, &resources[0], uint32(len(resources))); err != nil {
			return err
		}
		err := hostWaits.With(0, func() error { // for the primary context's work
			return greenThread().do(func() error {
				return c.withCurrent(func() error {
					return driver.CuGreenCtxCreate(&g.raw, desc, c.device.raw, driver.CU_GREEN_CTX_DEFAULT_STREAM)
				})
			})
		})
		if err != nil {
			return err
		}
		c.shared.mu.Lock()
		defer c.shared.mu.Unlock()
		c.shared.greens[g.raw] = g
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	if err := g.Open(g, &c.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, g.Destroy(true)))
	}
	u := &GreenContext{core: g}
	u.cleanup.Watch(&g.Handle)
	return u, nil
}

// resources returns the parts in CUDA's form. They must belong to d.
func (d Device) resources(op string, parts []SMResource) ([]driver.CUdevResource, error) {
	if len(parts) == 0 {
		return nil, refuse(op, ErrInvalidArgument, "a green context needs multiprocessors: see Device.Split")
	}
	resources := make([]driver.CUdevResource, len(parts))
	for i, m := range parts {
		if m.Count() == 0 {
			return nil, refuse(op, ErrInvalidArgument, "part %d has no multiprocessors", i)
		}
		if m.cut != parts[0].cut {
			return nil, refuse(op, ErrInvalidArgument, "part %d comes from another split than part 0", i)
		}
		if m.device.raw != d.raw {
			return nil, refuse(op, ErrContextMismatch, "%v cannot be used in a context of %v", m, d)
		}
		resources[i] = m.raw
	}
	return resources, nil
}

// primary returns an error if c is not its device's primary context.
func (c *contextCore) primary(op string) error {
	if c.shared.primary.Load() {
		return nil
	}
	return refuse(op, ErrContextMismatch, "%#x is not the primary context of %v", uintptr(c.raw), c.device)
}

func (g *greenCore) Kind() string { return "GreenContext" }

func (g *greenCore) Destroy(bool) error {
	if g.mark != 0 {
		g.ctx.shared.events.put(g.mark)
		g.mark = 0
	}
	err := greenThread().do(func() error {
		return g.ctx.destroying("GreenContext.Close", func() error { return driver.CuGreenCtxDestroy(g.raw) })
	})
	shared := g.ctx.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.greens[g.raw] == g { // CUDA may have reused the handle
		delete(shared.greens, g.raw)
	}
	return err
}

// acquire acquires the green context for a call.
func (g *GreenContext) acquire(op string) (*greenCore, error) {
	if g == nil || g.core == nil || !g.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return g.core, nil
}

// withCurrent calls f, which uses the handle, with the context current.
func (g *greenCore) withCurrent(f func() error) error {
	return g.ctx.withCurrent(func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		return f()
	})
}

// do acquires the green context and calls withCurrent.
func (g *GreenContext) do(op string, f func(c *greenCore) error) error {
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.withCurrent(func() error { return f(c) }))
}

// Close releases the multiprocessors. Open streams keep working, and so do graphs of work
// captured on them; the green context is destroyed after the last of them. Closing again
// does nothing. Source: cuGreenCtxDestroy.
func (g *GreenContext) Close() error {
	if g == nil || g.core == nil {
		return nil
	}
	g.cleanup.Stop()
	return g.core.Close()
}

// Raw returns the handle for calls to package driver, of which only one at a time may use
// it. It returns 0 once the green context is closed. Keep g reachable while the handle is
// in use.
func (g *GreenContext) Raw() driver.CUgreenCtx {
	if g == nil || g.core == nil || g.core.Closed() {
		return 0
	}
	return g.core.raw
}

// SMResource returns the multiprocessors of the green context, which can be split
// further. Source: cuGreenCtxGetDevResource.
func (g *GreenContext) SMResource() (SMResource, error) {
	var m SMResource
	err := g.do("GreenContext.SMResource", func(c *greenCore) error {
		m.device = c.ctx.device
		return driver.CuGreenCtxGetDevResource(c.raw, &m.raw, driver.CU_DEV_RESOURCE_TYPE_SM)
	})
	return m, err
}

// NewStream creates a non-blocking stream whose kernels run on the multiprocessors of the green
// context. Source: cuGreenCtxStreamCreate; before CUDA 12.5 cuCtxFromGreenCtx and
// cuStreamCreateWithPriority.
func (g *GreenContext) NewStream() (*Stream, error) {
	return g.NewStreamWith(StreamOptions{NonBlocking: true})
}

// NewStreamWith creates a stream with options: see [GreenContext.NewStream]. It returns [ErrInvalidArgument] unless
// o.NonBlocking is set: CUDA has no others here. It returns [ErrRange] if o.Priority is outside the context's range and
// o.ClampPriority is not set.
func (g *GreenContext) NewStreamWith(o StreamOptions) (*Stream, error) {
	const op = "GreenContext.NewStream"
	c, err := g.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if !o.NonBlocking {
		return nil, refuse(op, ErrInvalidArgument, "streams of a green context must be NonBlocking")
	}
	s, err := c.newStream(op, o)
	if err != nil {
		return nil, err
	}
	return s.adopt(op)
}

// newStream creates a non-blocking stream. The caller has acquired the green context.
func (c *greenCore) newStream(op string, o StreamOptions) (*streamCore, error) {
	c.ctx.shared.crowd.room()
	s := &streamCore{queue: newQueue(), ctx: c.ctx, green: c, onGreen: true, callContext: c.ctx.handleContext(), owned: true, nonBlocking: true}
	if err := s.choosePriority(op, o); err != nil {
		return nil, wrap(op, err)
	}
	err := reclaiming(func() error {
		return c.withCurrent(func() error { return c.createStream(s) })
	})
	return s, wrap(op, err)
}

// createStream is cuGreenCtxStreamCreate, with the green context current.
func (c *greenCore) createStream(s *streamCore) error {
	const flags = driver.CU_STREAM_NON_BLOCKING
	err := driver.CuGreenCtxStreamCreate(&s.raw, c.raw, flags, int32(s.priority))
	if errors.Is(err, ErrNotSupported) {
		var x driver.CUcontext
		if err = errors.Join(driver.CuCtxFromGreenCtx(&x, c.raw), driver.CuCtxSetCurrent(x)); err == nil {
			err = driver.CuStreamCreateWithPriority(&s.raw, flags, int32(s.priority))
		}
	}
	return err
}

// GreenContext returns the green context of the stream, as [GreenContext.Raw] does, or 0
// if it has none. It returns [ErrCapturing] for the legacy default stream while a
// blocking stream is capturing, and [ErrNotSupported] with a driver before CUDA 12.4.
// Source: cuStreamGetGreenCtx.
func (s *Stream) GreenContext() (driver.CUgreenCtx, error) {
	const op = "Stream.GreenContext"
	var raw driver.CUgreenCtx
	err := s.with(op, func(c *streamCore) error {
		return driver.CuStreamGetGreenCtx(c.raw, &raw)
	})
	return raw, err
}

// Wait waits until the current work of all streams of the green context has completed:
// see [Stream.Wait]. It returns [ErrCapturing] while one of the streams is capturing.
// Source: cuGreenCtxRecordEvent, cuEventQuery.
func (g *GreenContext) Wait(ctx context.Context) error { return g.wait(ctx, "GreenContext.Wait") }

func (g *GreenContext) wait(ctx context.Context, op string) error {
	if ctx == nil {
		return noContext(op)
	}
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

// Synchronize waits until the current work of all streams of the green context has completed, without a deadline: see
// [GreenContext.Wait].
func (g *GreenContext) Synchronize() error {
	return g.wait(context.Background(), "GreenContext.Synchronize")
}

// waiter records an event after the current work of all streams. If done is set, there is
// nothing to wait for: err says why, or the work has completed.
func (g *greenCore) waiter(op string) (w *waiter, done bool, err error) {
	x := g.ctx
	e, end, err := x.event()
	if err != nil {
		return nil, true, wrap(op, err)
	}
	if err = g.withCurrent(func() error { return g.record(op, e) }); err == nil {
		code := x.eventSoon(x.handleContext(), e)
		if code == driver.CUDA_ERROR_NOT_READY {
			// Waits may come in another order than their records: there is no queue.
			return &waiter{home: x.home(), event: e, end: end}, false, nil
		}
		err = check(op, code)
	}
	end()
	return nil, true, wrap(op, err)
}

// String describes the green context for messages.
func (g *GreenContext) String() string {
	if g == nil || g.core == nil {
		return neverOpened("GreenContext")
	}
	return handleText("GreenContext", g.core.raw, g.core.ctx.device, g.core.Closed())
}

// Record records e after the current work of all streams of the green context: e completes when that work has
// completed. It returns [ErrContextMismatch] if e belongs to another primary context than g, and [ErrCapturing] while
// one of the streams is capturing. If e was created with timing, Record blocks while 48 such records are pending.
// Source: cuGreenCtxRecordEvent.
func (g *GreenContext) Record(e *Event) error {
	const op = "GreenContext.Record"
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer v.Release()
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if !v.ctx.same(c.ctx) {
		return refuse(op, ErrContextMismatch, "the event belongs to a context of %v, the green context to one of %v", v.ctx.device, c.ctx.device)
	}
	for nap := admit.ShortNap; ; nap = nap.Take() {
		var full bool
		err := c.withCurrent(func() (err error) {
			if v.gate.Enter() {
				defer v.gate.Leave()
				full, err = c.recordInRoom(op, v)
				return err
			}
			return v.exclude(op, nil, func() error {
				full, err = c.recordInRoom(op, v)
				if err == nil && !full {
					v.setCaptured(false, nil)
				}
				return err
			})
		})
		if !full {
			return wrap(op, err)
		}
	}
}

// record records an event that takes no time. The context must be current.
func (g *greenCore) record(op string, e driver.CUevent) error {
	return g.uncaptured(op, func() error { return driver.CuGreenCtxRecordEvent(g.raw, e) })
}

// recordInRoom records the event, whether it takes the time or not. It returns full, and records nothing, if that
// would have to wait for room in the queues of the streams.
func (g *greenCore) recordInRoom(op string, e *eventCore) (full bool, err error) {
	err = g.uncaptured(op, func() error {
		if full = !g.hasRoom(e.places()); full {
			return nil
		}
		e.recorded.Store(true)
		return driver.CuGreenCtxRecordEvent(g.raw, e.raw)
	})
	return full, err
}

// greenRoom is how many records that take the time may be pending: each has a place in the queues of all
// streams of the green context, beside queueRoom.
const greenRoom = 48

// hasRoom counts the work of a record, if there is room for it. A mark is recorded after each half of
// greenRoom: it does not take the time, so that it needs no place. Work after which it cannot be set, for
// instance because memory is exhausted, is no longer counted.
func (g *greenCore) hasRoom(work int) bool {
	if g.recent+work <= greenRoom/2 {
		g.recent += work
		return true
	}
	pool := &g.ctx.shared.events
	if g.mark != 0 {
		if rt.EventQuery(g.ctx.raw, g.mark, 0) == driver.CUDA_ERROR_NOT_READY {
			return false
		}
		pool.put(g.mark)
		g.mark = 0
	}
	g.recent = work
	mark, err := pool.get(g.ctx)
	switch {
	case err != nil:
	case driver.CuGreenCtxRecordEvent(g.raw, mark) == nil:
		g.mark = mark
	default:
		pool.put(mark)
	}
	return true
}

// WaitEvent makes later work of all streams of the green context wait for the latest
// record of e: see [Stream.WaitEvent]. It returns [ErrCapturing] while one of the streams
// is capturing, or if e was last recorded in a capture. Source: cuGreenCtxWaitEvent.
func (g *GreenContext) WaitEvent(e *Event) error {
	const op = "GreenContext.WaitEvent"
	v, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer v.Release()
	return g.do(op, func(c *greenCore) error {
		if !v.enter() {
			return lastCaptured(op, "the event")
		}
		defer v.gate.Leave()
		return c.uncaptured(op, func() error { return driver.CuGreenCtxWaitEvent(c.raw, v.raw) })
	})
}

// uncaptured calls f, which would invalidate captures on streams of the green context, if
// there is none. No capture begins meanwhile.
func (g *greenCore) uncaptured(op string, f func() error) error {
	captures := !g.gate.Enter()
	if !captures {
		defer g.gate.Leave()
	}
	for _, s := range g.ctx.shared.liveOf(g) { // some may be in captures that this package did not begin
		captures = captures || s.look()
	}
	if captures {
		return refuse(op, ErrCapturing, "a stream of the green context is capturing")
	}
	return f()
}

// SMResource is a set of multiprocessors of a device: all of them, or a part for a
// [GreenContext]. It is a plain value that reserves nothing and needs no Close. The zero
// value has no multiprocessors.
type SMResource struct {
	device Device
	raw    driver.CUdevResource
	cut    uint64 // number of the split that made it, 0 for none
}

// Count returns the number of multiprocessors.
func (m SMResource) Count() int {
	if m.raw.Type != driver.CU_DEV_RESOURCE_TYPE_SM {
		return 0
	}
	return int(m.raw.Sm().SmCount)
}
