package safe

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Context is a context of a device: it holds streams, memory and modules. Any goroutine
// may use it. Programs need not make it current, and may use contexts of several devices
// in any order. Calls leave the thread's current context, which other libraries may
// depend on, as it was.
type Context struct {
	core    *contextCore
	cleanup lifetime.Cleanup
	view    bool // what the Context methods of objects return: usable as long as the core
}

// contextCore is the state of a Context. It lives until the last object in the context is
// destroyed.
type contextCore struct {
	lifetime.Handle
	raw    driver.CUcontext
	id     uint64 // 0 with a driver before CUDA 12.0
	device Device
	kind   contextKind
	owner  any // of a borrowed context: stays reachable
	shared *contextState

	retains int // of the primary context, that Destroy releases

	left, last, emptied bool // progress of Destroy
	err                 error
	releases            admit.Destruction
}

// A contextKind says how a contextCore came to its CUDA context.
type contextKind int

const (
	retainedContext contextKind = iota // by Open: the primary context
	createdContext                     // by NewContext
	borrowedContext
	borrowedPrimary
)

// contextState is shared by all contextCores of one CUDA context.
type contextState struct {
	raw       driver.CUcontext
	id        uint64
	cores     int
	contexts  map[*contextCore]struct{} // that were not destroyed; states is locked
	holders   int                       // cores that retain the primary context
	retains   int                       // of a core that has left, for the last one to release
	events    eventPool
	copies    streamPool // for synchronous copies
	releases  streamPool // for memory that is freed once its uses have completed
	fills     atomic.Pointer[fillKernels]
	releasing admit.Leaf // held to free it
	spare     spareStreams
	urgency   atomic.Pointer[priorityRange] // of streams; nil until asked
	heap      heap                          // for NewBuffer
	frees     lifetime.Queue                // frees that make the driver wait for the context's work
	closed    closedStreams
	crowd     crowd
	prepared  atomic.Bool // for a crowd

	device  driver.CUdevice
	primary atomic.Bool // the device's primary context
	created bool        // by NewContext: the last core destroys it

	whole, legacy admit.Gate // for Context.Synchronize, and for calls on the legacy stream
	legacyQueue   *queue     // shared by all Streams of the legacy stream

	mu      admit.Leaf // guards streams, greens, known and peers
	streams map[*streamCore]struct{}
	greens  map[driver.CUgreenCtx]*greenCore
	known   map[driver.CUevent]*eventCore // an Event for each event of the driver
	foreign admit.Leaf                    // held while an Event for an event of other code is made
	peers   map[*contextState]bool        // whose heaps are shared with this context; true if kernels here may access all their memory
}

// Open retains the primary context of a device, which the runtime API and most libraries
// use too. Close each Context that Open returns.
//
// The errors are those of [Devices]. Open returns driver.CUDA_ERROR_INVALID_DEVICE if no device has the
// ordinal.
// Source: cuDevicePrimaryCtxRetain.
func Open(ordinal int) (*Context, error) {
	const op = "Open"
	d, err := device(ordinal)
	if err != nil {
		return nil, wrap(op, err)
	}
	if err := d.usePrimary(op); err != nil {
		return nil, err
	}
	core := &contextCore{device: d, retains: 1}
	if err := reclaiming(func() error { return driver.CuDevicePrimaryCtxRetain(&core.raw, d.raw) }); err != nil {
		d.leavePrimary()
		return nil, wrap(op, err)
	}
	return core.adopt(op)
}

// BorrowContext makes a context that was created elsewhere usable with this package, and
// never destroys it. owner may be nil; otherwise it stays reachable until everything made
// in the context is closed.
// Source: cuCtxGetDevice.
func BorrowContext(raw driver.CUcontext, owner any) (*Context, error) {
	const op = "BorrowContext"
	if err := initialize(); err != nil {
		return nil, wrap(op, err)
	}
	if raw == 0 {
		return nil, refuse(op, driver.CUDA_ERROR_INVALID_CONTEXT, "the handle is 0")
	}
	core := &contextCore{raw: raw, kind: borrowedContext, owner: owner}
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
	if err := core.findPrimary(op); err != nil {
		core.leavePrimary()
		return nil, wrap(op, err)
	}
	return core.adopt(op)
}

// adopt makes a Context of c, whose CUDA context is already retained.
func (c *contextCore) adopt(op string) (*Context, error) {
	if err := driver.CuCtxGetId(c.raw, &c.id); err != nil && !errors.Is(err, ErrNotSupported) {
		err = errors.Join(wrap(op, err), c.giveUp())
		c.leavePrimary()
		return nil, err
	}
	c.shared = c.shareState()
	if err := c.Open(c, nil); err != nil {
		return nil, wrap(op, err)
	}
	c.shared.listContext(c)
	x := &Context{core: c}
	x.cleanup.Watch(&c.Handle)
	return x, nil
}

// view returns a Context that is not the one that the program has opened, which the garbage collector must be able to
// find dropped: it is usable as long as that is open, or any object made in it. Each is a new one, as the program may
// write another into it.
func (c *contextCore) view() *Context { return &Context{core: c, view: true} }

// same returns whether two cores share a CUDA context: after a reset by other code, another context may
// have the same handle.
func (c *contextCore) same(o *contextCore) bool { return c.shared == o.shared }

func (c *contextCore) Kind() string { return "Context" }

func (c *contextCore) Destroy(wait bool) error {
	// The CUDA context may outlive this core, and so may the work of closed streams.
	alone := c.last || !c.left && c.shared.alone()
	if alone && !c.shared.closed.over() {
		return lifetime.ErrLater
	}
	if !wait {
		return &lifetime.Elsewhere{Queue: &c.shared.frees}
	}
	if !c.left && !c.leave(alone) {
		return lifetime.ErrLater
	}
	if c.last && !c.emptied {
		c.emptied = true
		c.err = errors.Join(c.endFills("Context.Close"), c.destroying("Context.Close", c.shared.empty), c.endHeap("Context.Close"))
	}
	if c.last {
		err := c.dropHeap("Context.Close")
		if err == lifetime.ErrLater {
			return err
		}
		c.err = errors.Join(c.err, err)
	}
	err := releasing(&c.releases, true, c.giveUp)
	if err == lifetime.ErrLater {
		return err
	}
	c.leavePrimary() // not in giveUp: a reset of another device may wait for the turn
	return errors.Join(c.err, wrap("Context.Close", err))
}

// releasing calls f, which may destroy a CUDA context, while no call with an executable is in flight, or postpones it.
// While a host function runs, CUDA would wait for its end, and hold these calls up.
func releasing(d *admit.Destruction, wait bool, f func() error) error {
	if hostFuncs.Load() > 0 {
		return lifetime.ErrLater
	}
	return d.Try(&executables, wait, f)
}

// giveUp releases or destroys CUDA's context, unless others still need it.
func (c *contextCore) giveUp() (err error) {
	c.owner = nil
	if c.kind == createdContext && c.shared == nil || c.last && c.shared.created {
		return c.destroyCreated()
	}
	for ; c.retains > 0; c.retains-- {
		err = errors.Join(err, driver.CuDevicePrimaryCtxRelease(c.device.raw))
	}
	return err
}

// states holds the state of every context in use.
var states struct {
	admit.Leaf // guards of
	of         map[driver.CUcontext]*contextState
}

// shareState returns the state of a context, creating it if needed. A context that was
// reset has another id.
func (c *contextCore) shareState() *contextState {
	states.Lock()
	defer states.Unlock()
	s := states.of[c.raw]
	if s == nil || s.id != c.id {
		s = &contextState{raw: c.raw, id: c.id, device: c.device.raw, legacyQueue: newQueue(), contexts: map[*contextCore]struct{}{}, streams: map[*streamCore]struct{}{}, greens: map[driver.CUgreenCtx]*greenCore{},
			known: map[driver.CUevent]*eventCore{}, peers: map[*contextState]bool{}}
		if states.of == nil {
			states.of = map[driver.CUcontext]*contextState{}
		}
		states.of[c.raw] = s
	}
	switch c.kind {
	case retainedContext, borrowedPrimary:
		s.primary.Store(true)
	case createdContext:
		s.created = true
	}
	s.cores++
	if c.retains > 0 {
		s.holders++
	}
	return s
}

// listContext notes an open Context.
func (s *contextState) listContext(c *contextCore) {
	states.Lock()
	defer states.Unlock()
	s.contexts[c] = struct{}{}
}

// alone returns whether there is one user.
func (s *contextState) alone() bool {
	states.Lock()
	defer states.Unlock()
	return s.cores == 1
}

// leave removes c from the users of its context, unless others have left since c was not alone. If only
// borrowed contexts are left, the last of them releases the primary context: they may still ask for the end
// of their work.
func (c *contextCore) leave(alone bool) bool {
	states.Lock()
	defer states.Unlock()
	s := c.shared
	if s.cores == 1 && !alone {
		return false
	}
	c.left = true
	delete(s.contexts, c)
	if c.retains > 0 {
		s.holders--
	}
	if s.cores--; s.cores > 0 {
		if s.holders == 0 && s.retains == 0 {
			s.retains, c.retains = c.retains, 0
		}
		return true
	}
	c.last = true
	c.retains += s.retains
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

// empty destroys the pools, and takes the device's access to the heaps of other contexts
// that no other context needs. The context must be current.
func (s *contextState) empty() error {
	err := errors.Join(s.copies.empty(), s.releases.empty(), s.heap.streams.empty(), s.spare.empty(), s.events.empty())
	s.mu.Lock()
	peers := slices.Collect(maps.Keys(s.peers))
	s.mu.Unlock()
	for _, p := range peers {
		err = errors.Join(err, p.shareHeap())
	}
	return err
}

// acquire acquires the context for a call.
func (x *Context) acquire(op string) (*contextCore, error) {
	switch {
	case x == nil || x.core == nil:
	case x.view && x.core.TryRetain(), !x.view && x.core.Acquire():
		return x.core, nil
	}
	return nil, &Error{Op: op, Err: ErrClosed}
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
// working; CUDA's context is released, or destroyed if [NewContext] created it, after the
// last of them, and of other Contexts of it, is closed. To close these too, call
// [Context.CloseAll] first. Closing again does nothing. Source: cuDevicePrimaryCtxRelease, cuCtxDestroy.
func (x *Context) Close() error {
	if x == nil || x.core == nil || x.view {
		return nil
	}
	x.cleanup.Stop()
	return x.core.Close()
}

// CloseAll closes everything that was made in x, or in [Stream.Context] and the like of
// such objects, and is still open: streams, events, memory, modules, graphs and so on,
// newest first. It waits as the Close of each does, and joins their errors. x stays open
// and usable.
//
// Objects of another [Context] of the same device stay open, even those of another [Open];
// so may objects that are made meanwhile. Captures go on until their end: streams and
// memory that take part are released then.
func (x *Context) CloseAll() error {
	const op = "Context.CloseAll"
	c, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.CloseFamily())
}

// Raw returns the handle for calls to package driver and for other libraries. It returns
// 0 once the context is closed.
func (x *Context) Raw() driver.CUcontext {
	if x.closed() {
		return 0
	}
	return x.core.raw
}

// Equal reports whether x and y stand for the same CUDA context, as the Contexts of two calls of [Open] for one device
// do. A primary context that other code has reset is another one from then on, although CUDA may give it the same
// handle.
func (x *Context) Equal(y *Context) bool {
	if x == nil || y == nil || x.core == nil || y.core == nil {
		return false
	}
	return x.core.same(y.core)
}

// closed returns whether calls would return ErrClosed.
func (x *Context) closed() bool {
	switch {
	case x == nil || x.core == nil:
		return true
	case x.view:
		return x.core.Over()
	}
	return x.core.Closed()
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
	if f == nil {
		return noFunction(op)
	}
	var from error // f's error is returned as it is
	err = c.withCurrentMode(rt.OwnMode, func() error {
		from = f()
		return nil
	})
	if err != nil {
		return wrap(op, err)
	}
	return from
}

// contextOf returns the context of a stream. A stream of a green context belongs to the
// primary context, too: contextOf returns c if either is c, and the green context if there
// is one.
func (c *contextCore) contextOf(raw driver.CUstream) (of driver.CUcontext, green driver.CUgreenCtx, err error) {
	var primary driver.CUcontext
	if err := driver.CuStreamGetCtx(raw, &of); err != nil || of == c.raw {
		return of, 0, err
	}
	err = driver.CuStreamGetCtx_v2(raw, &primary, &green)
	if errors.Is(err, ErrNotSupported) { // before CUDA 12.5
		return of, 0, nil
	}
	return primary, green, err
}

// A greenCore is a green context: a context with some of the multiprocessors.
type greenCore struct {
	lifetime.Handle
	ctx  *contextCore
	gate admit.Gate // for calls that see the captures of all its streams
	mu   admit.Leaf // one thread at a time may use the handle
	raw  driver.CUgreenCtx

	recent int            // records that take the time, since the last mark
	mark   driver.CUevent // recorded after the ones before
}

// String describes the context for messages.
func (x *Context) String() string {
	if x == nil || x.core == nil {
		return neverOpened("Context")
	}
	return handleText("Context", x.core.raw, x.core.device, x.closed())
}

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
	if code := rt.Enter(&scope, c.raw, c.id, mode, 0); code != 0 {
		return code
	}
	defer rt.Leave(&scope)
	return f()
}

// callForeign calls f, which calls other libraries, with c current. In f, calls of this
// package return ErrInCallback: they could wait for locks that the caller holds. s is the
// stream of f, which is locked, or nil.
func (c *contextCore) callForeign(op string, s *streamCore, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var raw driver.CUstream
	if s != nil {
		raw = s.raw
	}
	var scope rt.Scope
	if code := rt.Enter(&scope, c.raw, c.id, rt.Foreign, raw); code != 0 {
		return failed(op, code)
	}
	defer rt.Leave(&scope)
	if scope.Status != 0 {
		s.status.Store(scope.Status)
		defer s.status.Store(0)
	}
	err := f()
	if err == nil {
		return nil
	}
	if code, ok := err.(driver.CUresult); ok {
		return failed(op, code)
	}
	return &Error{Op: op, Err: err}
}

// lock locks mu. Where rt.InCallback it does not wait: the holder of mu may be waiting
// for the function that runs there.
func lock(op string, mu admit.Locker) error {
	admit.MayWait(mu)
	if mu.TryLock() {
		return nil
	}
	return lockTaken(op, mu)
}

// lockTaken is the part of lock where mu is not free.
func lockTaken(op string, mu admit.Locker) error {
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
