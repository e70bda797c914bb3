package safe

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Stream is a queue of work for a device. What is put on it runs in order;
// work of different streams runs in any order, unless events say otherwise. Any
// number of goroutines may use a stream at once.
type Stream struct {
	core    *streamCore
	cleanup runtime.Cleanup
}

type streamCore struct {
	lifetime.Handle
	*queue
	ctx         *contextCore
	raw         driver.CUstream
	callContext driver.CUcontext // to make current for a call, 0 for none
	owned       bool
	owner       any         // of a borrowed stream: kept alive
	of          *streamCore // of a stream that is borrowed of one of ours
	green       *greenCore  // of a stream made on one
	nonBlocking bool
	priority    int
	slow        atomic.Bool  // the last wait was long
	took        atomic.Int64 // how long the last one was left to the poller, in nanoseconds

	// With mu held:
	used bool           // by work that uses blocks of memory
	tail driver.CUevent // behind the last work of a stream that is over, 0 for none
	over bool           // closed, and the handle not ours any more

	scopes atomic.Int32 // that are open
}

// StreamOptions are the choices at [NewStream]. The zero value is CUDA's
// default.
type StreamOptions struct {
	// NonBlocking: the stream's work does not wait for that of the legacy
	// default stream, nor the other way round.
	NonBlocking bool
	// Priority of the stream's kernels: 0 is the default, smaller numbers are
	// more urgent. It is a hint and interrupts no running kernel.
	Priority int
	// ClampPriority takes the nearest priority there is, as CUDA does, where
	// Priority is outside [Context.StreamPriorityRange].
	ClampPriority bool
}

// NewStream makes a stream. A priority outside the range is [ErrRange].
// Source: cuStreamCreateWithPriority.
func NewStream(x *Context, o StreamOptions) (*Stream, error) {
	const op = "NewStream"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	s := &streamCore{queue: newQueue(), ctx: c, callContext: c.handleContext(), owned: true, nonBlocking: o.NonBlocking}
	err = c.withCurrent(func() error {
		if err := s.choosePriority(op, o); err != nil {
			return err
		}
		var flags driver.CUstream_flags
		if o.NonBlocking {
			flags = driver.CU_STREAM_NON_BLOCKING
		}
		return driver.CuStreamCreateWithPriority(&s.raw, uint32(flags), int32(s.priority))
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return s.adopt(op)
}

// choosePriority sets the priority that a new stream is to have. The context is current.
func (s *streamCore) choosePriority(op string, o StreamOptions) error {
	var least, greatest int32
	if err := driver.CuCtxGetStreamPriorityRange(&least, &greatest); err != nil {
		return err
	}
	s.priority = max(min(o.Priority, int(least)), int(greatest))
	if s.priority != o.Priority && !o.ClampPriority {
		return refuse(op, ErrRange, "priority %d is not between %d (greatest) and %d (least)", o.Priority, greatest, least)
	}
	return nil
}

// keeper is what must stay as long as the stream: the context, or the stream that
// it is borrowed of or the green context, which have the context.
func (s *streamCore) keeper() *lifetime.Handle {
	switch {
	case s.of != nil:
		return &s.of.Handle
	case s.green != nil:
		return &s.green.Handle
	}
	return &s.ctx.Handle
}

// adopt makes a Stream of a core. c is marked.
func (s *streamCore) adopt(op string) (*Stream, error) {
	if err := s.Open(s, s.keeper()); err != nil {
		if s.owned {
			err = errors.Join(err, s.ctx.withCurrent(func() error { return driver.CuStreamDestroy(s.raw) }))
		}
		return nil, wrap(op, err)
	}
	shared := s.ctx.shared
	shared.mu.Lock()
	shared.streams[s] = struct{}{}
	shared.mu.Unlock()
	u := &Stream{core: s}
	u.cleanup = lifetime.Cleanup(u, &s.Handle)
	return u, nil
}

// StreamFromRaw takes over a stream that somebody else has created: Close will
// destroy it. The driver is asked whether it is one of x's, else the error is
// [ErrContextMismatch]; the default streams, 0 to 2, are refused. Streams of green contexts
// are also those of the device's primary context. The stream must not
// capture. Source: cuStreamGetCtx, cuStreamGetCtx_v2.
func StreamFromRaw(raw driver.CUstream, x *Context) (*Stream, error) {
	return foreignStream("StreamFromRaw", raw, x, nil, true)
}

// BorrowStream makes a stream that somebody else has created usable here, and
// never destroys it. owner, which may be nil, is kept alive as long as the
// Stream is. The stream must not capture. Source: cuStreamGetCtx, cuStreamGetCtx_v2.
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
		return nil, refuse(op, driver.CUDA_ERROR_INVALID_HANDLE, "%#x is a default stream", uintptr(raw))
	}
	s := &streamCore{queue: c.shared.queueOf(raw), ctx: c, raw: raw, callContext: c.handleContext(), owned: owned, owner: owner}
	if err := s.askWhat(op); err != nil {
		return nil, wrap(op, err)
	}
	return s.adopt(op)
}

// askWhat asks the driver about a stream that was made elsewhere.
func (s *streamCore) askWhat(op string) error {
	if err := s.enterAsk(op); err != nil {
		return err
	}
	defer s.leave(nil)
	if s.capturing() {
		return refuse(op, ErrCapturing, "it could not be asked what it is")
	}
	return s.ctx.withCurrent(func() error {
		of, err := s.ctx.contextOf(s.raw)
		if err != nil {
			return err
		}
		if of != s.ctx.raw {
			return refuse(op, ErrContextMismatch, "the stream belongs to context %#x, not to %#x", uintptr(of), uintptr(s.ctx.raw))
		}
		var flags uint32
		var priority int32
		err = errors.Join(driver.CuStreamGetFlags(s.raw, &flags), driver.CuStreamGetPriority(s.raw, &priority))
		s.nonBlocking = driver.CUstream_flags(flags)&driver.CU_STREAM_NON_BLOCKING != 0
		s.priority = int(priority)
		return err
	})
}

// LegacyStream is the legacy default stream of a context, which other libraries
// use when none is given: work on it waits for the work of all blocking
// streams, and the other way round. Closing it closes nothing of CUDA's.
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

// destroy gives the stream back when its work is done: the driver may have a stream
// that is created later wait for one that was destroyed before.
func (s *streamCore) Destroy(wait bool) error {
	shared := s.ctx.shared
	shared.mu.Lock()
	delete(shared.streams, s)
	shared.mu.Unlock()
	if wait {
		s.mu.Lock()
	} else if !s.mu.TryLock() {
		return lifetime.ErrLater
	}
	defer s.mu.Unlock()
	if !s.over {
		if err := s.leaveTail(wait); err != nil {
			return err
		}
		if s.of == nil {
			s.forgetBacklog()
		}
		s.over, s.owner = true, nil
	}
	if !s.owned {
		return nil
	}
	if s.tailDone() == driver.CUDA_ERROR_NOT_READY {
		return lifetime.ErrLater
	}
	return s.ctx.destroying("Stream.Close", func() error {
		return executables.destroying(func() error { return driver.CuStreamDestroy(s.raw) })
	})
}

// acquire marks the stream for a call.
func (s *Stream) acquire(op string) (*streamCore, error) {
	if s == nil || s.core == nil || !s.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return s.core, nil
}

// Close destroys the stream, when the work that is on it is done: Close does not wait
// for that. Closing again does nothing; where another call is using the stream, it is
// destroyed when that call is over. Source: cuStreamDestroy.
func (s *Stream) Close() error {
	if s == nil || s.core == nil {
		return nil
	}
	s.cleanup.Stop()
	return s.core.Close()
}

// Release gives up the stream without destroying it, and returns it for
// somebody else to own. It is 0 if the stream was closed already, or is not its
// own, captures, or has a [Stream.Scope] open. Calls in
// flight are waited for. The context is no longer kept alive by it.
func (s *Stream) Release() driver.CUstream {
	if s == nil || s.core == nil || !s.core.Acquire() {
		return 0
	}
	mine := false
	if !rt.InCallback() && lock("Stream.Release", &s.core.mu) == nil {
		mine = s.core.owned && s.core.capture.Load() == nil && s.core.scopes.Load() == 0
		if mine {
			s.core.owned = false
		}
		s.core.mu.Unlock()
	}
	s.core.Release()
	if !mine {
		return 0
	}
	s.Close()
	for !s.core.isOver() {
		time.Sleep(lifetime.Retry)
	}
	return s.core.raw
}

func (s *streamCore) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Borrow returns a Stream that uses the same stream of CUDA's and never
// destroys it. If s is closed, it is destroyed once the borrowed one is closed, too.
func (s *Stream) Borrow() (*Stream, error) {
	const op = "Stream.Borrow"
	c, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return (&streamCore{queue: c.queue, ctx: c.ctx, raw: c.raw, callContext: c.callContext, of: c, owner: s, green: c.green, nonBlocking: c.nonBlocking, priority: c.priority}).adopt(op)
}

// Raw is the stream for calls of package driver, and of the runtime API, whose
// handles are the same: cudart13.CudaStream_t(s.Raw()). It is 0 once the
// stream is closed; keep s reachable meanwhile.
func (s *Stream) Raw() driver.CUstream {
	if s == nil || s.core == nil || s.core.Closed() {
		return 0
	}
	return s.core.raw
}

// NonBlocking tells whether the stream ignores the legacy default stream.
func (s *Stream) NonBlocking() bool { return s != nil && s.core != nil && s.core.nonBlocking }

// Priority is the stream's priority: as granted, or as set since.
func (s *Stream) Priority() int {
	if s == nil || s.core == nil {
		return 0
	}
	return s.priorityNow()
}

// Device is the GPU of the stream.
func (s *Stream) Device() Device {
	if s == nil || s.core == nil {
		return Device{}
	}
	return s.core.ctx.device
}

// ID is unique to the stream in this process. It needs a driver of CUDA 12.0,
// and a stream that captures is [ErrCapturing]. Source: cuStreamGetId.
func (s *Stream) ID() (uint64, error) {
	const op = "Stream.ID"
	c, err := s.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	if err := c.enterAsk(op); err != nil {
		return 0, err
	}
	defer c.leave(nil)
	if c.capturing() {
		return 0, &Error{Op: op, Err: ErrCapturing}
	}
	var id uint64
	err = c.ctx.withCurrent(func() error { return driver.CuStreamGetId(c.raw, &id) })
	return id, wrap(op, err)
}

// capturing tells whether work put on the stream now is captured, also by a capture
// that this package did not begin.
func (s *streamCore) capturing() bool { return rt.Capturing(s.callContext, s.raw) }

// Query tells whether everything on the stream is done, without waiting. Errors
// of earlier work arrive here. Source: cuStreamQuery.
func (s *Stream) Query() (done bool, err error) {
	const op = "Stream.Query"
	if c := s.quick(); c != nil {
		code := rt.Query(c.callContext, c.raw)
		c.mu.Unlock()
		return answer(op, code)
	}
	c, err := s.acquire(op)
	if err != nil {
		return false, err
	}
	done, err = c.query(op)
	c.Release()
	return done, err
}

func (s *streamCore) query(op string) (done bool, err error) {
	for !s.mu.TryLock() {
		switch {
		case rt.InCallback():
			return false, &Error{Op: op, Err: ErrInCallback}
		case s.capture.Load() != nil:
			return false, &Error{Op: op, Err: ErrCapturing}
		case s.works.Load()%2 == 1: // a call, which may wait for the stream, adds work to it
			return false, nil
		}
		runtime.Gosched()
	}
	if err := s.enteredAsk(op); err != nil {
		return false, err
	}
	code := rt.Query(s.callContext, s.raw)
	s.leave(nil)
	return answer(op, code)
}

// answer makes a value of the code that says that work is not done yet.
func answer(op string, code driver.CUresult) (done bool, err error) {
	if code == driver.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return code == 0, check(op, code)
}
