package fft

import (
	"sync"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// Forward enqueues out = the transforms of in, with the factors exp(-2πi jk/n). in and out do
// not overlap, or are the same memory: see [Shape].
//
// It returns [safe.ErrRange] if a buffer is too short, [safe.ErrOverlap],
// [safe.ErrInvalidArgument] if a buffer does not begin at a multiple of the size of O,
// [safe.ErrContextMismatch] if the stream belongs to another context, and [safe.ErrClosed].
// Source: cufftSetStream, cufftSetWorkArea, cufftXtExec.
func (p *Plan[I, O]) Forward(s *safe.Stream, in *safe.Buffer[I], out *safe.Buffer[O]) error {
	const op = "fft.Plan.Forward"
	if p == nil || p.plan == nil {
		return library.Rename(op, safe.ErrClosed)
	}
	return run(op, p.plan, s, in, out, &p.plan.in, &p.plan.out, cufft.CUFFT_FORWARD)
}

// Inverse enqueues out = the inverse transforms of in, with the factors exp(2πi jk/n): it
// multiplies what Forward has had by the product of N, unless Options.Scale is set.
//
// From complex to real in two or three dimensions, cuFFT overwrites in. Errors are those of
// [Plan.Forward]; if inputs of the shape overlap, Inverse returns [safe.ErrOverlap].
// Source: cufftSetStream, cufftSetWorkArea, cufftXtExec.
func (p *Plan[I, O]) Inverse(s *safe.Stream, in *safe.Buffer[O], out *safe.Buffer[I]) error {
	const op = "fft.Plan.Inverse"
	if p == nil || p.plan == nil {
		return library.Rename(op, safe.ErrClosed)
	}
	return run(op, p.plan, s, in, out, &p.plan.out, &p.plan.in, cufft.CUFFT_INVERSE)
}

// array is a buffer of any type.
type array interface {
	Raw() driver.CUdeviceptr
	Size() uint64
}

// call is one call of cuFFT. Calls are pooled, so that none allocates.
type call struct {
	library.Call
	plan      *plan
	handle    *handle
	direction int32
	in, out   array
	scale     launch
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.Do = c.run
	return c
}}

func run[A, B Number](op string, p *plan, s *safe.Stream, in *safe.Buffer[A], out *safe.Buffer[B], from, to *side, direction int32) error {
	if in.Raw() == 0 || out.Raw() == 0 {
		return library.Refuse(op, safe.ErrClosed, "a buffer")
	}
	if int64(in.Len()) < from.span || int64(out.Len()) < to.span {
		return library.Refuse(op, safe.ErrRange, "the plan needs buffers of %d and %d elements, these have %d and %d", from.span, to.span, in.Len(), out.Len())
	}
	if to.overlaps {
		return library.Refuse(op, safe.ErrOverlap, "elements of Shape.In overlap")
	}
	c := calls.Get().(*call)
	c.plan, c.Object, c.Stream, c.Memory = p, p.Object, s, p.made.work
	c.in, c.out, c.direction, c.handle = in, out, direction, &p.made.forward
	if direction == cufft.CUFFT_INVERSE && !p.oneHandle() {
		c.handle = &p.made.inverse
	}
	c.Uses = append(c.Uses, in.Arg(), out.Arg())
	err := c.Submit()
	c.Reset()
	*c = call{Call: c.Call}
	calls.Put(c)
	if err != nil {
		return failed(op, err, p.shape)
	}
	return nil
}

// run is called while the stream's captures neither begin nor end.
func (c *call) run(at library.Place) error {
	in, out := c.in.Raw(), c.out.Raw()
	if err := c.addresses(uint64(in), uint64(out)); err != nil {
		return err
	}
	if err := c.handle.set(at); err != nil {
		return err
	}
	if err := cufft.CufftXtExec(c.handle.raw, ffi.Pointer(in), ffi.Pointer(out), c.direction); err != nil {
		return err
	}
	if c.plan.scale && c.direction == cufft.CUFFT_INVERSE {
		return c.scale.enqueue(&c.plan.made.scaler, out, at.Stream)
	}
	return nil
}

// addresses checks where the buffers are.
func (c *call) addresses(in, out uint64) error {
	size := uint64(c.plan.to.bits) / 4 // of a complex number
	if in%size != 0 || out%size != 0 {
		return library.Refuse("", safe.ErrInvalidArgument, "a buffer does not begin at a multiple of %d bytes", size)
	}
	if in == out && c.plan.inPlace {
		return nil
	}
	if in < out+c.out.Size() && out < in+c.in.Size() {
		return library.Refuse("", safe.ErrOverlap, "in and out")
	}
	return nil
}

// set sets the stream and the memory, unless they are those of the last call.
func (h *handle) set(at library.Place) error {
	if h.stream == at.Stream && h.space == at.Space {
		return nil
	}
	h.stream = ^driver.CUstream(0) // none, unless both are set
	if err := cufft.CufftSetStream(h.raw, at.Stream); err != nil {
		return err
	}
	if at.Space != 0 {
		if err := cufft.CufftSetWorkArea(h.raw, ffi.Pointer(at.Memory)); err != nil {
			return err
		}
	}
	h.stream, h.space = at.Stream, at.Space
	return nil
}
