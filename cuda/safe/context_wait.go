package safe

import (
	"cmp"
	"context"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Wait waits until the current work of the context's streams has completed, also of closed ones.
// It does not wait for work that is enqueued later, nor for streams that this package does not
// know. It also returns errors of earlier work. If ctx ends first, Wait returns its cause, and the
// work goes on. Wait blocks no thread, and captures may begin meanwhile.
//
// Wait returns [ErrCapturing] if a stream of the context is capturing, and [ErrInCallback] in a
// host function.
// Source: cuStreamQuery, cuEventRecord, cuEventQuery.
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
