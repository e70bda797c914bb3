//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/cudabind/cudabind/cuda/safe/random"
)

// A shelf has an object of each library. Any goroutine may use or close it at any time.
type shelf struct {
	blas    *blas.Handle
	plan    *fft.Plan[float32, complex64]
	numbers *random.Generator
}

// shelved are the errors allowed where others replace buffers and streams.
var shelved = append([]error{safe.ErrRange, safe.ErrOverlap, safe.ErrInUse}, ended...)

func init() {
	add("library", []kind{
		{name: "library.new", weight: 2, run: newShelf},
		{name: "library.use", weight: 12, run: useShelf, allow: shelved},
		{name: "library.close", weight: 1, run: func(t *task) error { return t.shelves.get(t.rng).Close() }},
		{name: "library.drop", weight: 1, run: func(t *task) error { t.shelves.swap(t.rng, nil); return nil }},
	})
}

func newShelf(t *task) error {
	x, v := t.device().x, &shelf{}
	var err [3]error
	v.blas, err[0] = blas.Open(x, blas.Options{Workspace: 4096, Workspaces: 2, Handles: 1})
	v.plan, err[1] = fft.New[float32, complex64](x, fft.Shape{N: []int{5 + 2*t.n(20)}, Batch: 1 + t.n(3)}, fft.Options{Scale: t.yes(50)})
	v.numbers, err[2] = random.New(x, []random.Kind{random.Philox, random.XORWOW, random.Sobol32}[t.n(3)], random.Options{})
	if errs := errors.Join(err[:]...); errs != nil {
		return errors.Join(errs, v.Close())
	}
	return put(t, &t.shelves, v, nil)
}

// useShelf enqueues work of a library on shared buffers.
func useShelf(t *task) error {
	v := t.shelves.get(t.rng)
	if v == nil {
		return nil
	}
	s, a, b := t.stream(), t.buffers.get(t.rng), t.buffers.get(t.rng)
	switch t.n(6) {
	case 0:
		return blas.Scal[float32, float32](v.blas, s, 0.5, blas.Vec(a))
	case 1:
		return blas.Gemm[float32, float32](v.blas, s, 1, blas.Rows(a, 4, 8), blas.Rows(a, 8, 6), 0, blas.Rows(b, 4, 6))
	case 2:
		return random.Uniform(v.numbers, s, a)
	case 3:
		return random.Normal(v.numbers, s, a, 0, 1)
	}
	spectrum, err := safe.Cast[complex64](b)
	if err != nil {
		return err
	}
	if t.yes(50) {
		return v.plan.Inverse(s, spectrum, a)
	}
	return v.plan.Forward(s, a, spectrum)
}

func (v *shelf) Close() error {
	if v == nil {
		return nil
	}
	return errors.Join(v.blas.Close(), v.plan.Close(), v.numbers.Close())
}
