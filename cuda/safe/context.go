package safe

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Context is a device's context: the home of streams, memory and modules.
// Any goroutine may use it, and contexts of several devices in any order; none
// has to be made current by the program, and what is current on a thread, for
// other libraries, stays.
type Context struct {
	core    *contextCore
	cleanup runtime.Cleanup
}

// contextCore is a context while anything needs it.
type contextCore struct {
	lifetime.Handle
	raw    driver.CUcontext
	id     uint64 // 0 where the driver does not tell
	device Device
	owner  any // of a borrowed context: kept alive
	shared *contextState

	left, last, emptied bool // while it is destroyed
	err                 error
	releases            destruction
}

// contextState is what all cores of one of CUDA's contexts share.
type contextState struct {
	raw      driver.CUcontext
	id       uint64
	cores    int
	events   eventPool
	copies   streamPool     // for synchronous copies
	releases streamPool     // for memory that is freed when its uses are over
	frees    lifetime.Queue // of what has the driver wait for the context's work
	tails    closedStreams

	device driver.CUdevice
	own    bool        // the primary context, of Open
	reset  atomic.Bool // by ResetPrimary: old handles must not get to the driver

	whole, legacy gate   // of Context.Synchronize, and of calls on the legacy stream
	legacyQueue   *queue // which all Streams of the legacy stream are

	mu      sync.Mutex
	streams map[*streamCore]struct{}
	peers   map[*contextState]struct{} // whose memory kernels here may reach
}

// Open retains the primary context of a device, which the runtime API and most
// libraries use too. Each Context that Open returns is closed on its own.
//
// The errors are those of [Devices], and driver.CUDA_ERROR_INVALID_DEVICE for
// an ordinal that no device has. Source: cuDevicePrimaryCtxRetain.
func Open(ordinal int) (*Context, error) {
	const op = "Open"
	d, err := device(ordinal)
	if err != nil {
		return nil, wrap(op, err)
	}
	core := &contextCore{device: d}
	if err := driver.CuDevicePrimaryCtxRetain(&core.raw, d.raw); err != nil {
		return nil, wrap(op, err)
	}
	return core.adopt(op)
}

// BorrowContext makes a context that somebody else has created usable here. It
// is never destroyed; owner, which may be nil, is kept alive until everything
// made in the context is closed. Source: cuCtxGetDevice.
func BorrowContext(raw driver.CUcontext, owner any) (*Context, error) {
	const op = "BorrowContext"
	if err := rt.Init(); err != nil {
		return nil, wrap(op, err)
	}
	if raw == 0 {
		return nil, refuse(op, driver.CUDA_ERROR_INVALID_CONTEXT, "the handle is 0")
	}
	if owner == nil {
		owner = raw
	}
	core := &contextCore{raw: raw, owner: owner}
	err := core.withCurrent(func() error { return driver.CuCtxGetDevice(&core.device.raw) })
	if err != nil {
		return nil, wrap(op, err)
	}
	devices, err := Devices()
	if err != nil {
		return nil, wrap(op, err)
	}
	for _, d := range devices {
		if d.raw == core.device.raw {
			core.device = d
		}
	}
	return core.adopt(op)
}

// adopt makes a Context of a core whose context is held already.
func (c *contextCore) adopt(op string) (*Context, error) {
	if err := driver.CuCtxGetId(c.raw, &c.id); err != nil && !errors.Is(err, ErrNotSupported) {
		return nil, errors.Join(wrap(op, err), c.letGo())
	}
	c.shared = c.shareState()
	if err := c.Open(c, nil); err != nil {
		return nil, wrap(op, err)
	}
	x := &Context{core: c}
	x.cleanup = lifetime.Cleanup(x, &c.Handle)
	return x, nil
}

// same tells whether two are the same context of CUDA's: after a reset there is
// another one with the same handle.
func (c *contextCore) same(o *contextCore) bool { return c.shared == o.shared }

func (c *contextCore) Kind() string { return "Context" }

func (c *contextCore) Destroy(wait bool) error {
	if !c.left {
		c.left, c.last = true, c.shared.leave()
	}
	// The context may outlive ours, and so the work of streams that are closed.
	if c.last && !c.shared.tails.over() {
		return lifetime.ErrLater
	}
	if !wait {
		return &lifetime.Elsewhere{Queue: &c.shared.frees}
	}
	if c.last && !c.emptied {
		c.emptied = true
		c.err = c.destroying("Context.Close", func() error { return c.shared.empty() })
	}
	err := c.releases.try(c.letGo)
	if err == lifetime.ErrLater {
		return err
	}
	return errors.Join(c.err, wrap("Context.Close", err))
}

// letGo gives the context back.
func (c *contextCore) letGo() error {
	if c.owner != nil {
		c.owner = nil
		return nil
	}
	return driver.CuDevicePrimaryCtxRelease(c.device.raw)
}

// states has the state of every context that is in use.
var states struct {
	sync.Mutex
	of map[driver.CUcontext]*contextState
}

// shareState finds the state of a context, or makes it. A context that was
// reset has another id.
func (c *contextCore) shareState() *contextState {
	states.Lock()
	defer states.Unlock()
	s := states.of[c.raw]
	if s == nil || s.id != c.id || s.reset.Load() {
		s = &contextState{raw: c.raw, id: c.id, legacyQueue: newQueue(), streams: map[*streamCore]struct{}{}, peers: map[*contextState]struct{}{}}
		if states.of == nil {
			states.of = map[driver.CUcontext]*contextState{}
		}
		states.of[c.raw] = s
	}
	s.device, s.own = c.device.raw, s.own || c.owner == nil
	s.cores++
	return s
}

// leave tells whether nobody uses the state any more.
func (s *contextState) leave() (last bool) {
	states.Lock()
	defer states.Unlock()
	if s.cores--; s.cores > 0 {
		return false
	}
	if states.of[s.raw] == s {
		delete(states.of, s.raw)
	}
	for _, o := range states.of { // CUDA forgets as well
		o.mu.Lock()
		delete(o.peers, s)
		o.mu.Unlock()
	}
	return true
}

// empty destroys what the layer made for itself. The context is current.
func (s *contextState) empty() error {
	return errors.Join(s.copies.empty(), s.releases.empty(), s.events.empty())
}

// acquire marks the context for a call.
func (x *Context) acquire(op string) (*contextCore, error) {
	if x == nil || x.core == nil || !x.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return x.core, nil
}

// do calls f with the context current and marked.
func (x *Context) do(op string, f func() error) error {
	c, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.withCurrent(f))
}

// Close gives the context back. Streams, memory and modules that are still open
// keep working; the context goes with the last of them. Closing again does
// nothing. Source: cuDevicePrimaryCtxRelease.
func (x *Context) Close() error {
	if x == nil || x.core == nil {
		return nil
	}
	x.cleanup.Stop()
	return x.core.Close()
}

// Raw is the context for calls of package driver and for other libraries. It is 0
// once the context is closed.
func (x *Context) Raw() driver.CUcontext {
	if x == nil || x.core == nil || x.core.Closed() {
		return 0
	}
	return x.core.raw
}

// Device is the GPU the context is for.
func (x *Context) Device() Device {
	if x == nil || x.core == nil {
		return Device{}
	}
	return x.core.device
}

// Do calls f on a thread where the context is current, for calls of package
// driver and of other libraries that want that. The goroutine stays on its
// thread during f, and afterwards what was current before is current again, also if f
// panics. The capture mode of the thread is left alone.
//
// Source: cuCtxGetCurrent, cuCtxSetCurrent.
func (x *Context) WithCurrent(f func() error) error {
	const op = "Context.WithCurrent"
	c, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	var from error // f's own errors are not ours to name
	err = c.withCurrentMode(false, func() error {
		from = f()
		return nil
	})
	if err != nil {
		return wrap(op, err)
	}
	return from
}

// contextOf returns the context of a stream. A stream of a green context belongs to the
// primary context, too: contextOf returns c if either is c.
func (c *contextCore) contextOf(raw driver.CUstream) (driver.CUcontext, error) {
	var of, primary driver.CUcontext
	if err := driver.CuStreamGetCtx(raw, &of); err != nil || of == c.raw {
		return of, err
	}
	var green driver.CUgreenCtx
	err := driver.CuStreamGetCtx_v2(raw, &primary, &green)
	if errors.Is(err, ErrNotSupported) { // before CUDA 12.5
		return of, nil
	}
	return primary, err
}

// A greenCore is a green context: a context with a part of the multiprocessors.
type greenCore struct {
	lifetime.Handle
	ctx  *contextCore
	gate gate       // of calls that see the captures of all its streams
	mu   sync.Mutex // CUDA wants the handle to be used by one thread at a time
	raw  driver.CUgreenCtx
}
