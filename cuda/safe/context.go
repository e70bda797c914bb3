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

// Context is a context of a device: it holds streams, memory and modules. Any goroutine
// may use it. Programs need not make it current, and may use contexts of several devices
// in any order. Calls leave the thread's current context, which other libraries may
// depend on, as it was.
type Context struct {
	core    *contextCore
	cleanup runtime.Cleanup
}

// contextCore is the state of a Context. It lives until the last object in the context is
// destroyed.
type contextCore struct {
	lifetime.Handle
	raw    driver.CUcontext
	id     uint64 // 0 with a driver before CUDA 12.0
	device Device
	owner  any // of a borrowed context: stays reachable
	shared *contextState

	left, last, emptied bool // progress of Destroy
	err                 error
	releases            destruction
}

// contextState is shared by all contextCores of one CUDA context.
type contextState struct {
	raw      driver.CUcontext
	id       uint64
	cores    int
	events   eventPool
	copies   streamPool     // for synchronous copies
	releases streamPool     // for memory that is freed once its uses have completed
	frees    lifetime.Queue // frees that make the driver wait for the context's work
	closed   closedStreams
	crowd    crowd

	device driver.CUdevice
	own    bool        // the primary context, of Open
	reset  atomic.Bool // by ResetPrimary: old handles must not reach the driver
	asking queries     // that are in flight

	whole, legacy gate   // for Context.Synchronize, and for calls on the legacy stream
	legacyQueue   *queue // shared by all Streams of the legacy stream

	mu      sync.Mutex
	streams map[*streamCore]struct{}
	peers   map[*contextState]struct{} // their memory is accessible to kernels here
}

// Open retains the primary context of a device, which the runtime API and most libraries
// use too. Close each Context that Open returns.
//
// The errors are those of [Devices]. Open returns driver.CUDA_ERROR_INVALID_DEVICE if no
// device has the ordinal. Source: cuDevicePrimaryCtxRetain.
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

// BorrowContext makes a context that was created elsewhere usable with this package, and
// never destroys it. owner may be nil; otherwise it stays reachable until everything made
// in the context is closed. Source: cuCtxGetDevice.
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

// adopt makes a Context of c, whose CUDA context is already retained.
func (c *contextCore) adopt(op string) (*Context, error) {
	if err := driver.CuCtxGetId(c.raw, &c.id); err != nil && !errors.Is(err, ErrNotSupported) {
		return nil, errors.Join(wrap(op, err), c.releasePrimary())
	}
	c.shared = c.shareState()
	if err := c.Open(c, nil); err != nil {
		return nil, wrap(op, err)
	}
	x := &Context{core: c}
	x.cleanup = lifetime.Cleanup(x, &c.Handle)
	return x, nil
}

// same returns whether two cores share a CUDA context: after a reset, another context may
// have the same handle.
func (c *contextCore) same(o *contextCore) bool { return c.shared == o.shared }

func (c *contextCore) Kind() string { return "Context" }

func (c *contextCore) Destroy(wait bool) error {
	if !c.left {
		c.left, c.last = true, c.shared.leave()
	}
	// The CUDA context may outlive this core, and so may the work of closed streams.
	if c.last && !c.shared.closed.over() {
		return lifetime.ErrLater
	}
	if !wait {
		return &lifetime.Elsewhere{Queue: &c.shared.frees}
	}
	if c.last && !c.emptied {
		c.emptied = true
		c.err = c.destroying("Context.Close", func() error { return c.shared.empty() })
	}
	err := c.releases.try(c.releasePrimary)
	if err == lifetime.ErrLater {
		return err
	}
	return errors.Join(c.err, wrap("Context.Close", err))
}

// releasePrimary releases CUDA's context, unless it is borrowed.
func (c *contextCore) releasePrimary() error {
	if c.owner != nil {
		c.owner = nil
		return nil
	}
	return driver.CuDevicePrimaryCtxRelease(c.device.raw)
}

// states holds the state of every context in use.
var states struct {
	sync.Mutex
	of map[driver.CUcontext]*contextState
}

// shareState returns the state of a context, creating it if needed. A context that was
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

// leave removes a user, and returns whether it was the last.
func (s *contextState) leave() (last bool) {
	states.Lock()
	defer states.Unlock()
	if s.cores--; s.cores > 0 {
		return false
	}
	if states.of[s.raw] == s {
		delete(states.of, s.raw)
	}
	for _, o := range states.of { // as CUDA does
		o.mu.Lock()
		delete(o.peers, s)
		o.mu.Unlock()
	}
	return true
}

// empty destroys the pools. The context must be current.
func (s *contextState) empty() error {
	return errors.Join(s.copies.empty(), s.releases.empty(), s.events.empty())
}

// acquire acquires the context for a call.
func (x *Context) acquire(op string) (*contextCore, error) {
	if x == nil || x.core == nil || !x.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return x.core, nil
}

// do acquires the context and calls f with the context current.
func (x *Context) do(op string, f func() error) error {
	c, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.withCurrent(f))
}

// Close releases the context. Streams, memory and modules that are still open keep
// working; CUDA's context is released after the last of them is closed. Closing again
// does nothing. Source: cuDevicePrimaryCtxRelease.
func (x *Context) Close() error {
	if x == nil || x.core == nil {
		return nil
	}
	x.cleanup.Stop()
	return x.core.Close()
}

// Raw returns the handle for calls of package driver and for other libraries. It returns
// 0 once the context is closed.
func (x *Context) Raw() driver.CUcontext {
	if x == nil || x.core == nil || x.core.Closed() {
		return 0
	}
	return x.core.raw
}

// Device returns the context's GPU.
func (x *Context) Device() Device {
	if x == nil || x.core == nil {
		return Device{}
	}
	return x.core.device
}

// WithCurrent calls f on a thread where the context is current, for calls of package
// driver and of other libraries. The goroutine stays on its thread during f. Then
// WithCurrent makes the previous context current again, even if f panics. It does not
// change the thread's capture mode.
//
// Source: cuCtxGetCurrent, cuCtxSetCurrent.
func (x *Context) WithCurrent(f func() error) error {
	const op = "Context.WithCurrent"
	c, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	var from error // f's error is returned as it is
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

// A greenCore is a green context: a context with some of the multiprocessors.
type greenCore struct {
	lifetime.Handle
	ctx  *contextCore
	gate gate       // for calls that see the captures of all its streams
	mu   sync.Mutex // one thread at a time may use the handle
	raw  driver.CUgreenCtx
}
