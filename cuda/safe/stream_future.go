package safe

import (
	"context"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A Future is a value that is there when some work of a stream is done. Any
// number of goroutines may wait for it, with a context or in a select, and none
// need to.
type Future[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Done is closed when the work is done, or has failed.
func (f *Future[T]) Done() <-chan struct{} { return f.done }

// Err is why the work failed. It is nil as long as Done is not closed.
func (f *Future[T]) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Wait waits for the value, or until ctx ends: the error is then its cause.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		var none T
		return none, &Error{Op: "Future.Wait", Err: context.Cause(ctx)}
	}
}

// complete gives everybody the value.
func (f *Future[T]) complete(value T, err error) {
	f.value, f.err = value, err
	close(f.done)
}

// Completion is a future of the work that is on the stream now, like a
// [Stream.Wait] that began now. Errors of that work and of earlier work arrive
// in it. Where it cannot be waited for, as on a capturing stream, the future has
// failed already. Source: cuStreamQuery, cuEventRecord, cuEventQuery.
func (s *Stream) Completion() *Future[struct{}] {
	f := &Future[struct{}]{done: make(chan struct{})}
	completion("Stream.Completion", s, f, struct{}{})
	return f
}

// Enqueue calls f, which puts work on s, and returns a future of what f returns:
// it is there when the work is done. If f fails, the future has failed already,
// with f's error, and what f has put on the stream goes on.
func Enqueue[T any](s *Stream, f func(*Stream) (T, error)) *Future[T] {
	p := &Future[T]{done: make(chan struct{})}
	value, err := f(s)
	if err != nil {
		p.complete(value, err)
		return p
	}
	completion("Enqueue", s, p, value)
	return p
}

// completion completes f when the work that is on the stream now is done.
func completion[T any](op string, s *Stream, f *Future[T], value T) {
	var none T
	c, err := s.acquire(op)
	if err != nil {
		f.complete(none, err)
		return
	}
	w, done, err := c.waiter(context.Background(), op, true)
	c.Release()
	if done {
		if err != nil {
			value = none
		}
		f.complete(value, err)
		return
	}
	w.then = func(code driver.CUresult) {
		if code != 0 {
			f.complete(none, failed(op, code))
			return
		}
		f.complete(value, nil)
	}
	poller.add(w)
}
