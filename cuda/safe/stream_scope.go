package safe

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A Scope lends Go memory to a stream: see [Stream.Scope].
type Scope struct{ *scopeCore }

// A scopeCore is what a Scope and its copies share.
type scopeCore struct {
	stream *Stream     // of its own: the program may write another into the one that it has
	over   atomic.Bool // set with mu held

	mu       admit.Mutex[admit.OwnerRank] // held during a copy: the end of the scope waits for one of another goroutine
	pinner   runtime.Pinner
	copies   marker // of the latest copy, for a scope that cannot wait for the stream
	unmarked bool   // the end of the copies is unknown
}

// none returns whether c is nil or a zero value.
func (c *Scope) none() bool { return c == nil || c.scopeCore == nil }

// Scope calls f and then waits until the stream's work has completed, even if f returns
// an error, panics or ends its goroutine. Until then it pins the Go memory that f lends
// to the stream with [CopyFromSlice] and [CopyToSlice]. Scope returns f's error, or else
// that of the wait.
//
// Scope returns [ErrCapturing] if the stream is capturing, or if a capture that began meanwhile is still open when f
// returns. In the second case it has waited for the copies of the Scope, but not for other work. Only f's goroutine may use the Scope.
func (s *Stream) Scope(f func(*Scope) error) (err error) {
	const op = "Stream.Scope"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if err := c.notCapturing(op); err != nil {
		return err
	}
	if f == nil {
		return noFunction(op)
	}
	scope := &scopeCore{stream: &Stream{core: c}}
	defer runtime.KeepAlive(s)
	c.scopes.Add(1)
	defer c.scopes.Add(-1)
	defer func() {
		if waited := scope.end(op, c); err == nil {
			err = waited
		}
	}()
	return f(&Scope{scope})
}

// end refuses further copies, waits for the stream, which is acquired, and unpins the memory.
func (c *scopeCore) end(op string, s *streamCore) error {
	c.mu.Lock()
	c.over.Store(true)
	c.mu.Unlock()
	err := s.waitForScope(op)
	if errors.Is(err, ErrCapturing) && !c.awaitCopies() { // the driver may still use the memory
		stranded.keep(c.pinner)
	} else {
		c.pinner.Unpin()
	}
	c.copies.end()
	return err
}

// mark marks the end of a copy that was enqueued on s, which is locked.
func (c *scopeCore) mark(s *streamCore) {
	if c.copies.event == 0 {
		e, err := s.ctx.shared.events.get(s.ctx)
		if err != nil {
			c.unmarked = true
			return
		}
		s.ctx.Retain() // the live stream retains it
		c.copies = marker{s, e}
	}
	c.unmarked = rt.Record(s.callContext, c.copies.event, s.raw) != 0
}

// awaitCopies waits for the copies. It returns false if their end is unknown.
func (c *scopeCore) awaitCopies() bool {
	if c.copies.event != 0 && !c.unmarked {
		c.copies.wait()
	}
	return !c.unmarked
}

// notCapturing returns ErrCapturing if the stream is capturing now.
func (s *streamCore) notCapturing(op string) error {
	a := admission{op: op, stream: s, flags: asks}
	if err := a.admit(); err != nil {
		return err
	}
	defer a.leave(true)
	if s.capturing() {
		return &Error{Op: op, Err: ErrCapturing}
	}
	return nil
}

// waitForScope waits for the work of a scope, without a deadline. The caller has acquired
// the stream, which f may have closed.
func (s *streamCore) waitForScope(op string) error {
	w, done, err := s.waiter(context.Background(), op, s.slow.Load())
	if !done {
		err = w.wait(context.Background(), op)
	}
	if err == nil || IsFatal(err) || errors.Is(err, ErrCapturing) {
		return err
	}
	// There is no event, for instance because memory is exhausted, or it cannot be queried:
	// the driver has to wait.
	return wrap(op, s.ctx.withCurrent(s.synchronize))
}

// CopyFromSlice enqueues a copy of src to the beginning of dst on the scope's stream. Do
// not write to src until the scope ends: the driver reads it at any time until then. It
// returns [ErrRange] if src is longer than dst. Source: cuMemcpyHtoDAsync.
func CopyFromSlice[T any](c *Scope, dst *Buffer[T], src []T) error {
	const op = "CopyFromSlice"
	b, err := dst.acquire(op)
	if err != nil {
		return err
	}
	defer b.Release()
	if err := fits(op, len(src), dst.n); err != nil {
		return err
	}
	return c.copy(op, &rt.Copy{Kind: rt.HostToDevice, Dst: dst.address, Size: byteSize(src)}, unsafe.Pointer(unsafe.SliceData(src)), b)
}

// CopyToSlice enqueues a copy of all of src to dst on the scope's stream. Do not use dst
// until the scope ends. The call may block until the stream's work has completed, because
// the memory is not page-locked. It returns [ErrRange] if src is longer than dst. Source:
// cuMemcpyDtoHAsync.
func CopyToSlice[T any](c *Scope, dst []T, src *Buffer[T]) error {
	const op = "CopyToSlice"
	b, err := src.acquire(op)
	if err != nil {
		return err
	}
	defer b.Release()
	if err := fits(op, src.n, len(dst)); err != nil {
		return err
	}
	return c.copy(op, &rt.Copy{Kind: rt.DeviceToHost, Src: src.address, Size: src.Size()}, unsafe.Pointer(unsafe.SliceData(dst)), b)
}

// copy enqueues a copy from or to Go memory, which it pins.
func (c *Scope) copy(op string, what *rt.Copy, host unsafe.Pointer, b *block) error {
	if c.none() {
		return &Error{Op: op, Err: ErrClosed}
	}
	if err := lock(op, &c.mu); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if c.over.Load() {
		return &Error{Op: op, Err: ErrClosed}
	}
	if what.Size > 0 {
		c.pinner.Pin(host)
	}
	return c.stream.copyThen(op, what, host, b.ctx, c.mark, b)
}

// String describes the scope for messages.
func (c *Scope) String() string {
	if c.none() {
		return neverOpened("Scope")
	}
	return "Scope of " + c.stream.String() + closedText(c.over.Load())
}
