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

// Inverse enqueues out = the inverse transforms of in, with the factors exp(2πi jk/n): for the result of
// [Plan.Forward], it computes the original values times the product of N, or with Options.Scale the original values.
//
// From complex to real in two or three dimensions, cuFFT overwrites in. Errors are those of [Plan.Forward]; if inputs
// of the shape overlap, Inverse returns [safe.ErrOverlap]. Source: cufftSetStream, cufftSetWorkArea, cufftXtExec.
func (p *Plan[I, O]) Inverse(s *safe.Stream, in *safe.Buffer[O], out *safe.Buffer[I]) error {
	const op = "fft.Plan.Inverse"
	if p == nil || p.plan == nil {
		return library.Rename(op, safe.ErrClosed)
	}
	return run(op, p.plan, s, in, out, &p.plan.out, &p.plan.in, cufft.CUFFT_INVERSE)
}

// call is one call of cuFFT. Calls are pooled, so that none allocates.
type call struct {
	library.Call
	plan      *plan
	handle    *handle
	direction int32
	in, out   extent
	scale     launch
	at        library.Place // of list
	list      []safe.RawCall
	room      [3]safe.RawCall // list is its end
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.Do, c.Prepare, c.Called = c.run, c.prepare, c.called
	return c
}}

func run[A, B Number](op string, p *plan, s *safe.Stream, in *safe.Buffer[A], out *safe.Buffer[B], from, to *side, direction int32) error {
	a, b := extent{uint64(in.Raw()), in.Size()}, extent{uint64(out.Raw()), out.Size()}
	if a.address == 0 || b.address == 0 {
		return library.Refuse(op, safe.ErrClosed, "a buffer")
	}
	if int64(in.Len()) < from.span || int64(out.Len()) < to.span {
		return library.Refuse(op, safe.ErrRange, "the plan needs buffers of %d and %d elements, these have %d and %d", from.span, to.span, in.Len(), out.Len())
	}
	if to.overlaps {
		return library.Refuse(op, safe.ErrOverlap, "elements of Shape.In overlap")
	}
	if err := p.check(a, b); err != nil {
		return library.Rename(op, err)
	}
	c := calls.Get().(*call)
	c.plan, c.Object, c.Stream, c.Memory, c.Places = p, p.Object, s, p.made.work, p.places
	c.in, c.out, c.direction, c.handle = a, b, direction, &p.made.forward
	if direction == cufft.CUFFT_INVERSE && !p.oneHandle() {
		c.handle = &p.made.inverse
	}
	c.Uses = append(c.Uses, in.Arg(), out.Arg())
	err := c.Submit()
	c.Reset()
	c.plan, c.handle, c.scale = nil, nil, launch{} // calls in the pool keep nothing alive
	calls.Put(c)
	if err != nil {
		return failed(op, err, p.shape)
	}
	return nil
}

// run is called while the stream's captures neither begin nor end.
func (c *call) run(at library.Place) error {
	if err := c.handle.set(at); err != nil {
		return err
	}
	if err := cufft.CufftXtExec(c.handle.raw, ffi.Pointer(c.in.address), ffi.Pointer(c.out.address), c.direction); err != nil {
		return err
	}
	if c.scales() {
		return c.scale.enqueue(&c.plan.made.scaler, driver.CUdeviceptr(c.out.address), at.Stream)
	}
	return nil
}

// The addresses of functions of cuFFT, or 0.
var (
	setStream   = safe.Symbol(cufft.Library, "cufftSetStream")
	setWorkArea = safe.Symbol(cufft.Library, "cufftSetWorkArea")
	exec        = safe.Symbol(cufft.Library, "cufftXtExec")
)

// prepare returns the calls of cuFFT that run makes, unless a kernel follows them.
func (c *call) prepare(at library.Place) []safe.RawCall {
	if c.scales() {
		return nil
	}
	h, raw, first := c.handle, uint64(c.handle.raw), len(c.room)-1
	c.room[first] = safe.RawCall{Address: h.exec, Args: [8]uint64{raw, c.in.address, c.out.address, uint64(uint32(c.direction))}}
	if h.stream != at.Stream || h.space != at.Space {
		h.stream = noStream // until they are made
		if at.Space != 0 {
			first--
			c.room[first] = safe.RawCall{Address: setWorkArea(), Args: [8]uint64{raw, uint64(at.Memory)}}
		}
		first--
		c.room[first] = safe.RawCall{Address: setStream(), Args: [8]uint64{raw, uint64(at.Stream)}}
	}
	c.at, c.list = at, c.room[first:]
	return c.list
}

// called notes what the calls have set, and returns the error of the one that has failed.
func (c *call) called(made bool) error {
	if !made {
		return nil
	}
	last := &c.list[len(c.list)-1]
	if last.Made {
		c.handle.stream, c.handle.space = c.at.Stream, c.at.Space
	}
	for i := range c.list {
		if r := c.list[i].Result; r != 0 {
			return cufft.CufftResult(r)
		}
	}
	return nil
}

// scales tells whether a kernel follows the transform.
func (c *call) scales() bool { return c.plan.scale && c.direction == cufft.CUFFT_INVERSE }

// extent is the memory of a buffer.
type extent struct{ address, size uint64 }

// check checks where the buffers are.
func (p *plan) check(in, out extent) error {
	size := uint64(p.to.bits) / 4 // of a complex number
	if in.address%size != 0 || out.address%size != 0 {
		return library.Refuse("", safe.ErrInvalidArgument, "a buffer does not begin at a multiple of %d bytes", size)
	}
	if in.address == out.address && p.inPlace {
		return nil
	}
	if in.address < out.address+out.size && out.address < in.address+in.size {
		return library.Refuse("", safe.ErrOverlap, "in and out")
	}
	return nil
}

// noStream says that a handle's stream or memory is not known.
const noStream = ^driver.CUstream(0)

// set sets the stream and the memory, unless they are those of the last call.
func (h *handle) set(at library.Place) error {
	if h.stream == at.Stream && h.space == at.Space {
		return nil
	}
	h.stream = noStream // unless both are set
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
