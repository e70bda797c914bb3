package safe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// PanicError is a panic of a function of the program that runs on a CUDA thread or on a goroutine
// of this package: a host function, a stream callback, or a function of [NewResource],
// [Graph.OnRelease] or [OnError]. The function of OnError receives the PanicError, and the
// program goes on. All other functions run on the caller's goroutine and panic there, once the
// call has undone what it began.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("cuda: a function that CUDA or package safe called panicked: %v\n%s", e.Value, e.Stack)
}

// SlowCallbackError reports that a Go function called by CUDA took more than 100 ms. All
// such functions share one thread, and their streams wait for them.
type SlowCallbackError struct{ Took time.Duration }

func (e *SlowCallbackError) Error() string {
	return fmt.Sprintf("cuda: a function called by CUDA took %v; all others had to wait: start a goroutine for slow work", e.Took)
}

// slow is the limit for SlowCallbackError.
const slow = 100 * time.Millisecond

// A closure is a Go function that CUDA calls.
type closure struct {
	host   func()
	status func(error)
	future *Future[struct{}] // of a host function that runs once, or nil
	repeat bool              // captured: runs at each launch of a graph
	ctx    *contextCore      // set if there is a future
}

// closures holds the functions that CUDA may still call, by the tokens that CUDA has in
// their place. CUDA may also call a token that was removed; that call does nothing.
var closures = struct {
	admit.Leaf // guards all fields
	of         map[uintptr]*closure
	last       uintptr
	pending    map[*contextCore]int // number of futures
	witness    bool                 // a call of witness is scheduled
}{of: map[uintptr]*closure{}, pending: map[*contextCore]int{}}

func init() {
	rt.OnHostFunc = func(token uintptr) {
		if c := called(token); c != nil {
			c.runHost()
		}
	}
	rt.OnStatus = func(token uintptr, code driver.CUresult) {
		if c := called(token); c != nil {
			guard(func() { c.status(check("Stream.AddCallback", code)) })
		}
	}
}

// keep adds the closure and returns its token.
func (c *closure) keep() (token uintptr) {
	closures.Lock()
	defer closures.Unlock()
	closures.last++
	closures.of[closures.last] = c
	if c.ctx != nil {
		closures.pending[c.ctx]++
		if !closures.witness {
			closures.witness = true
			callWitness()
		}
	}
	return closures.last
}

// remove removes a closure. closures is locked.
func remove(token uintptr, c *closure) {
	delete(closures.of, token)
	if c.ctx == nil {
		return
	}
	if closures.pending[c.ctx]--; closures.pending[c.ctx] == 0 {
		delete(closures.pending, c.ctx)
	}
}

// called returns the closure that runs now, or nil.
func called(token uintptr) *closure {
	closures.Lock()
	defer closures.Unlock()
	c := closures.of[token]
	if c != nil && !c.repeat {
		remove(token, c)
	}
	return c
}

func forget(token uintptr) {
	closures.Lock()
	defer closures.Unlock()
	if c := closures.of[token]; c != nil {
		remove(token, c)
	}
}

func (c *closure) runHost() {
	err := guard(c.host)
	if c.future != nil {
		c.future.complete(struct{}{}, err)
	}
}

// hostFuncs counts the functions of the program's that run on CUDA's thread.
var hostFuncs atomic.Int32

// guard calls f on a thread of CUDA's, where a panic would end the process.
func guard(f func()) (err error) {
	hostFuncs.Add(1)
	defer hostFuncs.Add(-1)
	start := time.Now()
	defer func() {
		if err != nil {
			lifetime.Report(err)
		}
		if took := time.Since(start); took > slow {
			lifetime.Report(&SlowCallbackError{took})
		}
	}()
	return caught(f)
}

// caught calls f and returns a panic as an error.
func caught(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

// caughtApart calls f on a goroutine of its own, which f may end, and returns a panic of f as a *PanicError.
func caughtApart(f func()) (err error) {
	lifetime.Apart(func() { err = caught(f) })
	return err
}

// LaunchHostFunc enqueues a call of f: f runs once all earlier work of the stream has
// completed, and later work waits for f. The future completes when f has returned. It
// fails if f panics, which [OnError] receives too. It also fails if CUDA is lost (see
// [IsFatal]) or other code resets the context; f then never runs.
//
// f runs on a thread of the driver that all host functions share, so start a goroutine
// for anything slow. Calls in f that need CUDA return [ErrInCallback]. f must not call
// runtime.Goexit, which FailNow of package testing does: it ends the process. f may wait
// for other goroutines unless they wait for later work of this stream.
//
// On a capturing stream, f becomes part of the graph and runs at each launch. The graph
// and its executables retain f. The future has then failed with [ErrCapturing].
//
// Source: cuLaunchHostFunc.
func (s *Stream) LaunchHostFunc(f func()) (*Future[struct{}], error) {
	const op = "Stream.LaunchHostFunc"
	c, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return c.launchHostFunc(op, f)
}

// launchHostFunc is LaunchHostFunc on an acquired stream.
func (s *streamCore) launchHostFunc(op string, f func()) (*Future[struct{}], error) {
	if f == nil {
		return nil, noFunction(op)
	}
	a := admission{op: op, stream: s, flags: enqueues}
	if err := a.admit(); err != nil {
		return nil, err
	}
	defer a.leave(true)
	future := newFuture[struct{}]()
	call := &closure{host: f, future: future, ctx: s.ctx}
	if a.capture != nil || s.capturing() {
		call.future, call.repeat, call.ctx = nil, true, nil
		future.complete(struct{}{}, &Error{Op: op, Err: ErrCapturing})
	}
	token := call.keep()
	if code := rt.HostFunc(s.callContext, s.raw, token); code != 0 {
		forget(token)
		return nil, check(op, code)
	}
	if call.repeat && a.capture != nil { // a capture that this package did not begin has no known end: the closure stays
		a.capture.graph.kept.captured.token(token)
	}
	return future, nil
}

// AddCallback enqueues a call of f, which receives the error of earlier work, or nil.
// Unlike a host function, f is always called: if CUDA is lost, f receives that error. The
// rules for f are those of [Stream.LaunchHostFunc]. AddCallback returns [ErrCapturing] if
// the stream is capturing. Source: cuStreamAddCallback.
func (s *Stream) AddCallback(f func(error)) error {
	const op = "Stream.AddCallback"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if f == nil {
		return noFunction(op)
	}
	a := admission{op: op, stream: c, flags: asks}
	if err := a.admit(); err != nil {
		return err
	}
	defer a.leave(true)
	c.worked = true
	token := (&closure{status: f}).keep()
	if code := rt.AddCallback(c.callContext, c.raw, token); code != 0 {
		forget(token)
		return check(op, code)
	}
	return nil
}

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
	if poller.add(w) {
		go poller.run(&waitQueues{}, nil)
	}
}

// String tells whether the work is pending, done or failed, and why.
func (f *Future[T]) String() string {
	kind := generic[T]("Future")
	if f.none() {
		return neverOpened(kind)
	}
	select {
	case <-f.done:
		if f.err != nil {
			return kind + ": failed: " + f.err.Error()
		}
		return kind + ": done"
	default:
		return kind + ": pending"
	}
}

// If CUDA is lost, the driver never calls the host functions that are pending, and
// reports the loss only to later calls. While futures wait for host functions, the
// witness therefore calls the driver.
const askWitness = 25 * time.Millisecond

// witnesses runs the witness.
var witnesses lifetime.Queue

func callWitness() {
	time.AfterFunc(askWitness, func() { witnesses.Add(witness) })
}

// witness queries CUDA in every context with futures of host functions.
func witness() (again bool) {
	closures.Lock()
	contexts := slices.Collect(maps.Keys(closures.pending))
	closures.Unlock()
	for _, c := range contexts {
		if c.TryRetain() { // else it is being destroyed
			c.ask()
			c.Release()
		}
	}
	closures.Lock()
	defer closures.Unlock()
	if closures.witness = len(closures.pending) > 0; closures.witness {
		callWitness()
	}
	return false
}

// ask queries CUDA, which returns an error if CUDA is lost or if other code has reset the
// context.
func (c *contextCore) ask() {
	e, err := c.shared.events.get(c)
	if err == nil {
		err = check("", c.home().EventQuery(e))
		c.shared.events.put(e)
	}
	if err := wrap("", err); errors.Is(err, ErrReset) {
		abandon(rt.CodeReset, c)
	} // wrap has noticed a loss
}

// abandon completes the futures of host functions that CUDA will never call, of one
// context or of all. If CUDA calls one nevertheless, the call does nothing.
func abandon(code driver.CUresult, of *contextCore) {
	closures.Lock()
	var ended []*closure
	for token, c := range closures.of {
		if c.ctx != nil && (of == nil || c.ctx == of) {
			remove(token, c)
			ended = append(ended, c)
		}
	}
	closures.Unlock()
	for _, c := range ended {
		c.future.complete(struct{}{}, failed("Stream.LaunchHostFunc", code))
	}
}

func init() { onLoss = noticeLoss }

// losing is set while a report of a loss is queued.
var losing atomic.Bool

// noticeLoss fails the futures of host functions. The reaper does it, because the caller
// may hold locks.
func noticeLoss(code driver.CUresult) {
	if losing.Swap(true) {
		return
	}
	lifetime.Reaper.Add(func() bool {
		failAll(code)
		return false
	})
}

// failAll fails the futures of host functions. A loss that is noticed from now on is reported again, as it may
// concern new ones.
func failAll(code driver.CUresult) {
	losing.Store(false)
	admit.Between()
	abandon(code, nil)
}
