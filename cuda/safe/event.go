package safe

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Event marks a point in the work of a stream: see [Stream.Record]. Any number of
// goroutines may use an event at once.
type Event struct {
	core    *eventCore
	cleanup lifetime.Cleanup
}

type eventCore struct {
	lifetime.Handle
	*recording
	ctx         *contextCore
	raw         driver.CUevent
	callContext driver.CUcontext // made current for each call, 0 for none
	untimed     bool             // created with DisableTiming
	pooled      bool             // of the context's pool, for one use in this package
	foreign     bool             // borrowed: other code destroys it
	owner       any              // of a borrowed event: stays reachable
}

// A recording is the state of an event of the driver, which all Events for it share.
type recording struct {
	gate     admit.Gate   // closed while the last record is captured
	recorded atomic.Bool  // at least once by this package, or perhaps elsewhere
	waiting  atomic.Int32 // waits in the poller, or about to be
	mu       admit.Leaf   // held while the gate is closed or opened
	captured bool         // the last record is captured; guarded by mu
	capture  atomic.Pointer[capturing]
}

// errForeign means that the event was recorded in an open capture that is not the
// caller's.
var errForeign = fmt.Errorf("%w: the event was recorded in another capture", ErrCapturing)

// enter admits a call with the event until gate.leave. It fails if the event was last
// recorded in a capture.
func (e *eventCore) enter() bool {
	for !e.gate.Enter() {
		if lock("", &e.mu) != nil {
			return false
		}
		captured := e.captured
		e.mu.Unlock()
		if captured {
			return false
		}
	}
	return true
}

// enterBoth admits a call with two events, which may be the same, and returns false if one was last recorded in a
// capture. It waits for one with neither entered: whoever closes the gate of one may wait for calls in it that wait for the other.
func enterBoth(a, b *eventCore) bool {
	for {
		if !a.enter() {
			return false
		}
		if b.gate.Enter() {
			return true
		}
		a.gate.Leave()
		if !b.enter() {
			return false
		}
		b.gate.Leave()
	}
}

// places is the number of places that a record takes in the driver's queue.
func (e *eventCore) places() int {
	if e.untimed {
		return 0
	}
	return 1
}

// quick returns the event with its gate entered, for the common case, and nil otherwise.
// The call need not acquire the event, as Destroy waits until the gate is empty.
func (e *Event) quick() *eventCore {
	if e == nil || e.core == nil || !e.core.gate.Enter() {
		return nil
	}
	admit.Between()
	if e.core.Closed() {
		e.core.gate.Leave()
		return nil
	}
	return e.core
}

// unawaited tells whether no wait for the event is in the poller.
func (e *eventCore) unawaited() bool { return e.waiting.Load() == 0 }

// exclude calls f while no other call with the event is in flight. of is the caller's
// capture, or nil. It fails if the event was recorded in another capture, on a thread of the
// driver, for which the calls in flight may wait, and if one of them blocks in the driver.
func (e *eventCore) exclude(op string, of *capturing, f func() error) error {
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	if err := lock(op, &e.mu); err != nil {
		return err
	}
	defer e.mu.Unlock()
	switch c := e.capture.Load(); {
	case c == nil || c == of || c.ended.Load():
	case c.endless.Load():
		return refuse(op, ErrGraphLost, "the event was recorded in a capture that CUDA cannot end: use another event")
	default:
		return &Error{Op: op, Err: errForeign}
	}
	defer e.gate.Open()
	if !e.gate.CloseSoon() {
		return refuse(op, ErrCapturing, "another call with the event blocks in the driver")
	}
	return f()
}

// use calls f while the last record of the event is in capture of, or in none.
func (e *eventCore) use(op string, of *capturing, f func() error) error {
	if e.gate.Enter() {
		defer e.gate.Leave()
		return f()
	}
	return e.exclude(op, of, f)
}

// stale returns whether the event was last recorded in a capture that has ended. The caller
// is in exclude.
func (e *eventCore) stale() bool {
	c := e.capture.Load()
	return c != nil && c.ended.Load()
}

// staleRecord is why the work of a stream cannot wait for an event whose last record is of a capture that
// has ended.
const staleRecord = "the event was last recorded in a capture that has ended; record it again"

// lastCaptured refuses to ask an event, named what, whose last record is of a capture: no work
// completes it.
func lastCaptured(op, what string) error {
	return refuse(op, ErrCapturing, "%s was last recorded in a capture; record it again outside", what)
}

// setCaptured notes whether the last record of the event is captured, and in which
// capture if this package began that. The caller is in exclude.
func (e *eventCore) setCaptured(captured bool, c *capturing) {
	switch {
	case captured && !e.captured:
		e.gate.Shut()
	case !captured && e.captured:
		e.gate.Open()
	}
	e.captured = captured
	e.recorded.Store(true)
	if c != nil && e.capture.Load() != c {
		c.retainsEvent(e)
	}
	e.capture.Store(c)
}

// EventOptions are the options of [NewEventWith]. The zero value is CUDA's default.
type EventOptions struct {
	// DisableTiming makes the event cheaper to record. [Event.Since] then returns an
	// error. Set it for events that are recorded in quick succession: while one stream
	// recorded events with timing without a pause, an H200 ran no work of other streams.
	DisableTiming bool
	// BlockingSync makes waits of the driver for the event sleep instead of spin. Waits
	// of this package are not affected.
	BlockingSync bool
	// Interprocess lets other processes open the event. DisableTiming must be set too.
	Interprocess bool
}

// NewEvent creates an event with timing, for [Event.Since]. Source: cuEventCreate.
func NewEvent(x *Context) (*Event, error) { return NewEventWith(x, EventOptions{}) }

// NewEventWith creates an event with options. It returns driver.CUDA_ERROR_INVALID_VALUE if o.Interprocess is set
// without o.DisableTiming. Source: cuEventCreate.
func NewEventWith(x *Context, o EventOptions) (*Event, error) {
	const op = "NewEvent"
	if o.Interprocess && !o.DisableTiming {
		return nil, refuse(op, driver.CUDA_ERROR_INVALID_VALUE, "an event with Interprocess must also have DisableTiming")
	}
	var flags driver.CUevent_flags
	if o.DisableTiming {
		flags |= driver.CU_EVENT_DISABLE_TIMING
	}
	if o.BlockingSync {
		flags |= driver.CU_EVENT_BLOCKING_SYNC
	}
	if o.Interprocess {
		flags |= driver.CU_EVENT_INTERPROCESS
	}
	e, err := makeEvent(op, x, func(raw *driver.CUevent) error { return driver.CuEventCreate(raw, flags) })
	if err == nil {
		e.core.untimed = o.DisableTiming
	}
	return e, err
}

// OpenIPCEvent opens an event of another process, which calls [Event.IPCHandle] and sends
// the handle. A process cannot open its own events. Source: cuIpcOpenEventHandle.
func OpenIPCEvent(x *Context, h driver.CUipcEventHandle) (*Event, error) {
	e, err := makeEvent("OpenIPCEvent", x, func(raw *driver.CUevent) error { return driver.CuIpcOpenEventHandle(raw, h) })
	if err == nil {
		e.core.recorded.Store(true)
		e.core.untimed = true // as all events of other processes
	}
	return e, err
}

func makeEvent(op string, x *Context, create func(*driver.CUevent) error) (*Event, error) {
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	e := &eventCore{ctx: c, callContext: c.handleContext(), recording: &recording{}}
	if err := c.allocating(func() error { return create(&e.raw) }); err != nil {
		return nil, wrap(op, err)
	}
	return e.adopt(op, &c.Handle, true)
}

// adopt makes an Event of e, which parent must outlive. If that succeeds, the Event destroys CUDA's event if
// it is owned.
func (e *eventCore) adopt(op string, parent *lifetime.Handle, owned bool) (*Event, error) {
	if err := e.Open(e, parent); err != nil {
		return nil, wrap(op, errors.Join(err, e.destroy()))
	}
	e.foreign = !owned
	e.ctx.shared.addEvent(e)
	u := &Event{core: e}
	u.cleanup.Watch(&e.Handle)
	return u, nil
}

func (e *eventCore) Kind() string { return "Event" }

// Destroy waits for calls that have not acquired the event: see quick. A record may block in
// the driver.
func (e *eventCore) Destroy(wait bool) error {
	if !patiently(wait, e.unused) {
		return lifetime.ErrLater
	}
	if e.pooled && !e.captured {
		e.ctx.shared.events.put(e.raw)
		return nil
	}
	e.ctx.shared.dropEvent(e)
	e.owner = nil
	return e.destroy()
}

// unused tells whether no call is in flight that has not acquired the event, which is closed.
func (e *eventCore) unused() bool {
	admit.Between()
	return e.gate.Idle()
}

func (e *eventCore) destroy() error {
	if e.foreign {
		return nil
	}
	return e.ctx.destroying("Event.Close", func() error { return driver.CuEventDestroy(e.raw) })
}

// acquire acquires the event for a call.
func (e *Event) acquire(op string) (*eventCore, error) {
	if e == nil || e.core == nil || !e.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return e.core, nil
}

// Close destroys the event, unless it is borrowed. Work that waits for the event still waits for
// its record. Closing again does nothing. Source: cuEventDestroy.
func (e *Event) Close() error {
	if e == nil || e.core == nil {
		return nil
	}
	e.cleanup.Stop()
	err := e.core.Close()
	if e.core.foreign && !rt.InCallback() {
		// The poller may still query the event of a wait that was given up, and the program may
		// destroy a borrowed event after Close.
		patiently(true, e.core.Over)
	}
	return err
}

// Raw returns the handle for calls to package driver and to the runtime API. It returns 0
// once the event is closed. Keep e reachable while the handle is in use.
func (e *Event) Raw() driver.CUevent {
	if e == nil || e.core == nil || e.core.Closed() {
		return 0
	}
	return e.core.raw
}

// Query reports whether the latest record of e has completed, without waiting. It returns true if e was never recorded.
// It also returns errors of earlier work. It returns [ErrCapturing] if e was last recorded in a capture. Source:
// cuEventQuery.
func (e *Event) Query() (done bool, err error) {
	const op = "Event.Query"
	if v := e.quick(); v != nil {
		code := rt.EventQuery(v.callContext, v.raw, 0)
		v.gate.Leave()
		return answer(op, code)
	}
	v, err := e.acquire(op)
	if err != nil {
		return false, err
	}
	code := v.query(0)
	v.Release()
	if code == rt.CodeCapturing {
		return false, lastCaptured(op, "the event")
	}
	return answer(op, code)
}

// query asks for up to spin nanoseconds.
func (e *eventCore) query(spin int64) driver.CUresult {
	if !e.enter() {
		return rt.CodeCapturing
	}
	defer e.gate.Leave()
	return rt.EventQuery(e.callContext, e.raw, spin)
}

// Since returns the time on the device from start to e. The resolution is about 0.5 µs.
// It returns driver.CUDA_ERROR_NOT_READY if the latest record of either has not completed,
// driver.CUDA_ERROR_INVALID_HANDLE if either was never recorded or was created with
// DisableTiming, and [ErrCapturing] if either was last recorded in a capture. The error's
// Detail says which event is the cause. It returns [ErrContextMismatch] if the events belong
// to different contexts.
// Source: cuEventElapsedTime.
func (e *Event) Since(start *Event) (time.Duration, error) {
	const op = "Event.Since"
	end, err := e.acquire(op)
	if err != nil {
		return 0, err
	}
	defer end.Release()
	begin, err := start.acquire(op)
	if err != nil {
		return 0, err
	}
	defer begin.Release()
	if !begin.ctx.same(end.ctx) {
		return 0, refuse(op, ErrContextMismatch, "the events belong to different contexts, of %v and %v", begin.ctx.device, end.ctx.device)
	}
	if !enterBoth(end, begin) {
		if end.enter() {
			end.gate.Leave()
			return 0, lastCaptured(op, "the start event")
		}
		return 0, lastCaptured(op, "the end event")
	}
	defer end.gate.Leave()
	defer begin.gate.Leave()
	var ms float32
	err = end.ctx.withCurrent(func() error {
		err := driver.CuEventElapsedTime(&ms, begin.raw, end.raw)
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.8
			err = driver.CuEventElapsedTime_v1(&ms, begin.raw, end.raw)
		}
		return err
	})
	if err != nil {
		return 0, whyNotSince(op, err, begin, end)
	}
	return time.Duration(float64(ms) * float64(time.Millisecond)), nil
}

// whyNotSince makes an error of cuEventElapsedTime an *Error that says which event caused it.
// The gates of both are entered.
func whyNotSince(op string, err error, begin, end *eventCore) error {
	code, _ := err.(driver.CUresult)
	if code != driver.CUDA_ERROR_INVALID_HANDLE && code != driver.CUDA_ERROR_NOT_READY {
		return wrap(op, err)
	}
	var causes []string
	for _, v := range []struct {
		name string
		*eventCore
	}{{"start", begin}, {"end", end}} {
		switch {
		case code == driver.CUDA_ERROR_NOT_READY:
			if rt.EventQuery(v.callContext, v.raw, 0) == code {
				causes = append(causes, "the "+v.name+" event has not completed")
			}
		case v.untimed:
			causes = append(causes, "the "+v.name+" event has DisableTiming set")
		case !v.recorded.Load():
			causes = append(causes, "the "+v.name+" event was never recorded")
		}
	}
	if code == driver.CUDA_ERROR_INVALID_HANDLE && !begin.ctx.same(end.ctx) {
		causes = append(causes, "the events belong to different contexts")
	}
	e := failed(op, code)
	e.Detail = strings.Join(causes, "; ")
	return e
}

// IPCHandle returns a handle with which another process opens the event: see
// [OpenIPCEvent]. The event must have been created with Interprocess. Source:
// cuIpcGetEventHandle.
func (e *Event) IPCHandle() (driver.CUipcEventHandle, error) {
	const op = "Event.IPCHandle"
	var h driver.CUipcEventHandle
	v, err := e.acquire(op)
	if err != nil {
		return h, err
	}
	defer v.Release()
	err = v.ctx.withCurrent(func() error { return driver.CuIpcGetEventHandle(&h, v.raw) })
	return h, wrap(op, err)
}

// String describes the event for messages.
func (e *Event) String() string {
	if e == nil || e.core == nil {
		return neverOpened("Event")
	}
	return handleText("Event", e.core.raw, e.core.ctx.device, e.core.Closed())
}

// EventFromRaw takes ownership of an event that was created elsewhere: Close destroys it. The
// event must belong to x, which CUDA offers no way to check, and must not be recorded in a
// capture that has not ended. It returns driver.CUDA_ERROR_INVALID_HANDLE for 0.
func EventFromRaw(raw driver.CUevent, x *Context) (*Event, error) {
	return foreignEvent("EventFromRaw", raw, x, nil, true)
}

// BorrowEvent makes an event that was created elsewhere usable with this package, and
// never destroys it. owner may be nil; otherwise it stays reachable until the Event is
// closed. The conditions and errors are those of [EventFromRaw].
func BorrowEvent(raw driver.CUevent, x *Context, owner any) (*Event, error) {
	return foreignEvent("BorrowEvent", raw, x, owner, false)
}

func foreignEvent(op string, raw driver.CUevent, x *Context, owner any, owned bool) (*Event, error) {
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if raw == 0 {
		return nil, refuse(op, driver.CUDA_ERROR_INVALID_HANDLE, "the handle is 0")
	}
	// Only opens a foreign core at first, so that a failure destroys nothing of the caller's.
	e := &eventCore{ctx: c, raw: raw, callContext: c.handleContext(), foreign: true, owner: owner}
	c.shared.foreign.Lock()
	defer c.shared.foreign.Unlock()
	parent, release := e.share()
	defer release()
	return e.adopt(op, parent, owned)
}

// share gives e the state of another Event for the same event of the driver if there is
// one, which must outlive e then, or else a state of its own.
func (e *eventCore) share() (parent *lifetime.Handle, release func()) {
	s := e.ctx.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.known[e.raw]; o != nil && o.TryRetain() {
		e.recording = o.recording
		return &o.Handle, o.Release
	}
	e.recording = &recording{}
	e.recorded.Store(true) // perhaps
	return &e.ctx.Handle, func() {}
}

// addEvent notes e, unless it stands for an event that another Event stands for.
func (s *contextState) addEvent(e *eventCore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.known[e.raw]; o == nil || o.recording != e.recording {
		s.known[e.raw] = e
	}
}

func (s *contextState) dropEvent(e *eventCore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[e.raw] == e {
		delete(s.known, e.raw)
	}
}

// answer translates the result of a query: not ready is no error.
func answer(op string, code driver.CUresult) (done bool, err error) {
	if code == driver.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return code == 0, check(op, code)
}
