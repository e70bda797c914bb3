package safe

import (
	"errors"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Stream is a queue of work for a device. Work on one stream runs in the order in which
// it was enqueued. Work on different streams runs in any order unless events order it.
// Any number of goroutines may use a stream at once.
type Stream struct {
	core    *streamCore
	cleanup lifetime.Cleanup
}

type streamCore struct {
	lifetime.Handle
	*queue
	ctx         *contextCore
	raw         driver.CUstream
	callContext driver.CUcontext // made current for each call, 0 for none
	owned       bool
	owner       any         // of a borrowed stream: stays reachable
	of          *streamCore // the stream that this one borrows, or nil
	foreign     bool        // other code owns it, and may begin captures on it with raw calls
	green       *greenCore  // the green context that made the stream, or nil
	onGreen     bool        // it belongs to a green context, perhaps of other code
	nonBlocking bool
	priority    int
	slow        atomic.Bool  // the last wait took long
	took        atomic.Int64 // nanoseconds that the last successful Stream.Wait took that did not end while it spun
	steady      atomic.Bool  // the one before took about as long

	// Guarded by mu:
	used     bool           // some memory block lists it in its streamUses
	worked   bool           // work was enqueued on it
	releases uint32         // of root: of memory of a pool on it
	noticed  uint32         // of root: how many of those the driver has noticed
	tail     driver.CUevent // recorded after the last work of a closed stream, 0 for none
	over     bool           // closed: the handle is no longer ours

	releaseMark releaseMark // of root

	known atomic.Bool // the program has its handle or ID, or has set an attribute

	scopes atomic.Int32 // open scopes
	lent   atomic.Int32 // calls of EnqueueRaw that need the handle, also once it is closed

	status atomic.Uint32 // in the function of EnqueueRaw: 1 + the stream's CUstreamCaptureStatus; else 0

	branches branches // for Fork
}

// StreamOptions are the options of [NewStreamWith]. The zero value is CUDA's default.
type StreamOptions struct {
	// NonBlocking makes the stream independent of the legacy default stream: neither
	// waits for the work of the other.
	NonBlocking bool
	// Priority of the stream's kernels. 0 is the default, and lower numbers are more
	// urgent, down to what driver.CuCtxGetStreamPriorityRange returns. It is a hint and preempts no
	// running kernel.
	Priority int
	// ClampPriority replaces a Priority outside the range by the
	// nearest valid one, as CUDA does.
	ClampPriority bool
}

// NewStream creates a blocking stream: the stream and the legacy default stream wait for each other's work. For a
// non-blocking stream use [NewStreamWith] and [StreamOptions].NonBlocking. If a context has 34 streams or more, the
// driver may wait for their work before it creates another. The same may happen to several synchronous copies at once,
// which run on internal streams. Source: cuStreamCreateWithPriority.
func NewStream(x *Context) (*Stream, error) { return NewStreamWith(x, StreamOptions{}) }

// NewStreamWith creates a stream with options: see [NewStream]. It returns [ErrRange] if o.Priority is outside the
// context's range and o.ClampPriority is not set. Source: cuStreamCreateWithPriority.
func NewStreamWith(x *Context, o StreamOptions) (*Stream, error) {
	const op = "NewStream"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	s, err := c.newStream(op, o)
	if err != nil {
		return nil, err
	}
	return s.adopt(op)
}

// newStream creates a stream, or takes a spare one. The caller has acquired the context.
func (c *contextCore) newStream(op string, o StreamOptions) (*streamCore, error) {
	c.shared.crowd.room()
	c.prepare()
	s := &streamCore{queue: newQueue(), ctx: c, callContext: c.handleContext(), owned: true, nonBlocking: o.NonBlocking}
	if err := s.choosePriority(op, o); err != nil {
		return nil, wrap(op, err)
	}
	kind := streamKind{s.nonBlocking, s.priority}
	if s.raw = c.shared.spare.take(kind); s.raw != 0 {
		code := c.home().Check()
		if code == rt.CodeCallback {
			c.shared.spare.put(kind, s.raw)
		}
		return s, check(op, code)
	}
	var flags driver.CUstream_flags
	if o.NonBlocking {
		flags = driver.CU_STREAM_NON_BLOCKING
	}
	return s, reclaiming(func() error { return check(op, c.home().CreateStream(&s.raw, flags, s.priority)) })
}

// choosePriority sets the priority of a new stream.
func (s *streamCore) choosePriority(op string, o StreamOptions) error {
	p, err := s.ctx.priorities()
	if err != nil {
		return err
	}
	s.priority = max(min(o.Priority, p.least), p.greatest)
	if s.priority != o.Priority && !o.ClampPriority {
		return refuse(op, ErrRange, "priority %d is not between %d (greatest) and %d (least); set ClampPriority to use the nearest", o.Priority, p.greatest, p.least)
	}
	return nil
}

// parent must outlive the stream: the stream that it borrows, its green context, or its
// context. The first two retain the context.
func (s *streamCore) parent() *lifetime.Handle {
	switch {
	case s.of != nil:
		return &s.of.Handle
	case s.green != nil:
		return &s.green.Handle
	}
	return &s.ctx.Handle
}

// adopt makes a Stream of s. The caller has acquired the context.
func (s *streamCore) adopt(op string) (*Stream, error) {
	if err := s.open(op); err != nil {
		return nil, err
	}
	u := &Stream{core: s}
	u.cleanup.Watch(&s.Handle)
	return u, nil
}

// open opens a new core. The caller has acquired the context.
func (s *streamCore) open(op string) error {
	if err := s.Open(s, s.parent()); err != nil {
		if s.owned {
			err = errors.Join(err, s.ctx.withCurrent(func() error { return destroyStream(s.raw) }))
		}
		return wrap(op, err)
	}
	s.ctx.shared.list(s)
	if s.owned {
		s.ctx.shared.crowd.now.Add(1)
	}
	return nil
}

// StreamFromRaw takes ownership of a stream that was created elsewhere: Close destroys
// it. The stream must not be capturing. It returns [ErrContextMismatch] if the stream
// does not belong to x, and driver.CUDA_ERROR_INVALID_HANDLE for the default streams, 0
// to 2. A stream of a green context also belongs to the primary context of its device.
// Source: cuStreamGetCtx, cuStreamGetCtx_v2.
func StreamFromRaw(raw driver.CUstream, x *Context) (*Stream, error) {
	return foreignStream("StreamFromRaw", raw, x, nil, true)
}

// BorrowStream makes a stream that was created elsewhere usable with this package, and never
// destroys it. Before the owner destroys CUDA's stream, wait until calls on the Stream have
// returned and its captures have ended, then close the Stream. owner may be nil; otherwise it
// stays reachable until the Stream is closed. The stream must not be capturing. This package may
// call the driver for the stream until the Stream is closed. Once you have enqueued work on the
// Stream, capture with [Stream.Capture], or close the Stream before you begin a capture with raw
// calls. The errors are those of [StreamFromRaw]. Source: cuStreamGetCtx, cuStreamGetCtx_v2.
func BorrowStream(raw driver.CUstream, x *Context, owner any) (*Stream, error) {
	return foreignStream("BorrowStream", raw, x, owner, false)
}

func foreignStream(op string, raw driver.CUstream, x *Context, owner any, owned bool) (*Stream, error) {
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if raw <= driver.CU_STREAM_PER_THREAD {
		return nil, refuse(op, driver.CUDA_ERROR_INVALID_HANDLE, "%#x is a default stream; use LegacyStream or NewStream", uintptr(raw))
	}
	s := &streamCore{ctx: c, raw: raw, callContext: c.handleContext(), owned: owned, foreign: !owned, owner: owner}
	s.reveal()
	c.shared.share(s)
	err = wrap(op, s.describe(op))
	if s.green != nil {
		defer s.green.Release()
	}
	if err == nil {
		var u *Stream
		if u, err = s.adopt(op); err == nil {
			return u, nil
		}
	}
	c.shared.unlist(s)
	return nil, err
}

// describe asks the driver for the properties of a stream that was created elsewhere.
func (s *streamCore) describe(op string) error {
	a := admission{op: op, stream: s, flags: asks}
	if err := a.admit(); err != nil {
		return err
	}
	defer a.leave(true)
	if s.capturing() {
		return refuse(op, ErrCapturing, "the driver cannot describe a capturing stream")
	}
	return s.ctx.withCurrent(func() error {
		of, green, err := s.ctx.contextOf(s.raw)
		if err != nil {
			return err
		}
		if of != s.ctx.raw {
			return refuse(op, ErrContextMismatch, "the stream belongs to context %#x, not to %#x", uintptr(of), uintptr(s.ctx.raw))
		}
		var flags driver.CUstream_flags
		var priority int32
		err = errors.Join(driver.CuStreamGetFlags(s.raw, &flags), driver.CuStreamGetPriority(s.raw, &priority))
		s.nonBlocking = flags&driver.CU_STREAM_NON_BLOCKING != 0
		s.priority = int(priority)
		s.onGreen = green != 0
		s.ctx.shared.setGreen(s, green)
		return err
	})
}

// LegacyStream returns the legacy default stream of a context, which other libraries use
// unless told otherwise. Its work waits for earlier work of all blocking streams, and
// their later work waits for it. Close does not affect CUDA's stream.
func LegacyStream(x *Context) (*Stream, error) {
	const op = "LegacyStream"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return (&streamCore{queue: c.shared.legacyQueue, ctx: c, raw: driver.CU_STREAM_LEGACY, callContext: c.raw}).adopt(op)
}

func (s *streamCore) Kind() string { return "Stream" }

// acquire acquires the stream for a call.
func (s *Stream) acquire(op string) (*streamCore, error) {
	if s == nil || s.core == nil || !s.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return s.core, nil
}

// openUnacquired returns an open stream, without acquiring it: its lock keeps it from being destroyed, once the
// call is admitted. Until then the caller keeps s reachable.
func (s *Stream) openUnacquired(op string) (*streamCore, error) {
	if s == nil || s.core == nil || s.core.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return s.core, nil
}

// Borrow returns another Stream for the same CUDA stream, which it never destroys. If s is closed first, CUDA's stream
// is destroyed after the borrowed Stream is closed.
func (s *Stream) Borrow() (*Stream, error) {
	const op = "Stream.Borrow"
	c, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return c.borrowed(s).adopt(op)
}

// root returns the stream that s borrows from, at any depth, or s.
func (s *streamCore) root() *streamCore {
	for s.of != nil {
		s = s.of
	}
	return s
}

// borrowed returns a new core for the same CUDA stream. owner stays reachable.
func (s *streamCore) borrowed(owner any) *streamCore {
	return &streamCore{
		queue: s.queue, ctx: s.ctx, raw: s.raw, callContext: s.callContext, of: s, foreign: s.foreign, owner: owner,
		green: s.green, onGreen: s.onGreen, nonBlocking: s.nonBlocking, priority: s.priority,
	}
}

// Raw returns the handle for calls to package driver and to the runtime API, whose handles are
// the same: cudart13.CudaStream_t(s.Raw()). It returns 0 once the stream is closed and calls of
// [EnqueueRaw] on it have returned. Keep s reachable while the handle is in use.
func (s *Stream) Raw() driver.CUstream {
	if s == nil || s.core == nil || s.core.Closed() && s.core.lent.Load() == 0 {
		return 0
	}
	s.core.reveal()
	return s.core.raw
}

// NonBlocking reports whether the stream is independent of the legacy default stream.
func (s *Stream) NonBlocking() bool { return s != nil && s.core != nil && s.core.nonBlocking }

// Priority returns the stream's current priority: the one it was created with, or the one
// set since then.
func (s *Stream) Priority() int {
	if s == nil || s.core == nil {
		return 0
	}
	return s.priorityNow()
}

// Device returns the stream's GPU.
func (s *Stream) Device() Device {
	if s == nil || s.core == nil {
		return Device{}
	}
	return s.core.ctx.device
}

// ID returns a number that identifies the stream in this process. It returns
// [ErrCapturing] if the stream is capturing, and [ErrNotSupported] with a driver before
// CUDA 12.0. Source: cuStreamGetId.
func (s *Stream) ID() (uint64, error) {
	const op = "Stream.ID"
	c, err := s.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	a := admission{op: op, stream: c, flags: asks}
	if err := a.admit(); err != nil {
		return 0, err
	}
	defer a.leave(true)
	if c.capturing() {
		return 0, &Error{Op: op, Err: ErrCapturing}
	}
	c.reveal()
	var id uint64
	err = c.ctx.withCurrent(func() error { return driver.CuStreamGetId(c.raw, &id) })
	return id, wrap(op, err)
}

// capturing returns whether the driver captures work that is enqueued on the stream now.
// That includes captures that this package did not begin.
func (s *streamCore) capturing() bool { return rt.Capturing(s.callContext, s.raw) }

// look returns whether the stream is capturing, and false for a closed one. It is for calls on other objects, which
// have not acquired the stream: Close waits for look.
func (s *streamCore) look() bool {
	s.looked.Lock()
	defer s.looked.Unlock()
	return !s.Closed() && s.capturing()
}

// String describes the stream for messages.
func (s *Stream) String() string {
	if s == nil || s.core == nil {
		return neverOpened("Stream")
	}
	return s.core.text()
}

func (s *streamCore) text() string { return handleText("Stream", s.raw, s.ctx.device, s.Closed()) }

// listed is the number of streams of all contexts.
var listed atomic.Int32

// list makes s one of the context's streams, which are all that CUDA's calls may meet.
func (c *contextState) list(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(s)
}

// add lists a stream, if it is not listed yet. mu is held.
func (c *contextState) add(s *streamCore) {
	if _, ok := c.streams[s]; !ok {
		c.streams[s] = struct{}{}
		listed.Add(1)
	}
}

func (c *contextState) unlist(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.streams[s]; ok {
		delete(c.streams, s)
		listed.Add(-1)
	}
}

// live returns the streams of the context.
func (c *contextState) live() []*streamCore {
	return c.liveThat(func(*streamCore) bool { return true })
}

// liveOf returns the streams of a green context.
func (c *contextState) liveOf(g *greenCore) []*streamCore {
	return c.liveThat(func(s *streamCore) bool { return s.green == g })
}

// others returns the other Streams for the same CUDA stream as s that do not retain s.
func (c *contextState) others(s *streamCore) []*streamCore {
	if !s.queue.shared.Load() && !s.legacy() {
		return nil
	}
	return c.liveThat(func(o *streamCore) bool { return o != s && o.queue == s.queue })
}

func (c *contextState) liveThat(is func(*streamCore) bool) (streams []*streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		if is(s) {
			streams = append(streams, s)
		}
	}
	return streams
}

// share lists s, which was created elsewhere. s gets the queue of a Stream for the same stream of
// CUDA if there is one, or else a new queue.
func (c *contextState) share(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.queue = c.queueOf(s.raw)
	if s.queue == nil {
		s.queue = newQueue()
	} else {
		s.queue.shared.Store(true)
	}
	c.add(s)
}

// queueOf returns the queue of a Stream, or nil. A closed Stream counts if there is no other, as a
// call may still use it. If there is another, CUDA may have reused the handle since. mu is held.
func (c *contextState) queueOf(raw driver.CUstream) (q *queue) {
	for s := range c.streams {
		switch {
		case s.raw != raw:
		case !s.Closed():
			return s.queue
		default:
			q = s.queue
		}
	}
	return q
}

// setGreen sets the green context of a stream that was created elsewhere, if this package has
// created that, and retains it for the caller.
func (c *contextState) setGreen(s *streamCore, raw driver.CUgreenCtx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.greens[raw]; g != nil && g.TryRetain() {
		s.green = g
	}
}

// A streamKind is what streams are created with.
type streamKind struct {
	nonBlocking bool
	priority    int
}

// reveal notes that the program may know CUDA's stream, which is then not used again.
func (s *streamCore) reveal() {
	for s.of != nil {
		s = s.of
	}
	if !s.known.Load() { // most calls need not write
		s.known.Store(true)
	}
}

// A priorityRange is the range of the priorities of streams, which does not change.
type priorityRange struct{ least, greatest int }

// priorities returns the range, which it asks once.
func (c *contextCore) priorities() (*priorityRange, error) {
	if p := c.shared.urgency.Load(); p != nil {
		return p, nil
	}
	var least, greatest int32
	if err := c.withCurrent(func() error { return driver.CuCtxGetStreamPriorityRange(&least, &greatest) }); err != nil {
		return nil, err
	}
	p := &priorityRange{int(least), int(greatest)}
	c.shared.urgency.Store(p)
	return p, nil
}

// branches are streams of a Fork that ended. The stream waits for their work, so the next
// Fork need not wait until that has completed to use them again.
type branches struct {
	mu   admit.Leaf // guards idle
	idle []*streamCore
}

// take returns a stream, or nil if there is none.
func (b *branches) take() *streamCore {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.idle)
	if n == 0 {
		return nil
	}
	s := b.idle[n-1]
	b.idle = b.idle[:n-1]
	return s
}

// keep takes over a stream, unless there are enough.
func (b *branches) keep(s *streamCore) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.idle) >= mostBranches {
		return false
	}
	b.idle = append(b.idle, s)
	return true
}

// drop releases all streams.
func (b *branches) drop() {
	for s := b.take(); s != nil; s = b.take() {
		s.Release()
	}
}

// mostBranches is how many streams a stream keeps for its next Fork.
const mostBranches = 8
