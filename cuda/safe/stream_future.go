package safe

import (
	"context"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A Future is a value that becomes available once some work of a stream has completed.
// Any number of goroutines may wait for it, with a context or in a select. It costs
// nothing to ignore it.
type Future[T any] struct{ *futureCore[T] }

// A futureCore is what a Future and its copies share.
type futureCore[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newFuture[T any]() *Future[T] {
	all := &struct { // one allocation
		Future[T]
		room futureCore[T]
	}{}
	all.room.done = make(chan struct{})
	all.futureCore = &all.room
	return &all.Future
}

// none returns whether f is nil or a zero value, which has failed with ErrClosed.
func (f *Future[T]) none() bool { return f == nil || f.futureCore == nil }

// noWork is the channel of futures of nothing.
var noWork = make(chan struct{})

func init() { close(noWork) }

// Done returns a channel that is closed once the work has completed or failed.
func (f *Future[T]) Done() <-chan struct{} {
	if f.none() {
		return noWork
	}
	return f.done
}

// Err returns the error of the work. It returns nil until Done is closed.
func (f *Future[T]) Err() error {
	if f.none() {
		return &Error{Op: "Future.Err", Err: ErrClosed}
	}
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Wait waits until the work has completed, and returns the value. If ctx ends first, it
// returns the cause.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	const op = "Future.Wait"
	var none T
	if f.none() {
		return none, &Error{Op: op, Err: ErrClosed}
	}
	if ctx == nil {
		return none, noContext(op)
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		return none, &Error{Op: op, Err: context.Cause(ctx)}
	}
}

// complete sets the value and wakes all waiters.
func (f *Future[T]) complete(value T, err error) {
	f.value, f.err = value, err
	close(f.done)
}

// Completion returns a future that completes when the current work of the stream has
// completed, like a [Stream.Wait] that begins now. It fails with the errors of that work
// and of earlier work. If the stream cannot be waited for, for instance because it is
// capturing, the future has already failed. Source: cuStreamQuery, cuEventRecord,
// cuEventQuery.
func (s *Stream) Completion() *Future[struct{}] {
	f := newFuture[struct{}]()
	completion("Stream.Completion", s, f, struct{}{})
	return f
}

// Enqueue calls f, which enqueues work on s, and returns a future of f's value that completes
// when the work has. If f returns an error, the future has already failed with that error; the
// work that f enqueued still runs.
func Enqueue[T any](s *Stream, f func(*Stream) (T, error)) *Future[T] {
	p := newFuture[T]()
	if f == nil {
		var none T
		p.complete(none, noFunction("Enqueue"))
		return p
	}
	value, err := f(s)
	if err != nil {
		p.complete(value, err)
		return p
	}
	completion("Enqueue", s, p, value)
	return p
}

// completion completes f when the current work of the stream has completed.
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
