package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Record captures the current work of all streams of the green context in e: e completes
// when that work has. It returns [ErrContextMismatch] if e belongs to another primary
// context than g, and [ErrCapturing] while one of the streams is capturing. With an event that takes
// the time, Record waits while 48 such records are pending. Source: cuGreenCtxRecordEvent.
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
		if full = !g.hasRoom(e.work()); full {
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
