package safe

import (
	"cmp"
	"context"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
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

// WithoutCaptures calls f, which calls other libraries, while no stream of the context captures: for functions that
// create and destroy objects of libraries, and may use the legacy default stream or wait for all work of the context,
// such as cublasCreate or ncclCommInitRank. The goroutine stays on its thread during f, where the context is current
// and the capture mode is RELAXED; f may make others current. WithoutCaptures restores the thread even if f panics or
// ends its goroutine.
//
// f may also call libraries in the contexts others, such as those of all devices of a communicator. Libraries that keep
// a state for each thread, such as a group of NCCL, must begin and end it in one f.
//
// WithoutCaptures returns [ErrCapturing] while a stream of one of the contexts is capturing, or any stream in mode
// [CaptureGlobal]. Captures that begin meanwhile wait for f; see [Stream.CaptureWith]. Calls in f on several goroutines
// may wait for each other.
//
// If f waits for the work of a context, call [Context.Wait] first. Otherwise, if a stream is stuck, no capture can
// begin, and no executable can be destroyed on any device.
//
// f must not call functions of this package that need CUDA, which return [ErrInCallback], nor wait for a goroutine that
// begins a capture. Buffers know nothing of work that f enqueues: use [Stream.EnqueueRaw] for it. WithoutCaptures
// returns f's error as the Err of an [*Error].
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
	return hostWaits.With(0, func() error { return contexts[0].callForeign(op, nil, f) })
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

// Wait waits until the current work of the context's streams has completed, including streams that were closed. It does
// not wait for work that is enqueued later, nor for streams that this package does not know. It also returns errors of
// earlier work. If ctx ends first, Wait returns its cause, and the work goes on. Captures may begin meanwhile.
//
// Wait returns [ErrCapturing] if a stream of the context is capturing, and [ErrInCallback] in a host function. Source:
// cuStreamQuery, cuEventRecord, cuEventQuery.
func (x *Context) Wait(ctx context.Context) error {
	const op = "Context.Wait"
	if ctx == nil {
		return noContext(op)
	}
	c, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	markers, err := c.shared.markAll(ctx, op)
	defer func() { endAll(markers) }()
	for nap := admit.ShortNap; err == nil && len(markers) > 0; nap = nap.Take() {
		markers, err = unreached(op, markers)
		switch {
		case err != nil || len(markers) == 0:
		case ctx.Err() != nil:
			err = &Error{Op: op, Err: context.Cause(ctx)}
		}
	}
	return err
}

// markAll marks the ends of the current work of all streams. The caller ends the markers, also after
// an error.
func (c *contextState) markAll(ctx context.Context, op string) (markers []marker, err error) {
	for _, s := range append(c.live(), c.closed.all()...) {
		m, done, err := s.markSoon(ctx, op)
		switch {
		case err == rt.CodeReset:
			return markers, &Error{Op: op, Err: ErrReset}
		case err != nil:
			return markers, wrap(op, err)
		case !done:
			markers = append(markers, m)
		}
	}
	return markers, nil
}

// markSoon marks the end of the stream's work. It waits for the lock of the stream until ctx ends.
func (s *streamCore) markSoon(ctx context.Context, op string) (m marker, done bool, err error) {
	if err := s.lockContext(ctx, op); err != nil {
		return m, false, err
	}
	if done = !s.mayWork(); !done {
		m, done, err = s.markEnd(true)
	}
	s.mu.Unlock()
	return m, done, err
}

// mayWork returns whether the driver can tell if the stream has work. The program may have destroyed a
// closed stream that other code owns. mu is held.
func (s *streamCore) mayWork() bool {
	if s.over {
		return s.tail != 0
	}
	return s.owned || s.used || s.worked && !s.foreign || !s.Closed()
}

// unreached ends the markers that are reached, and returns the others. err is an error of the work.
func unreached(op string, markers []marker) (left []marker, err error) {
	for _, m := range markers {
		code := m.done()
		if code == driver.CUDA_ERROR_NOT_READY {
			left = append(left, m)
			continue
		}
		m.end()
		err = cmp.Or(err, check(op, code))
	}
	return left, err
}
