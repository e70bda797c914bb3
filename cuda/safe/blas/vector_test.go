//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vectors are ways to see n elements of a buffer of 400 values.
func vectors[T blas.Element](b *safe.Buffer[T], n int) map[string]blas.Vector[T] {
	return map[string]blas.Vector[T]{
		"first":    {Buffer: b, N: n},
		"steps":    {Buffer: b, N: n, Offset: 2, Step: 3},
		"a row":    blas.Rows(b, 4, n).Row(2),
		"a column": blas.Rows(b, n, 5).Col(1),
	}
}

// column is a vector as a matrix, from the documentation of Vector.
func column[T blas.Number](v blas.Vector[T]) blas.Matrix[T] {
	return blas.Matrix[T]{Buffer: v.Buffer, Rows: v.N, Cols: 1, Offset: v.Offset, Stride: max(v.Step, 1), Conjugate: v.Conjugate}
}

func testGemv[T blas.Element](t *testing.T, e each) {
	r := rand.New(rand.NewPCG(9, 10))
	const m, n = 4, 3
	va, vx, vy := random[T](r, 400), random[T](r, 400), random[T](r, 400)
	a, x, y := buffer(t, e.x, va), buffer(t, e.x, vx), buffer(t, e.x, vy)
	all := views(a, m, n)
	for name, v := range views(a, n, m) {
		all[name+", conjugate transpose"] = v.H()
	}
	for nameA, ma := range all {
		for nameX, mx := range vectors(x, n) {
			for nameY, my := range vectors(y, m) {
				what := fmt.Sprintf("a %s, x %s, y %s", nameA, nameX, nameY)
				beta := complex(float64(r.IntN(2)), 0)
				require.NoError(t, y.CopyFromHost(vy))
				require.NoError(t, blas.Gemv(e.h, e.s, complex(2, 0), ma, mx, beta, my), what)
				ra := read(ma, va)
				if !isComplex[T]() {
					ma.Conjugate = false
				}
				check(t, what, 2, ra, read(column(mx), vx), beta, column(my), vy, download(t, y))
			}
		}
	}
}

func TestGemv(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{FullReduction: true}), stream(t, x)
	forEach(t, x, h, s, func(t *testing.T, e each) { e.gemv(t, e) })
}

func testLevel1[T blas.Element](t *testing.T, e each) {
	r := rand.New(rand.NewPCG(11, 12))
	const n = 10
	vx, vy := random[T](r, 400), random[T](r, 400)
	x, y := buffer(t, e.x, vx), buffer(t, e.x, vy)
	out := buffer(t, e.x, make([]T, 1))
	sum, result := epsilon[T]()
	for nameX, mx := range vectors(x, n) {
		dx := read(column(mx), vx)
		norm, largest := 0.0, 0.0
		for _, v := range dx.data {
			norm, largest = norm+real(v*cmplx.Conj(v)), max(largest, cmplx.Abs(v))
		}
		got, err := blas.Nrm2(e.h, e.s, mx)
		require.NoError(t, err)
		assert.InEpsilon(t, math.Sqrt(norm), got, 4*n*sum+result, nameX)

		require.NoError(t, blas.Scal(e.h, e.s, -0.5, mx))
		for i, v := range read(column(mx), download(t, x)).data {
			assert.Equal(t, narrow[T](-0.5*dx.data[i]), narrow[T](v))
		}
		untouched(t, column(mx), vx, download(t, x))
		require.NoError(t, x.CopyFromHost(vx))

		for nameY, my := range vectors(y, n) {
			what := nameX + ", " + nameY
			dy := read(column(my), vy)
			for _, conjugate := range []bool{false, true} {
				mx := mx
				mx.Conjugate = conjugate
				want, magnitude := complex128(0), 0.0
				for i := range n {
					v := dx.data[i]
					if conjugate {
						v = cmplx.Conj(v)
					}
					want += v * dy.data[i]
					magnitude += cmplx.Abs(v * dy.data[i])
				}
				bound := 4*n*sum*magnitude + result*cmplx.Abs(want)
				got, err := blas.Dot(e.h, e.s, mx, my)
				require.NoError(t, err, what)
				assert.LessOrEqual(t, cmplx.Abs(wide(got)-want), bound, what)
				require.NoError(t, blas.DotTo(e.h, e.s, mx, my, out), what)
				assert.Equal(t, got, download(t, out)[0], what)
			}
			require.NoError(t, y.CopyFromHost(vy))
			require.NoError(t, blas.Axpy(e.h, e.s, 1.5, mx, my), what)
			after := download(t, y)
			for i, v := range read(column(my), after).data {
				want := 1.5*dx.data[i] + dy.data[i]
				assert.LessOrEqual(t, cmplx.Abs(v-want), 4*sum*(1.5*cmplx.Abs(dx.data[i])+cmplx.Abs(dy.data[i]))+result*cmplx.Abs(want), what)
			}
			untouched(t, column(my), vy, after)
			require.NoError(t, y.CopyFromHost(vy))
		}
	}
}

func TestLevel1(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{FullReduction: true}), stream(t, x)
	forEach(t, x, h, s, func(t *testing.T, e each) { e.level1(t, e) })
}

// TestNrm2To: the result has the type of the parts.
func TestNrm2To(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	v := blas.Vec(buffer(t, x, []complex64{3, 4i}))
	out := buffer(t, x, []float32{0})
	require.NoError(t, blas.Nrm2To(h, s, v, out))
	assert.InEpsilon(t, 5, download(t, out)[0], 1e-6)
	assert.ErrorContains(t, blas.Nrm2To(h, s, v, buffer(t, x, []float64{0})), "does not have the type float64")
	zero, err := blas.Dot(h, s, blas.Vector[float32]{Buffer: out}, blas.Vector[float32]{Buffer: out})
	require.NoError(t, err)
	assert.Zero(t, zero, "of no elements")
}
