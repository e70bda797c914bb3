package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"

	"github.com/cudabind/cudabind/cuda/internal/admit"
)

// Synchronize waits until all work of the context, on every stream, has completed. It
// blocks the thread.
//
// CUDA would invalidate every capture in the context. Synchronize therefore returns
// [ErrCapturing] while a stream of the context that this package knows is capturing. Other
// code must not begin a capture meanwhile: CUDA crashes if the two coincide.
// Source: cuCtxSynchronize.
func (x *Context) Synchronize() error {
	const op = "Context.Synchronize"
	return x.do(op, func() error {
		leave, err := enterWhole(op, x.core)
		if err != nil {
			return err
		}
		defer leave()
		return hostWaits.With(0, driver.CuCtxSynchronize)
	})
}

// WithoutCaptures calls f, which calls other libraries, while no stream of the context
// captures: for functions that create and destroy objects of libraries, and may use the
// legacy default stream or wait for all work of the context, such as cublasCreate or
// ncclCommInitRank. The goroutine stays on its thread during f, where the context is
// current and the capture mode is RELAXED; f may make others current. WithoutCaptures
// restores the thread even if f panics or ends its goroutine.
//
// f may also call libraries in the contexts others, such as those of all devices of a
// communicator. Libraries that keep a state for each thread, such as a group of NCCL,
// must begin and end it in one f.
//
// WithoutCaptures returns [ErrCapturing] while a stream of one of the contexts is
// capturing, or any stream in mode [CaptureGlobal]. Captures that begin meanwhile wait for
// f; see [Stream.CaptureWith]. Calls in f on several goroutines may wait for each other.
//
// If f waits for the work of a context, call [Context.Wait] before: a stuck stream then keeps no
// captures from beginning, nor destructions of executables on other devices from going on.
//
// f must not call functions of this package that need CUDA, which return [ErrInCallback],
// nor wait for a goroutine that begins a capture. Buffers know nothing of work that f
// enqueues: use [Stream.EnqueueRaw] for it. f's error is returned as the Err of an
// [*Error].
//
// Source: cuCtxSetCurrent, cuThreadExchangeStreamCaptureMode.
func (x *Context) WithoutCaptures(f func() error, others ...*Context) error {
	const op = "Context.WithoutCaptures"
	contexts := make([]*contextCore, 0, 1+len(others))
	for _, o := range append([]*Context{x}, others...) {
		c, err := o.acquire(op)
		if err != nil {
			return err
		}
		defer c.Release()
		contexts = append(contexts, c)
	}
	if f == nil {
		return noFunction(op)
	}
	leave, err := enterWhole(op, contexts...)
	if err != nil {
		return wrap(op, err)
	}
	defer leave()
	slot := executables.Slot(0)
	if err := slot.Enter(&executables); err != nil {
		return wrap(op, err)
	}
	defer slot.Leave()
	return hostWaits.With(0, func() error { return contexts[0].callForeign(op, f) })
}

// enterWhole admits a call that would invalidate the captures of all streams of the
// contexts.
func enterWhole(op string, contexts ...*contextCore) (leave func(), err error) {
	gates := []*admit.Gate{&synchronizing}
	for _, c := range contexts {
		gates = append(gates, &c.shared.whole)
	}
	if err := admit.EnterLong(gates...); err != nil {
		return nil, err
	}
	leave = func() {
		for _, g := range gates {
			g.LeaveLong()
		}
	}
	for _, c := range contexts {
		if err := c.uncaptured(op); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// uncaptured returns an error if a stream of the context is in a capture that this package
// did not begin.
func (c *contextCore) uncaptured(op string) error {
	return c.withCurrent(func() error {
		for _, s := range c.shared.live() {
			if s.look() {
				return refuse(op, ErrCapturing, "another stream of the context is capturing")
			}
		}
		return nil
	})
}
