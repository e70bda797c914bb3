//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"math"
	"path/filepath"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// doubles are those of the libraries, for the simulated driver.
var doubles = []double.Library{
	{Name: "cublas", Open: cublas.Open}, {Name: "cublaslt", Open: cublaslt.Open}, {Name: "cufft", Open: cufft.Open}, {Name: "curand", Open: curand.Open},
}

// buildDoubles builds them in a folder, for children.
func buildDoubles(dir, simulated string) error {
	for _, l := range doubles {
		if _, err := l.Build(dir, simulated); err != nil {
			return err
		}
	}
	return nil
}

func useDoubles(c sim.Control, dir string) error {
	for _, l := range doubles {
		if err := l.Use(c, filepath.Join(dir, "lib"+l.Name+".so")); err != nil {
			return err
		}
	}
	return nil
}

// simulated says that the libraries are doubles.
var simulated bool

// Libraries are what all goroutines use at once, on a device.
type libraries struct {
	blas    *blas.Handle
	pairs   *fft.Plan[complex64, complex64] // of pairs of numbers, whose spectra are exact
	long    *fft.Plan[complex64, complex64] // works in memory
	turn    *safe.Buffer[float32]           // a matrix that turns rows and columns around
	uniform []float32                       // the first numbers of the seed
}

const (
	edge = 8 // of turn; an own buffer has so many rows
	seed = 7 // of all generators
)

func newLibraries(x *safe.Context) (_ *libraries, err error) {
	l := &libraries{}
	o := blas.Options{Workspace: 4096, Handles: 2, Workspaces: 3} // fewer than streams: they change hands
	points := 211                                                 // the double is slow
	if !simulated {
		o.Workspace, points = 0, 10007
	}
	if l.blas, err = blas.Open(x, o); err != nil {
		return nil, err
	}
	if l.pairs, err = fft.New[complex64, complex64](x, fft.Shape{N: []int{2}, Batch: length / 4}, fft.Options{}); err != nil {
		return l, err
	}
	if l.long, err = fft.New[complex64, complex64](x, fft.Shape{N: []int{points}}, fft.Options{Scale: true}); err != nil {
		return l, err
	}
	turn := make([]float32, edge*edge)
	for i := range edge {
		turn[i*edge+edge-1-i] = 1
	}
	if l.turn, err = safe.Upload(x, turn); err != nil {
		return l, err
	}
	l.uniform, err = uniform(x)
	return l, err
}

func uniform(x *safe.Context) ([]float32, error) {
	g, err := random.New(x, random.Philox, random.Options{Seed: seed})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b, err := safe.NewBuffer[float32](x, 2*length)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if err := random.Uniform(g, s, b); err != nil {
		return nil, err
	}
	return b.Download()
}

func (l *libraries) close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.blas.Close(), l.pairs.Close(), l.long.Close(), l.turn.Close())
}

func init() {
	add("ownlibrary", []kind{
		{name: "own.library", weight: 14, run: func(t *task) error { return t.own.do(t.yes(40), t.own.libraryActs(4)...) }},
		{name: "own.impulse", weight: 3, run: func(t *task) error { return t.own.impulse() }},
		{name: "own.random", weight: 4, run: func(t *task) error { return t.own.random() }},
		{name: "own.norm", weight: 3, run: func(t *task) error { return t.own.norm() }},
	})
}

// libraryActs returns random acts of cuBLAS and cuFFT, whose results are exact.
func (o *own) libraryActs(most int) []act {
	all := o.acts(most)
	for i := range all {
		a := &all[i]
		a.library = []string{"axpy", "scale", "turn", "pairs"}[o.n(4)]
		switch a.library {
		case "axpy":
			a.what, a.v = "saxpy", []float32{-1, 1, 2}[o.n(3)]
			for a.to == a.a {
				a.a = o.buffers[o.n(len(o.buffers))]
			}
		case "scale":
			a.what, a.v = "scale", []float32{-1, 2}[o.n(2)] // small numbers might become 0
		default:
			a.what = a.library
			for a.what == "turn" && a.to == a.a { // a product overlaps nothing; transforms work in place
				a.a = o.buffers[o.n(len(o.buffers))]
			}
		}
	}
	return all
}

// enqueueLibrary enqueues an act of a library.
func (a *act) enqueueLibrary(o *own, s *safe.Stream) error {
	l := o.dev.libraries
	switch a.library {
	case "turn":
		return blas.Gemm(l.blas, s, 1, blas.Rows(l.turn, edge, edge), blas.Rows(a.a.buffer, edge, length/edge), 0, blas.Rows(a.to.buffer, edge, length/edge))
	case "pairs":
		in, err := safe.Cast[complex64](a.a.buffer)
		if err != nil {
			return err
		}
		out, err := safe.Cast[complex64](a.to.buffer)
		if err != nil {
			return err
		}
		return l.pairs.Forward(s, in, out)
	}
	to, err := a.part(a.to)
	if err != nil {
		return err
	}
	if a.library == "scale" {
		return blas.Scal(l.blas, s, a.v, blas.Vec(to))
	}
	from, err := a.part(a.a)
	if err != nil {
		return err
	}
	return blas.Axpy(l.blas, s, a.v, blas.Vec(from), blas.Vec(to))
}

// applyLibrary applies what only libraries do to the model.
func (a *act) applyLibrary() {
	to, from := a.to.want, a.a.want
	switch a.what {
	case "scale":
		for i := a.lo; i < a.hi; i++ {
			to[i] *= a.v
		}
	case "turn": // the sum has zeros, which infinite numbers make NaN
		cols := length / edge
		for i := range to {
			to[i] = from[(edge-1-i/cols)*cols+i%cols]
			for row := range edge {
				to[i] += 0 * from[row*cols+i%cols]
			}
		}
	case "pairs":
		for i := 0; i < length; i += 4 {
			x, y, u, v := from[i], from[i+1], from[i+2], from[i+3]
			to[i], to[i+1], to[i+2], to[i+3] = x+u, y+v, x-u, y-v
		}
	}
}

// impulse transforms an impulse in memory that the plan works in, directly or in a graph, and checks that its spectrum
// is flat and comes back.
func (o *own) impulse() error {
	if o.capture != nil {
		return nil
	}
	l, s := o.dev.libraries, o.streams[0]
	n, _ := l.long.Lens()
	values := make([]complex64, n)
	values[0] = 1
	in, err := safe.Upload(o.dev.x, values)
	if err != nil {
		return o.strict(err)
	}
	defer in.Close()
	out, err := safe.NewBuffer[complex64](o.dev.x, n)
	if err != nil {
		return o.strict(err)
	}
	defer out.Close()
	round := func() error {
		return errors.Join(l.long.Forward(s, in, out), l.long.Inverse(s, out, in), l.long.Forward(s, in, out))
	}
	if o.yes(50) {
		err = round()
	} else {
		var e *safe.GraphExec
		if e, err = s.CaptureExecutable(round); err == nil {
			err = errors.Join(e.Launch(s), e.Launch(s), e.Close())
		}
	}
	if err != nil {
		return o.strict(err)
	}
	spectrum, err := out.Download()
	if err != nil {
		return o.strict(err)
	}
	for i, v := range spectrum {
		if !(math.Hypot(float64(real(v)-1), float64(imag(v))) < 1e-3) {
			return failf(mismatch, "number %d of the spectrum of an impulse is %v", i, v)
		}
	}
	return nil
}

// random fills values by a generator of its own, which it closes, directly or by a graph that it closes. A capture of
// any stream of the context keeps it from making one.
func (o *own) random() error {
	if o.capture != nil {
		return nil
	}
	a, from := o.act(), o.n(length)
	g, err := random.New(o.dev.x, random.Philox, random.Options{Seed: seed, Offset: uint64(from)})
	if errors.Is(err, safe.ErrCapturing) {
		return nil
	}
	if err != nil {
		return o.strict(err)
	}
	to, err := a.part(a.to)
	if err != nil {
		return o.strict(errors.Join(err, g.Close()))
	}
	s := o.streams[o.n(2)]
	if s != o.streams[0] {
		err = s.WaitStream(o.streams[0])
	}
	if o.yes(50) {
		err = errors.Join(err, random.Uniform(g, s, to))
	} else if e, failed := s.CaptureExecutable(func() error { return random.Uniform(g, s, to) }); failed == nil {
		err = errors.Join(err, g.Close(), e.Launch(s), e.Close())
	} else {
		err = errors.Join(err, failed)
	}
	if s != o.streams[0] {
		err = errors.Join(err, o.streams[0].WaitStream(s))
	}
	copy(a.to.want[a.lo:a.hi], o.dev.libraries.uniform[from:])
	if o.yes(o.profile.drops) {
		return o.strict(err)
	}
	return o.strict(errors.Join(err, g.Close()))
}

// norm compares a number that cuBLAS returns to the host with the model.
func (o *own) norm() error {
	if o.capture != nil {
		return nil
	}
	v := o.buffers[o.n(len(o.buffers))]
	got, err := blas.Nrm2(o.dev.libraries.blas, o.streams[0], blas.Vec(v.buffer))
	if err != nil {
		return o.strict(err)
	}
	want := 0.0
	for _, x := range v.want {
		want = math.Hypot(want, float64(x))
	}
	if want < 1e15 && !(math.Abs(got-want) <= 1e-4*want+1e-20) { // squares of larger ones may overflow
		return failf(mismatch, "the norm of a buffer is %v instead of %v", got, want)
	}
	return nil
}
