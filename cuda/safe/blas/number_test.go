//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/require"
	gonum "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/cblas128"
)

// wide returns a number of any type as a complex128, without rounding.
func wide[T blas.Number](v T) complex128 {
	switch v := any(v).(type) {
	case float32:
		return complex(float64(v), 0)
	case float64:
		return complex(v, 0)
	case complex64:
		return complex128(v)
	case complex128:
		return v
	case int8:
		return complex(float64(v), 0)
	case int32:
		return complex(float64(v), 0)
	case interface{ Float32() float32 }:
		return complex(float64(v.Float32()), 0)
	}
	panic("unreachable")
}

// narrow rounds v to a type.
func narrow[T blas.Number](v complex128) (out T) {
	switch p := any(&out).(type) {
	case *float32:
		*p = float32(real(v))
	case *float64:
		*p = real(v)
	case *complex64:
		*p = complex64(v)
	case *complex128:
		*p = v
	case *int8:
		*p = int8(real(v))
	case *int32:
		*p = int32(real(v))
	case *dtype.Float16:
		*p = dtype.NewFloat16(float32(real(v)))
	case *dtype.BFloat16:
		*p = dtype.NewBFloat16(float32(real(v)))
	case *dtype.Float8E4M3:
		*p = dtype.NewFloat8E4M3(float32(real(v)))
	case *dtype.Float8E5M2:
		*p = dtype.NewFloat8E5M2(float32(real(v)))
	}
	return out
}

func isComplex[T blas.Number]() bool {
	switch any(*new(T)).(type) {
	case complex64, complex128:
		return true
	}
	return false
}

// epsilon is the distance from 1 to the next number, at the precision of sums and of results.
func epsilon[T blas.Number]() (sum, result float64) {
	single, double := math.Ldexp(1, -23), math.Ldexp(1, -52)
	switch any(*new(T)).(type) {
	case float64, complex128:
		return double, double
	case dtype.Float16:
		return single, math.Ldexp(1, -10)
	case dtype.BFloat16:
		return single, math.Ldexp(1, -7)
	case dtype.Float8E4M3:
		return single, math.Ldexp(1, -3)
	case dtype.Float8E5M2:
		return single, math.Ldexp(1, -2)
	case int8, int32:
		return single, 0
	}
	return single, single
}

// random returns numbers between -1 and 1, or small integers.
func random[T blas.Number](r *rand.Rand, n int) []T {
	out := make([]T, n)
	for i := range out {
		v := complex(2*r.Float64()-1, 2*r.Float64()-1)
		switch any(out[i]).(type) {
		case int8, int32:
			v = complex(float64(r.IntN(11)-5), 0)
		}
		out[i] = narrow[T](v)
	}
	return out
}

// dense is a matrix on the host, stored by row.
type dense struct {
	rows, cols int
	data       []complex128
}

func (d dense) at(i, j int) complex128 { return d.data[i*d.cols+j] }

func (d dense) general() cblas128.General {
	return cblas128.General{Rows: d.rows, Cols: d.cols, Stride: max(d.cols, 1), Data: d.data}
}

// read returns the elements of a view of values, one by one.
func read[T blas.Number](m blas.Matrix[T], values []T) dense {
	d := dense{m.Rows, m.Cols, make([]complex128, m.Rows*m.Cols)}
	for i := range m.Rows {
		for j := range m.Cols {
			v := wide(values[index(m, i, j)])
			if m.Conjugate {
				v = cmplx.Conj(v)
			}
			d.data[i*m.Cols+j] = v
		}
	}
	return d
}

// index is where element (i, j) is in the buffer, from the documentation of Matrix.
func index[T blas.Number](m blas.Matrix[T], i, j int) int {
	stride := m.Stride
	if m.ByColumn {
		if stride == 0 {
			stride = m.Rows
		}
		return m.Offset + i + j*stride
	}
	if stride == 0 {
		stride = m.Cols
	}
	return m.Offset + i*stride + j
}

// product is alpha*a*b + beta*c by gonum, in complex128.
func product(alpha complex128, a, b dense, beta complex128, c dense) dense {
	out := dense{c.rows, c.cols, append([]complex128(nil), c.data...)}
	cblas128.Gemm(gonum.NoTrans, gonum.NoTrans, alpha, a.general(), b.general(), beta, out.general())
	return out
}

// bounds are what the elements of alpha*a*b + beta*c may differ by: k+2 roundings of the sum
// of magnitudes, one of the result, and one of the product before c is added.
func bounds[T blas.Number](alpha complex128, a, b dense, beta complex128, c, want dense) dense {
	magnitude := func(d dense) dense {
		out := dense{d.rows, d.cols, make([]complex128, len(d.data))}
		for i, v := range d.data {
			out.data[i] = complex(cmplx.Abs(v), 0)
		}
		return out
	}
	sum, result := epsilon[T]()
	sums := product(complex(cmplx.Abs(alpha), 0), magnitude(a), magnitude(b), complex(cmplx.Abs(beta), 0), magnitude(c))
	for i := range sums.data {
		rounded := cmplx.Abs(want.data[i]) + cmplx.Abs(want.data[i]-beta*c.data[i])
		sums.data[i] = complex(float64(4*(a.cols+2))*sum*real(sums.data[i])+result*rounded, 0)
	}
	return sums
}

// compare checks elements against their bounds.
func compare(t testing.TB, what string, got, want, bound dense) {
	t.Helper()
	for i, v := range got.data {
		if !(cmplx.Abs(v-want.data[i]) <= real(bound.data[i])+1e-300) {
			require.FailNow(t, fmt.Sprintf("%s: element (%d, %d) is %v, want %v within %.2g", what, i/want.cols, i%want.cols, v, want.data[i], real(bound.data[i])))
		}
	}
}

// untouched checks that nothing outside of a view has changed.
func untouched[T blas.Number](t testing.TB, m blas.Matrix[T], before, after []T) {
	t.Helper()
	inside := map[int]bool{}
	for i := range m.Rows {
		for j := range m.Cols {
			inside[index(m, i, j)] = true
		}
	}
	for i := range before {
		if !inside[i] {
			require.Equal(t, before[i], after[i], "value %d, outside of the result", i)
		}
	}
}
