package safe

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// HostFuncOptions are the options of [Stream.LaunchHostFuncWith], [Batch.LaunchHostFuncWith] and [HostFuncNodeWith].
type HostFuncOptions struct {
	// Spin makes the driver's thread spin while it waits for the stream, so that the
	// function starts sooner. With a driver before CUDA 13.2, calls return
	// [ErrNotSupported].
	Spin bool
}

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
	sync.Mutex
	of      map[uintptr]*closure
	last    uintptr
	pending map[*contextCore]int // number of futures
	witness bool                 // a call of witness is scheduled
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
	return s.LaunchHostFuncWith(f, HostFuncOptions{})
}

// LaunchHostFuncWith is [Stream.LaunchHostFunc] with options. Source: cuLaunchHostFunc, with Spin cuLaunchHostFunc_v2.
func (s *Stream) LaunchHostFuncWith(f func(), o HostFuncOptions) (*Future[struct{}], error) {
	const op = "Stream.LaunchHostFunc"
	c, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return c.launchHostFunc(op, f, o)
}

// launchHostFunc is LaunchHostFunc on an acquired stream.
func (s *streamCore) launchHostFunc(op string, f func(), o HostFuncOptions) (*Future[struct{}], error) {
	if f == nil {
		return nil, noFunction(op)
	}
	mode, err := o.mode(op)
	if err != nil {
		return nil, err
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
	if code := rt.HostFunc(s.callContext, s.raw, token, mode); code != 0 {
		forget(token)
		return nil, check(op, code)
	}
	if call.repeat && a.capture != nil { // a capture that this package did not begin has no known end: the closure stays
		a.capture.graph.kept.captured.token(token)
	}
	return future, nil
}

// mode returns the driver's number for the options, or -1 for the older function, which
// has no options.
func (o HostFuncOptions) mode(op string) (int, error) {
	if !o.Spin {
		return -1, nil
	}
	return int(driver.CU_HOST_TASK_SPINWAIT), wrap(op, driver.Find("cuLaunchHostFunc_v2"))
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
