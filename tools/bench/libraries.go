package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/cudabind/cudabind/internal/cloop"
)

// libraries are transforms by cuFFT and random numbers by cuRAND, on a stream: what a call takes the host, and what it
// takes when the device is never idle. A library that this machine lacks is left out.
var libraries = group{
	name:    "libraries",
	columns: []string{"host µs", "host +µs", "µs", "/C"},
	plot:    []string{"/C"},
	run:     callLibraries,
}

func callLibraries(g *gpu, e effort) (lines []*line, err error) {
	shapes := []fft.Shape{
		{N: []int{4096}, Batch: 1}, {N: []int{4096}, Batch: 1024}, {N: []int{1 << 20}, Batch: 1}, {N: []int{10007}, Batch: 100},
		{N: []int{2048, 2048}, Batch: 1}, {N: []int{256, 256, 256}, Batch: 1},
	}
	counts := []int{1 << 10, 1 << 20, 1 << 26}
	if e.short {
		shapes, counts = []fft.Shape{{N: []int{64}, Batch: 1}}, counts[:1]
	}
	if _, _, err := cufft.Library(); err == nil {
		for _, s := range shapes {
			three, err := transforms(g, e, s)
			if err != nil {
				return nil, err
			}
			lines = append(lines, three...)
		}
	}
	if _, _, err := curand.Library(); err == nil {
		for _, n := range counts {
			three, err := numbers(g, e, n)
			if err != nil {
				return nil, err
			}
			lines = append(lines, three...)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("there is neither cuFFT nor cuRAND: %w", errors.ErrUnsupported)
	}
	return lines, nil
}

// transforms measures transforms of complex64 in place.
func transforms(g *gpu, e effort, s fft.Shape) (lines []*line, err error) {
	total, sizes := s.Batch, make([]int64, len(s.N))
	for i, n := range s.N {
		total, sizes[i] = total*n, int64(n)
	}
	data, err := safe.NewZeroed[complex64](g.ctx, total)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	plan, err := fft.New[complex64, complex64](g.ctx, s, fft.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	raw, err := makePlan(g.stream, sizes, int64(s.Batch), librarytypes.CUDA_C_32F, librarytypes.CUDA_C_32F)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, raw.close(g.ctx)) }()
	file, _, _ := cufft.Library()
	p, direction := uintptr(data.Raw()), cufft.CUFFT_FORWARD
	return e.calls(g, fmt.Sprintf("fft %v x %d", s.N, s.Batch),
		loop(cloop.Transform, cloop.Symbol(file, "cufftXtExec"), uintptr(raw.handle), p, p, uintptr(direction)),
		func() error {
			return cufft.CufftXtExec(raw.handle, ffi.Pointer(data.Raw()), ffi.Pointer(data.Raw()), cufft.CUFFT_FORWARD)
		},
		func() error { return plan.Forward(g.stream, data, data) })
}

// numbers measures n uniform numbers by Philox.
func numbers(g *gpu, e effort, n int) (lines []*line, err error) {
	data, err := safe.NewBuffer[float32](g.ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	r, err := random.New(g.ctx, random.Philox, random.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var raw curand.CurandGenerator_t
	err = g.ctx.WithCurrent(func() error {
		if err := curand.CurandCreateGenerator(&raw, curand.CURAND_RNG_PSEUDO_PHILOX4_32_10); err != nil {
			return err
		}
		return curand.CurandSetStream(raw, g.stream.Raw())
	})
	if raw != 0 {
		defer func() {
			err = errors.Join(err, g.ctx.WithCurrent(func() error { return curand.CurandDestroyGenerator(raw) }))
		}()
	}
	if err != nil {
		return nil, err
	}
	file, _, _ := curand.Library()
	p := (*float32)(ffi.Pointer(data.Raw()))
	return e.calls(g, fmt.Sprintf("%d uniform numbers", n),
		loop(cloop.Copy, cloop.Symbol(file, "curandGenerateUniform"), uintptr(raw), uintptr(data.Raw()), uintptr(n)),
		func() error { return curand.CurandGenerateUniform(raw, p, uint64(n)) },
		func() error { return random.Uniform(r, g.stream, data) })
}

// calls measures a call in three ways: on the host alone, and until the device has done what it asks for.
func (e effort) calls(g *gpu, name string, c op, raw, safe func() error) ([]*line, error) {
	lines := threeWays(name)
	ops, columns := []op{c, times(raw), times(safe)}, []string{"host µs", "µs"}
	for _, column := range columns {
		r := row{name: name, prepare: g.idle, batch: 100}
		if column == "host µs" {
			r.batch = 30 // package safe waits for the device before a stream's queue is full
		}
		ways := make([]*way, len(ops))
		for i, o := range ops {
			ways[i] = &way{row: &r, op: o, in: e.meter.current}
			if column == "µs" {
				ways[i].op = func(n int) error { return errors.Join(o(n), g.stream.Synchronize()) }
			}
			if i == 2 {
				ways[i].in = alone
			}
		}
		if err := e.inTurns(ways); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i, w := range ways {
			l := lines[i]
			l.Values[column] = median(w.means) / 1e3
			if column == "µs" {
				l.Values["/C"] = paired(w, ways[0], ratio)
			} else {
				l.Values["host +µs"] = paired(w, ways[0], difference) / 1e3
			}
		}
	}
	lines[2].atMost("/C", 1.05)
	lines[2].atMost("host +µs", 1)
	return lines, nil
}

// rawPlan is a plan of cuFFT for C and its package, with the work memory that it uses.
type rawPlan struct {
	handle cufft.CufftHandle
	work   *safe.Buffer[byte]
}

// makePlan makes a plan for dense arrays: of complex numbers, or from real ones to the half of complex ones that says all.
func makePlan(s *safe.Stream, n []int64, batch int64, from, to librarytypes.CudaDataType) (p rawPlan, err error) {
	x, out := s.Context(), slices.Clone(n)
	if last := len(n) - 1; from != to {
		out[last] = n[last]/2 + 1
	}
	in, total := int64(1), int64(1)
	for i := range n {
		in, total = in*n[i], total*out[i]
	}
	err = x.WithCurrent(func() error {
		if err := cufft.CufftCreate(&p.handle); err != nil {
			return err
		}
		work := uint64(0)
		if err := cufft.CufftXtMakePlanMany(p.handle, int32(len(n)), &n[0], &n[0], 1, in, from, &out[0], 1, total, to, batch, &work, to); err != nil {
			return err
		}
		if p.work, err = safe.NewBuffer[byte](x, int(max(work, 1))); err != nil {
			return err
		}
		return errors.Join(cufft.CufftSetWorkArea(p.handle, ffi.Pointer(p.work.Raw())), cufft.CufftSetStream(p.handle, s.Raw()))
	})
	if err != nil {
		return rawPlan{}, errors.Join(err, p.close(x))
	}
	return p, nil
}

func (p rawPlan) close(x *safe.Context) error {
	var err error
	if p.handle != 0 {
		err = x.WithCurrent(func() error { return cufft.CufftDestroy(p.handle) })
	}
	return errors.Join(err, p.work.Close())
}
