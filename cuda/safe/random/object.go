package random

import (
	"context"
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// object is an object of a library. It is destroyed once its Resource is closed or dropped, and
// no work, graph or executable uses it.
type object struct {
	lifetime.Handle
	x        *safe.Context  // usable until the object is destroyed
	leave    func()         // releases what keeps x usable
	destroys lifetime.Queue // of this object: its destruction waits for the context
	destroy  func() error
}

// open creates the object. create and destroy are called while no stream of the context captures;
// destroy also after create has failed.
func (o *object) open(x *safe.Context, create, destroy func() error) (*safe.Resource, error) {
	o.destroy = destroy
	var err error
	if o.x, o.leave, err = hold(x); err != nil {
		return nil, err
	}
	if err := o.Handle.Open(o, nil); err != nil {
		o.leave()
		return nil, err
	}
	o.Untracked() // the Resource is tracked
	if err := o.whole(create); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	r, err := safe.NewResource(o.x, o.CloseLater)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return r, nil
}

// hold returns a context that is usable until leave, also after [safe.Context.CloseAll].
func hold(x *safe.Context) (usable *safe.Context, leave func(), err error) {
	r, err := safe.NewResource(x, func() {})
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	leave, err = safe.Retain(r.Arg())
	return r.Context(), leave, err
}

// whole calls f, in which the library may wait for the context's work, while no stream captures.
// Captures wait for f, so whole waits before for the work that is there now.
func (o *object) whole(f func() error) error {
	if err := o.x.Wait(context.Background()); err != nil && !safe.IsFatal(err) {
		return err
	}
	return o.x.WithoutCaptures(f)
}

// Kind implements lifetime.Object.
func (o *object) Kind() string { return "random generator" }

// Destroy implements lifetime.Object.
func (o *object) Destroy(wait bool) error {
	if !wait {
		return &lifetime.Elsewhere{Queue: &o.destroys}
	}
	err := o.whole(o.destroy)
	if errors.Is(err, safe.ErrCapturing) || errors.Is(err, safe.ErrInCallback) {
		return lifetime.ErrLater
	}
	if errors.Is(err, safe.ErrReset) {
		err = nil // the reset has destroyed everything
	}
	o.leave()
	return err
}

// matches checks that a stream belongs to the object's context.
func (o *object) matches(s *safe.Stream) error {
	x := s.Context()
	if x == nil {
		return fmt.Errorf("%w: the stream", safe.ErrClosed)
	}
	if x.Raw() != o.x.Raw() {
		return refuse("", safe.ErrContextMismatch, "the generator belongs to a context of %v, the stream to one of %v", o.x.Device(), s.Device())
	}
	return nil
}

// scratch returns memory for work on s, or nil if the stream is not in the capture that it is
// said to be in. Close it after the work was enqueued: it is freed in the order of s, or with the
// graph.
func (o *object) scratch(s *safe.Stream, capture uint64, size int) (*safe.Buffer[byte], error) {
	if capture != 0 { // memory in a stream's order would become a node, which limits the graph
		return safe.NewBuffer[byte](o.x, size)
	}
	status, err := s.CaptureStatus()
	if err != nil || status != driver.CU_STREAM_CAPTURE_STATUS_NONE {
		return nil, err
	}
	b, err := safe.NewBufferAsync[byte](s, size)
	if errors.Is(err, safe.ErrNotSupported) {
		return safe.NewBuffer[byte](o.x, size)
	}
	return b, err
}

// captureOf returns the ID of the capture that a stream takes part in, or 0. It is for
// functions that enqueue work, when no capture begins or ends.
func captureOf(raw driver.CUstream) (uint64, error) {
	var status driver.CUstreamCaptureStatus
	if err := driver.CuStreamIsCapturing(raw, &status); err != nil || status == driver.CU_STREAM_CAPTURE_STATUS_NONE {
		return 0, err
	}
	var id uint64
	err := driver.CuStreamGetCaptureInfo_v2(raw, &status, &id, nil, nil, nil)
	if errors.Is(err, driver.CUDA_ERROR_LOSSY_QUERY) {
		err = driver.CuStreamGetCaptureInfo_v3(raw, &status, &id, nil, nil, nil, nil)
	}
	if err == nil && status != driver.CU_STREAM_CAPTURE_STATUS_ACTIVE {
		err = driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
	}
	return id, err
}

// refuse returns an error for op that neither CUDA nor the library caused.
func refuse(op string, err error, format string, args ...any) error {
	return &safe.Error{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
}

// fail makes op the operation of err, which may be an error of package safe.
func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &safe.Error{Op: op, Err: err}
	for {
		inner, ok := e.Err.(*safe.Error)
		if !ok {
			break
		}
		*e = *inner
		e.Op = op
	}
	var code driver.CUresult
	if errors.As(e.Err, &code) {
		e.Code = code
	}
	return e
}
