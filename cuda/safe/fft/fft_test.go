//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package fft_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shapes are transforms that all types have but half precision, which has those of powers of 2.
var shapes = map[string]fft.Shape{
	"one element":    {N: []int{1}},
	"two":            {N: []int{2}},
	"odd":            {N: []int{7}},
	"64":             {N: []int{64}},
	"prime, batch":   {N: []int{101}, Batch: 3},
	"2D":             {N: []int{6, 10}},
	"2D, odd":        {N: []int{9, 5}, Batch: 2},
	"2D, powers":     {N: []int{8, 16}, Batch: 2},
	"3D":             {N: []int{4, 6, 10}},
	"3D, odd":        {N: []int{5, 4, 7}, Batch: 2},
	"3D, powers":     {N: []int{4, 2, 8}, Batch: 3},
	"a thin matrix":  {N: []int{1, 8}},
	"a thin column":  {N: []int{8, 1}},
	"in place":       {N: []int{10}, Batch: 3, InPlace: true},
	"in place, odd":  {N: []int{15}, Batch: 3, InPlace: true},
	"2D in place":    {N: []int{6, 9}, Batch: 2, InPlace: true},
	"3D in place":    {N: []int{4, 3, 8}, InPlace: true},
	"powers, inside": {N: []int{4, 8}, Batch: 2, InPlace: true},
	"embedded": {N: []int{6, 8}, Batch: 2,
		In: fft.Layout{Embed: []int{7, 12}}, Out: fft.Layout{Embed: []int{6, 9}, Distance: 100}},
	"embedded in 3D": {N: []int{3, 4, 6},
		In: fft.Layout{Embed: []int{3, 5, 8}, Stride: 2}, Out: fft.Layout{Embed: []int{3, 6, 7}, Stride: 3}},
	"columns": {N: []int{12}, Batch: 5,
		In: fft.Layout{Stride: 5, Distance: 1}, Out: fft.Layout{Stride: 5, Distance: 1}},
	"columns, transposed": {N: []int{12}, Batch: 5, In: fft.Layout{Stride: 5, Distance: 1}},
	"gaps":                {N: []int{8}, Batch: 4, In: fft.Layout{Distance: 10}, Out: fft.Layout{Distance: 12}},
}

// TestTransforms compares transforms of every type and shape with direct ones on the host.
func TestTransforms(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Run("complex64", func(t *testing.T) { bothWays[complex64, complex64](t, x, s, shape) })
			t.Run("complex128", func(t *testing.T) { bothWays[complex128, complex128](t, x, s, shape) })
			t.Run("float32", func(t *testing.T) { bothWays[float32, complex64](t, x, s, shape) })
			t.Run("float64", func(t *testing.T) { bothWays[float64, complex128](t, x, s, shape) })
			for _, n := range shape.N {
				if n&(n-1) != 0 {
					return
				}
			}
			t.Run("ComplexFloat16", func(t *testing.T) { bothWays[fft.ComplexFloat16, fft.ComplexFloat16](t, x, s, shape) })
			t.Run("Float16", func(t *testing.T) { bothWays[dtype.Float16, fft.ComplexFloat16](t, x, s, shape) })
		})
	}
}

// TestLargeTransforms are for algorithms of cuFFT that small sizes do not have.
func TestLargeTransforms(t *testing.T) {
	if !onGPU {
		t.Skip("cuFFT has other algorithms than its double")
	}
	x := open(t)
	s := stream(t, x)
	for _, n := range [][]int{{4096}, {4097}, {10007}, {1 << 13}, {300, 200}, {17, 256}, {509, 127}, {16, 60, 100}, {64, 32, 31}} {
		shape := fft.Shape{N: n, Batch: 2}
		t.Run(shape.String(), func(t *testing.T) {
			bothWays[complex64, complex64](t, x, s, shape)
			bothWays[float64, complex128](t, x, s, shape)
		})
	}
	bothWays[dtype.Float16, fft.ComplexFloat16](t, x, s, fft.Shape{N: []int{16, 64}, Batch: 3})
}

// bothWays transforms forth and back, with and without scaling.
func bothWays[I fft.Number, O fft.Complex](t *testing.T, x *safe.Context, s *safe.Stream, shape fft.Shape) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, scale := range []bool{false, true} {
		p, err := fft.New[I, O](x, shape, fft.Options{Scale: scale})
		require.NoError(t, err)
		from, to := sides(shape, isReal[I]())
		inLen, outLen := p.Lens()
		require.Equal(t, []int{span(from), span(to)}, []int{inLen, outLen})
		signal := noise[I](r, inLen)
		in, out := both[I, O](t, x, shape, signal, outLen)
		require.NoError(t, p.Forward(s, in, out))
		require.NoError(t, s.Synchronize())
		near(t, transformed(shape, signal), to, download(t, out))
		if !shape.InPlace {
			require.Equal(t, signal, download(t, in), "the input has changed")
			garbage := noise[I](r, inLen) // between the results, which remains
			require.NoError(t, in.CopyFromHost(garbage))
			require.NoError(t, p.Inverse(s, out, in))
			untouched(t, garbage, from, download(t, in))
		} else {
			require.NoError(t, p.Inverse(s, out, in))
		}
		want := make([][]complex128, len(from))
		for b := range from {
			for _, at := range from[b] {
				v := wide(signal[at])
				if !scale {
					v *= complex(float64(elements(shape.N)), 0)
				}
				want[b] = append(want[b], v)
			}
		}
		near(t, want, from, download(t, in))
		require.NoError(t, p.Close())
	}
}

// both returns buffers of both sides, which are the same memory in place.
func both[I fft.Number, O fft.Complex](t *testing.T, x *safe.Context, shape fft.Shape, signal []I, outLen int) (*safe.Buffer[I], *safe.Buffer[O]) {
	if !shape.InPlace {
		return buffer(t, x, signal), buffer(t, x, make([]O, outLen))
	}
	whole := buffer(t, x, make([]O, max(outLen, len(signal))))
	in, err := safe.Cast[I](whole)
	require.NoError(t, err)
	first, err := in.Slice(0, len(signal))
	require.NoError(t, err)
	require.NoError(t, first.CopyFromHost(signal))
	return in, whole
}

// untouched checks what is at no place.
func untouched[T fft.Number](t *testing.T, before []T, at [][]int, after []T) {
	t.Helper()
	used := map[int]bool{}
	for _, one := range at {
		for _, i := range one {
			used[i] = true
		}
	}
	for i := range before {
		if !used[i] {
			require.Equal(t, before[i], after[i], "element %d, between the results", i)
		}
	}
}

// TestComplexInPlace: complex plans with equal layouts work in place.
func TestComplexInPlace(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	columns := fft.Layout{Stride: 5, Distance: 1}
	shape := fft.Shape{N: []int{12}, Batch: 5, In: columns, Out: columns}
	p, err := fft.New[complex64, complex64](x, shape, fft.Options{})
	require.NoError(t, err)
	defer p.Close()
	signal := noise[complex64](rand.New(rand.NewPCG(3, 4)), 60)
	b := buffer(t, x, signal)
	require.NoError(t, p.Forward(s, b, b))
	_, to := sides(shape, false)
	near(t, transformed(shape, signal), to, download(t, b))
}

// TestWindows: inputs of a batch may overlap, and such a plan has no inverse.
func TestWindows(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for _, hop := range []int{4, 3} {
		shape := fft.Shape{N: []int{16}, Batch: 9, In: fft.Layout{Distance: hop}}
		p, err := fft.New[float32, complex64](x, shape, fft.Options{})
		require.NoError(t, err)
		signal := noise[float32](rand.New(rand.NewPCG(5, 6)), 16+8*hop)
		in, out := buffer(t, x, signal), buffer(t, x, make([]complex64, 9*9))
		require.NoError(t, p.Forward(s, in, out))
		_, to := sides(shape, true)
		near(t, transformed(shape, signal), to, download(t, out))
		require.ErrorIs(t, p.Inverse(s, out, in), safe.ErrOverlap)
		require.NoError(t, p.Close())
	}
}

// TestRefusedShapes: what cuFFT cannot do is an error before it is asked.
func TestRefusedShapes(t *testing.T) {
	x := open(t)
	const huge = 1 << 40
	for name, c := range map[string]struct {
		shape fft.Shape
		want  error
		says  string
	}{
		"no dimension":        {fft.Shape{}, safe.ErrInvalidArgument, "N has 0 sizes"},
		"four dimensions":     {fft.Shape{N: []int{2, 2, 2, 2}}, safe.ErrInvalidArgument, "N has 4 sizes"},
		"a size of 0":         {fft.Shape{N: []int{4, 0}}, safe.ErrRange, "N is [4 0]"},
		"a negative size":     {fft.Shape{N: []int{-4}}, safe.ErrRange, "N is [-4]"},
		"a negative batch":    {fft.Shape{N: []int{4}, Batch: -1}, safe.ErrRange, "Batch is -1"},
		"a negative stride":   {fft.Shape{N: []int{4}, In: fft.Layout{Stride: -1}}, safe.ErrRange, "In.Stride is -1"},
		"a negative distance": {fft.Shape{N: []int{4}, Out: fft.Layout{Distance: -1}}, safe.ErrRange, "Out.Distance is -1"},
		"too many elements":   {fft.Shape{N: []int{huge, huge, huge}}, safe.ErrRange, "too many elements"},
		"a huge stride":       {fft.Shape{N: []int{16}, In: fft.Layout{Stride: 1 << 62}}, safe.ErrRange, "too many elements"},
		"a huge batch":        {fft.Shape{N: []int{16}, Batch: 1 << 62}, safe.ErrRange, "too many elements"},
		"another rank":        {fft.Shape{N: []int{4}, In: fft.Layout{Embed: []int{4, 4}}}, safe.ErrInvalidArgument, "In.Embed has 2 sizes"},
		"a small array":       {fft.Shape{N: []int{4, 4}, Out: fft.Layout{Embed: []int{4, 2}}}, safe.ErrRange, "does not hold"},
		"results overlap":     {fft.Shape{N: []int{8}, Batch: 2, Out: fft.Layout{Distance: 4}}, safe.ErrOverlap, "elements of Out overlap"},
		"a stride in place":   {fft.Shape{N: []int{8}, Out: fft.Layout{Stride: 2}, InPlace: true}, safe.ErrInvalidArgument, "do not lie at the same addresses"},
		"an array in place":   {fft.Shape{N: []int{4, 8}, In: fft.Layout{Embed: []int{4, 12}}, InPlace: true}, safe.ErrInvalidArgument, "do not lie at the same addresses"},
		"not in place":        {fft.Shape{N: []int{8}, Batch: 2, In: fft.Layout{Distance: 11}, InPlace: true}, safe.ErrInvalidArgument, "do not lie at the same addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fft.New[float32, complex64](x, c.shape, fft.Options{})
			require.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
			assert.ErrorContains(t, err, "fft.New")
		})
	}
	_, err := fft.New[float32, complex128](x, fft.Shape{N: []int{8}}, fft.Options{})
	require.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorContains(t, err, "from float32 to complex128")
	_, err = fft.New[fft.ComplexFloat16, fft.ComplexFloat16](x, fft.Shape{N: []int{100}}, fft.Options{})
	require.ErrorIs(t, err, safe.ErrNotSupported)
	assert.ErrorContains(t, err, "powers of 2")
	_, err = fft.New[dtype.Float16, fft.ComplexFloat16](x, fft.Shape{N: []int{16}, In: fft.Layout{Stride: 2}}, fft.Options{})
	require.ErrorIs(t, err, safe.ErrNotSupported)
}

// TestRefusedBuffers: wrong buffers are an error before anything is enqueued.
func TestRefusedBuffers(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	p, err := fft.New[float32, complex64](x, fft.Shape{N: []int{8}}, fft.Options{})
	require.NoError(t, err)
	defer p.Close()
	in, out := buffer(t, x, make([]float32, 32)), buffer(t, x, make([]complex64, 16))
	slice := func(from, to int) *safe.Buffer[float32] {
		part, err := in.Slice(from, to)
		require.NoError(t, err)
		return part
	}
	closed := buffer(t, x, make([]float32, 8))
	require.NoError(t, closed.Close())
	view, err := safe.Cast[float32](out)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		in   *safe.Buffer[float32]
		want error
	}{
		"nil":            {nil, safe.ErrClosed},
		"closed":         {closed, safe.ErrClosed},
		"short":          {slice(0, 7), safe.ErrRange},
		"an odd element": {slice(1, 9), safe.ErrInvalidArgument},
		"the same":       {view, safe.ErrOverlap},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Forward(s, c.in, out)
			require.ErrorIs(t, err, c.want)
			require.NotContains(t, err.Error(), ": :")
			require.ErrorIs(t, p.Inverse(s, out, c.in), c.want)
		})
	}
	require.NoError(t, p.Forward(s, slice(2, 10), out))
	require.NoError(t, s.Synchronize())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Forward(s, in, out), safe.ErrClosed)
}

// TestFailures: errors of cuFFT have the shape, and leave nothing behind.
func TestFailures(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s := stream(t, x)
	_, err := fft.New[float32, complex64](x, fft.Shape{N: []int{4001, 2}, Batch: 3}, fft.Options{Scale: true})
	require.ErrorContains(t, err, "CUFFT_INTERNAL_ERROR")
	require.ErrorContains(t, err, "3 transforms of 4001x2")
	_, err = fft.New[float32, complex64](x, fft.Shape{N: []int{4013}}, fft.Options{})
	require.ErrorIs(t, err, safe.ErrNotSupported)
	require.ErrorContains(t, err, "CUFFT_INVALID_SIZE")
	roomy, err := fft.New[complex64, complex64](x, fft.Shape{N: []int{4003}}, fft.Options{})
	require.NoError(t, err, "New makes room for what finds none")
	require.NoError(t, roomy.Close())
	p, err := fft.New[complex64, complex64](x, fft.Shape{N: []int{4007}}, fft.Options{})
	require.NoError(t, err)
	defer p.Close()
	b := buffer(t, x, make([]complex64, 4007))
	err = p.Forward(s, b, b)
	require.ErrorContains(t, err, "CUFFT_EXEC_FAILED")
	require.ErrorContains(t, err, "fft.Plan.Forward")
	require.ErrorContains(t, err, "4007")
}
