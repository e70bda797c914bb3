package safe

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// HostFuncOptions are the choices at [Stream.LaunchHostFunc].
type HostFuncOptions struct {
	// Spin has the driver's thread spin while it waits for the stream, so that the
	// function runs sooner. It needs a driver of CUDA 13.2.
	Spin bool
}

// PanicError says that a function which CUDA called has panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("cuda: a function called by CUDA panicked: %v\n%s", e.Value, e.Stack)
}

// SlowCallbackError says that a function which CUDA called took long. All of
// them share one thread, and the stream waits as well.
type SlowCallbackError struct{ Took time.Duration }

func (e *SlowCallbackError) Error() string {
	return fmt.Sprintf("cuda: a function called by CUDA took %v, and all others had to wait", e.Took)
}

// slow is what is reported.
const slow = 100 * time.Millisecond

// A closure is a Go function that CUDA calls.
type closure struct {
	host   func()
	status func(error)
	future *Future[struct{}] // of a host function that runs once
	repeat bool              // captured: runs at every launch of a graph
	ctx    *contextCore      // with a future
}

// closures has the functions that CUDA may still call, by the tokens that it
// has in place of them. A token that is not there any more does nothing.
var closures = struct {
	sync.Mutex
	of      map[uintptr]*closure
	last    uintptr
	pending map[*contextCore]int // how many futures
	witness bool                 // will be called, as there are some
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

// keep gives a closure its token.
func (c *closure) keep() (token uintptr) {
	closures.Lock()
	defer closures.Unlock()
	closures.last++
	closures.of[closures.last] = c
	if c.ctx != nil {
		closures.pending[c.ctx]++
		if !closures.witness {
			closures.witness = true
			time.AfterFunc(askWitness, witness)
		}
	}
	return closures.last
}

// remove takes a closure out. closures is locked.
func remove(token uintptr, c *closure) {
	delete(closures.of, token)
	if c.ctx == nil {
		return
	}
	if closures.pending[c.ctx]--; closures.pending[c.ctx] == 0 {
		delete(closures.pending, c.ctx)
	}
}

// called finds a closure that is to run now.
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

// guard calls f for CUDA: a panic must not get there.
func guard(f func()) (err error) {
	start := time.Now()
	defer func() {
		if err != nil {
			lifetime.ReportLater(err)
		}
		if took := time.Since(start); took > slow {
			lifetime.ReportLater(&SlowCallbackError{took})
		}
	}()
	return caught(f)
}

// caught calls f, and makes an error of a panic.
func caught(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

// LaunchHostFunc puts a call of f on the stream: f runs when all work before it
// is done, and work behind it waits for f. The future is completed when f has
// run; it fails if f panics, which is reported to [OnError] as well, or if
// CUDA is lost or the context is reset, and then f never runs.
//
// f runs on a thread of the driver, which all host functions share: what takes
// long belongs into a goroutine. There, everything of this package that needs
// CUDA is [ErrInCallback], and runtime.Goexit (also by testing's FailNow) ends the
// process. f may wait for other goroutines, but not for ones that wait for
// later work of this stream.
//
// On a capturing stream f becomes part of the graph, runs at each of its
// launches, and is kept as long as the graph or an executable of it is; the
// future has then failed with [ErrCapturing].
//
// Source: cuLaunchHostFunc, with Spin cuLaunchHostFunc_v2.
func (s *Stream) LaunchHostFunc(f func(), o HostFuncOptions) (*Future[struct{}], error) {
	const op = "Stream.LaunchHostFunc"
	c, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	mode, err := o.mode(op)
	if err != nil {
		return nil, err
	}
	capture, err := c.enterWork(op, 0)
	if err != nil {
		return nil, err
	}
	defer c.leaveWork(capture)
	future := &Future[struct{}]{done: make(chan struct{})}
	call := &closure{host: f, future: future, ctx: c.ctx}
	if capture != nil || c.capturing() {
		call.future, call.repeat, call.ctx = nil, true, nil
		future.complete(struct{}{}, &Error{Op: op, Err: ErrCapturing})
	}
	token := call.keep()
	if code := rt.HostFunc(c.callContext, c.raw, token, mode); code != 0 {
		forget(token)
		return nil, check(op, code)
	}
	if call.repeat && capture != nil { // else of a capture begun by other means: kept for good
		capture.graph.kept.captured.token(token)
	}
	return future, nil
}

// mode is the driver's number for the options, -1 for the older functions, which
// have none.
func (o HostFuncOptions) mode(op string) (int, error) {
	if !o.Spin {
		return -1, nil
	}
	return int(driver.CU_HOST_TASK_SPINWAIT), wrap(op, driver.Find("cuLaunchHostFunc_v2"))
}

// AddCallback puts a call of f on the stream, which gets the error of the work
// before it, nil if all went well. Unlike a host function's, f's call is certain:
// if CUDA is lost meanwhile, f gets that error. What is said of f at
// [Stream.LaunchHostFunc] counts here as well. A capturing stream is
// [ErrCapturing]. Source: cuStreamAddCallback.
func (s *Stream) AddCallback(f func(error)) error {
	const op = "Stream.AddCallback"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if err := c.enterAsk(op); err != nil {
		return err
	}
	defer c.leave(nil)
	token := (&closure{status: f}).keep()
	if code := rt.AddCallback(c.callContext, c.raw, token); code != 0 {
		forget(token)
		return check(op, code)
	}
	return nil
}
