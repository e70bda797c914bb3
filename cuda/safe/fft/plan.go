package fft

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// Options are the options of [New].
type Options struct {
	// Scale makes Inverse divide by the product of N, so that it undoes Forward. That takes another kernel. cuFFT does
	// not scale.
	Scale bool
}

// Plan computes transforms of one [Shape]: from I to O by Forward, and from O to I by Inverse.
// Both are of one complex type, or I is the real type of O. Any number of goroutines may use a
// Plan at once, on any streams of its context.
//
// A Plan keeps its context: [safe.Context.Close] before [Plan.Close] is fine. Close it before
// [safe.Context.CloseAll].
type Plan[I Number, O Complex] struct {
	plan *plan
}

type plan struct {
	*library.Object
	problem
	shape  Shape
	made   *made
	places int // of a stream's queue that a call takes at most, 0 if that is not known
}

// made is what cuFFT and the driver have created. It knows nothing of the Plan, which the
// garbage collector would never find dropped.
type made struct {
	forward, inverse handle // inverse only if oneHandle is false
	work             int    // bytes
	scaler           scaler
}

// handle is a plan of cuFFT.
type handle struct {
	raw    cufft.CufftHandle
	exists bool    // raw may be 0
	exec   uintptr // the address of cufftXtExec, or 0
	stream driver.CUstream
	space  uint64 // the number of its work memory, which is of one stream, or 0
}

// New creates a plan. That takes milliseconds, and may wait for all work of the context: create plans once, or use a
// [Cache].
//
// It returns [safe.ErrCapturing] while a stream of the context is capturing. It returns [safe.ErrNotSupported] for what
// cuFFT cannot do, such as sizes other than powers of 2 in half precision. If there is no cuFFT, it returns an error
// that matches [safe.ErrNotSupported] and lists where it has looked. It returns [safe.ErrInvalidArgument],
// [safe.ErrRange] and [safe.ErrOverlap] if a shape contradicts itself, and [safe.ErrClosed]. Source: cufftCreate,
// cufftSetAutoAllocation, cufftXtMakePlanMany.
func New[I Number, O Complex](x *safe.Context, s Shape, o Options) (*Plan[I, O], error) {
	const op = "fft.New"
	p, err := newProblem[I, O](&s, o)
	if err != nil {
		return nil, library.Rename(op, err)
	}
	made, err := newPlan(x, &p, s)
	if err != nil {
		return nil, failed(op, err, s)
	}
	return &Plan[I, O]{made}, nil
}

func newPlan(x *safe.Context, p *problem, s Shape) (*plan, error) {
	if err := library.Load(cufft.Open, cufft.Library); err != nil {
		return nil, err
	}
	m := new(made)
	object, err := library.New(x, library.Options{
		Name:        "FFT plan",
		Create:      func() error { return m.create(p) },
		Destroy:     m.destroy,
		OutOfMemory: cufft.CUFFT_ALLOC_FAILED,
	})
	if err != nil {
		return nil, err
	}
	s.N = append([]int(nil), s.N...)
	return &plan{object, *p, s, m, places(s.N)}, nil
}

// places returns how many kernels cuFFT launches at most, and one that scales: a few for each length that has no prime
// factor above 7. Others take more, by convolutions, and it returns 0.
func places(lengths []int) int {
	for _, n := range lengths {
		for _, prime := range [...]int{2, 3, 5, 7} {
			for n%prime == 0 {
				n /= prime
			}
		}
		if n > 1 {
			return 0
		}
	}
	return 5*len(lengths) + 1
}

// create creates all that a plan needs, or nothing.
func (m *made) create(p *problem) error {
	err := m.forward.create(m, p, p.from, &p.in, p.to, &p.out)
	if err == nil && !p.oneHandle() {
		err = m.inverse.create(m, p, p.to, &p.out, p.from, &p.in)
	}
	if err == nil && p.scale {
		err = m.scaler.create(p)
	}
	if err != nil {
		m.destroy()
	}
	return err
}

// oneHandle tells whether the plan of cuFFT for Forward serves Inverse, too.
func (p *problem) oneHandle() bool { return p.from.complex && p.in == p.out }

func (h *handle) create(m *made, p *problem, from kind, in *side, to kind, out *side) error {
	if err := cufft.CufftCreate(&h.raw); err != nil {
		return err
	}
	h.exists, h.exec = true, exec()
	if err := cufft.CufftSetAutoAllocation(h.raw, 0); err != nil {
		return err
	}
	var size uint64
	err := cufft.CufftXtMakePlanMany(h.raw, int32(p.rank), &p.n[0], &in.embed[0], in.stride, in.distance, from.data,
		&out.embed[0], out.stride, out.distance, to.data, p.batch, &size, p.to.data)
	m.work = max(m.work, int(size))
	return err
}

func (m *made) destroy() error {
	err := m.scaler.destroy()
	for _, h := range [...]*handle{&m.forward, &m.inverse} {
		if h.exists {
			err = errors.Join(err, cufft.CufftDestroy(h.raw))
		}
		*h = handle{}
	}
	return err
}

// Close refuses further calls. Calls in flight, and work that they have enqueued, complete, and
// graphs keep the plan of cuFFT. It is destroyed when nothing uses it, while no stream of the
// context captures. Closing again does nothing.
// Source: cufftDestroy.
func (p *Plan[I, O]) Close() error {
	if p == nil || p.plan == nil {
		return nil
	}
	return library.Rename("fft.Plan.Close", p.plan.Close())
}

// Context returns a context that is usable as long as the Plan is open: see
// [safe.Stream.Context].
func (p *Plan[I, O]) Context() *safe.Context {
	if p == nil || p.plan == nil {
		return nil
	}
	return p.plan.Object.Context()
}

// Lens returns the smallest lengths of the buffers of Forward, in elements.
func (p *Plan[I, O]) Lens() (in, out int) {
	if p == nil || p.plan == nil {
		return 0, 0
	}
	return int(p.plan.in.span), int(p.plan.out.span)
}

// WorkBytes returns the size of the workspace that a call needs besides its buffers, in bytes.
func (p *Plan[I, O]) WorkBytes() int {
	if p == nil || p.plan == nil {
		return 0
	}
	return p.plan.made.work
}

// failed is the error of an operation. If cuFFT has caused it, it has the shape.
func failed(op string, err error, s Shape) error {
	e := library.Rename(op, err).(*safe.Error)
	var result cufft.CufftResult
	if errors.As(e.Err, &result) && e.Detail == "" {
		e.Detail = s.String()
	}
	switch result {
	case cufft.CUFFT_NOT_SUPPORTED, cufft.CUFFT_NOT_IMPLEMENTED, cufft.CUFFT_INVALID_SIZE:
		e.Err = errors.Join(safe.ErrNotSupported, e.Err)
	}
	return e
}
