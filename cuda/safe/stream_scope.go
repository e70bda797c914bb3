package safe

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A Scope lends Go memory to a stream: see [Stream.Scope].
type Scope struct {
	stream *Stream
	pinner runtime.Pinner
	over   bool
}

// Scope calls f and then waits until the work of the stream is done, also if f
// returns an error, panics or ends its goroutine. Go memory that f lends to the
// stream, by [CopyFromSlice] and [CopyToSlice], stays where it is until then. The
// error is f's, else that of the wait.
//
// A capturing stream is [ErrCapturing]; f must not begin a capture on the stream
// that goes on after it, as then the memory is never let go. The scope is for f's
// goroutine alone.
func (s *Stream) Scope(f func(*Scope) error) (err error) {
	const op = "Stream.Scope"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if err := c.enterAsk(op); err != nil {
		return err
	}
	captures := c.capturing()
	c.leave(nil)
	if captures {
		return &Error{Op: op, Err: ErrCapturing}
	}
	scope := &Scope{stream: s}
	c.scopes.Add(1)
	defer c.scopes.Add(-1)
	defer func() {
		scope.over = true
		waited := c.waitForScope(op)
		if errors.Is(waited, ErrCapturing) { // nobody can tell when the copies are over
			stranded.keep(scope.pinner)
		} else {
			scope.pinner.Unpin()
		}
		if err == nil {
			err = waited
		}
	}()
	return f(scope)
}

// stranded are pins that are never let go. Go crashes a program that drops one.
var stranded pins

type pins struct {
	sync.Mutex
	of []runtime.Pinner
}

func (p *pins) keep(pin runtime.Pinner) {
	p.Lock()
	defer p.Unlock()
	p.of = append(p.of, pin)
}

// waitForScope waits for the work of a scope, without end. A stream that f has
// closed is still marked.
func (s *streamCore) waitForScope(op string) error {
	w, done, err := s.waiter(context.Background(), op, s.slow.Load())
	switch {
	case !done:
		return w.wait(context.Background(), op)
	case err == nil || IsFatal(err) || errors.Is(err, ErrCapturing):
		return err
	}
	// Without an event, as where memory is out, the driver has to wait.
	return wrap(op, s.ctx.withCurrent(func() error { return driver.CuStreamSynchronize(s.raw) }))
}

// CopyFromSlice puts a copy of a slice to dst on the scope's stream. src must
// not be written to until the scope ends; the driver may copy it to memory of
// its own at once. Source: cuMemcpyHtoDAsync.
func CopyFromSlice[T any](c *Scope, dst *Buffer[T], src []T) error {
	const op = "CopyFromSlice"
	b, err := dst.acquire(op)
	if err != nil {
		return err
	}
	defer b.Release()
	if err := fits(op, len(src), dst.n); err != nil || len(src) == 0 {
		return err
	}
	return c.copy(op, &rt.Copy{Kind: rt.HostToDevice, Dst: dst.address, Size: byteSize(src)}, unsafe.Pointer(&src[0]), b)
}

// CopyToSlice puts a copy of src to a slice on the scope's stream. dst must not
// be used until the scope ends. The call can take as long as the work that is
// on the stream, as the memory is not registered. Source: cuMemcpyDtoHAsync.
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
	return c.copy(op, &rt.Copy{Kind: rt.DeviceToHost, Src: src.address, Size: src.Size()}, unsafe.Pointer(&dst[0]), b)
}

// copy is a copy from or to memory of Go's, which it pins.
func (c *Scope) copy(op string, what *rt.Copy, host unsafe.Pointer, b *block) error {
	if c == nil || c.over {
		return &Error{Op: op, Err: ErrClosed}
	}
	c.pinner.Pin(host)
	return c.stream.copy(op, what, host, b)
}
