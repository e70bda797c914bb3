//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Direct transforms on the host, and where shapes have their elements.

package fft_test

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/stretchr/testify/require"
)

func wide[T fft.Number](v T) complex128 {
	switch v := any(v).(type) {
	case float32:
		return complex(float64(v), 0)
	case float64:
		return complex(v, 0)
	case dtype.Float16:
		return complex(float64(v.Float32()), 0)
	case complex64:
		return complex128(v)
	case complex128:
		return v
	}
	return complex128(any(v).(fft.ComplexFloat16).Complex64())
}

func narrow[T fft.Number](v complex128) (n T) {
	switch n := any(&n).(type) {
	case *float32:
		*n = float32(real(v))
	case *float64:
		*n = real(v)
	case *dtype.Float16:
		*n = dtype.NewFloat16(float32(real(v)))
	case *complex64:
		*n = complex64(v)
	case *complex128:
		*n = v
	case *fft.ComplexFloat16:
		*n = fft.NewComplexFloat16(complex64(v))
	}
	return n
}

func isReal[T fft.Number]() bool {
	switch any(*new(T)).(type) {
	case float32, float64, dtype.Float16:
		return true
	}
	return false
}

// tolerance is the error that results may have, relative to the largest one.
func tolerance[T fft.Number]() float64 {
	switch any(*new(T)).(type) {
	case float64, complex128:
		return 1e-13
	case dtype.Float16, fft.ComplexFloat16:
		return 1e-2
	}
	return 1e-5
}

func noise[T fft.Number](r *rand.Rand, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = narrow[T](complex(r.Float64()-0.5, r.Float64()-0.5))
	}
	return v
}

func elements(n []int) int {
	p := 1
	for _, v := range n {
		p *= v
	}
	return p
}

// direct returns the transform of v, of sizes n, with the factors exp(sign*2πi jk/n).
func direct(v []complex128, sign float64, n []int) []complex128 {
	v = append([]complex128(nil), v...)
	step := 1
	for d := len(n) - 1; d >= 0; d-- {
		factors, row := make([]complex128, n[d]), make([]complex128, n[d])
		for i := range factors {
			factors[i] = cmplx.Rect(1, sign*2*math.Pi*float64(i)/float64(n[d]))
		}
		for i := range v {
			if i/step%n[d] != 0 {
				continue
			}
			for k := range row {
				sum, at := complex128(0), 0 // at is j*k%n[d]
				for j := range row {
					sum += v[i+j*step] * factors[at]
					if at += k; at >= n[d] {
						at -= n[d]
					}
				}
				row[k] = sum
			}
			for k := range row {
				v[i+k*step] = row[k]
			}
		}
		step *= n[d]
	}
	return v
}

// places lists where the elements of one side are: n elements in rows of embed.
func places(n, embed []int, stride, distance, batch int) (all [][]int) {
	for b := range batch {
		one := make([]int, elements(n))
		for i := range one {
			rest, at, by := i, 0, stride
			for d := len(n) - 1; d >= 0; d-- {
				at += rest % n[d] * by
				rest /= n[d]
				by *= embed[d]
			}
			one[i] = b*distance + at
		}
		all = append(all, one)
	}
	return all
}

// side lists where a layout has n elements that are in rows by default.
func side(n, rows []int, l fft.Layout, batch int) [][]int {
	if l.Embed != nil {
		rows = l.Embed
	}
	stride := max(l.Stride, 1)
	distance := l.Distance
	if distance == 0 {
		distance = elements(rows) * stride
	}
	return places(n, rows, stride, distance, batch)
}

// sides lists where a shape has its elements.
func sides(s fft.Shape, fromReal bool) (in, out [][]int) {
	n, half, rows := s.N, append([]int(nil), s.N...), append([]int(nil), s.N...)
	if last := len(n) - 1; fromReal {
		half[last] = n[last]/2 + 1
		if s.InPlace {
			rows[last] = 2 * half[last]
		}
	}
	batch := max(s.Batch, 1)
	return side(n, rows, s.In, batch), side(half, half, s.Out, batch)
}

// span is the length of the buffer that holds all places.
func span(all [][]int) (n int) {
	for _, one := range all {
		for _, at := range one {
			n = max(n, at+1)
		}
	}
	return n
}

// transformed returns what Forward of a shape makes of in, at the places of the output.
func transformed[I fft.Number](s fft.Shape, in []I) [][]complex128 {
	from, to := sides(s, isReal[I]())
	last := s.N[len(s.N)-1]
	var all [][]complex128
	for b := range from {
		v := make([]complex128, len(from[b]))
		for i, at := range from[b] {
			v[i] = wide(in[at])
		}
		v = direct(v, -1, s.N)
		if isReal[I]() { // half of each row
			kept := v[:0]
			for i := range v {
				if i%last < last/2+1 {
					kept = append(kept, v[i])
				}
			}
			v = kept
		}
		if len(v) != len(to[b]) {
			panic("the test has wrong places")
		}
		all = append(all, v)
	}
	return all
}

// near compares values at places with those wanted.
func near[T fft.Number](t testing.TB, want [][]complex128, at [][]int, got []T) {
	t.Helper()
	within(t, tolerance[T](), want, at, got)
}

func within[T fft.Number](t testing.TB, tolerance float64, want [][]complex128, at [][]int, got []T) {
	t.Helper()
	size, worst := 1e-30, 0.0
	for b := range want {
		for i, v := range want[b] {
			size = max(size, cmplx.Abs(v))
			off := cmplx.Abs(wide(got[at[b][i]]) - v)
			if math.IsNaN(off) {
				off = math.Inf(1)
			}
			worst = max(worst, off)
		}
	}
	require.LessOrEqual(t, worst/size, tolerance, "the largest error, relative to the largest value")
}
