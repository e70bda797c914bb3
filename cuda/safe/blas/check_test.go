//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"math"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRefused: errors before cuBLAS sees a call, with the shapes.
func TestRefused(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	b := buffer(t, x, make([]float32, 100))
	other := buffer(t, x, make([]float32, 100))
	closed, err := safe.NewBuffer[float32](x, 4)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	type M = blas.Matrix[float32]
	type V = blas.Vector[float32]
	m := blas.Rows(b, 2, 2)
	gemm := func(a, b, c M) error { return blas.Gemm(h, s, 1, a, b, 0, c) }
	out := blas.Rows(other, 2, 2)
	noHandle := (*blas.Handle)(nil)
	var noStream *safe.Stream
	shut, err := blas.Open(x, blas.Options{Workspace: 4096})
	require.NoError(t, err)
	require.NoError(t, shut.Close())
	for _, c := range []struct {
		got  error
		want error
		text string
	}{
		{gemm(blas.Rows(b, 2, 3), blas.Rows(b, 4, 5), blas.Rows(other, 2, 5)), safe.ErrInvalidArgument, "cuda: blas.Gemm: invalid argument: a (2x3) times b (4x5) does not make c (2x5)"},
		{gemm(m, m, blas.Rows(other, 2, 3)), safe.ErrInvalidArgument, "does not make c (2x3)"},
		{gemm(blas.Rows(b, 20, 6), m, out), safe.ErrRange, "cuda: blas.Gemm: out of range: a is 20x6 float32 from value 0 on, but its buffer has 100 values"},
		{gemm(M{Buffer: b, Rows: 2, Cols: 2, Offset: 97}, m, out), safe.ErrRange, "from value 97 on"},
		{gemm(M{Buffer: b, Rows: 2, Cols: 2, Offset: -1}, m, out), safe.ErrRange, "begins before its buffer"},
		{gemm(m.Sub(1, 1, 2, 1), m, out), safe.ErrRange, "a Sub, Row or Col beyond its matrix"},
		{gemm(M{Buffer: b, Rows: 2, Cols: 3, Stride: 2}, m, out), safe.ErrRange, "a is 2x3 float32 with stride 2: the stride must be at least 3"},
		{gemm(M{Buffer: b, Rows: 2, Cols: 3, Stride: -3}, m, out), safe.ErrRange, "stride"},
		{gemm(M{Buffer: b, Rows: -2, Cols: 3}, m, out), safe.ErrRange, "no negative size"},
		{gemm(M{Buffer: b, Rows: math.MaxInt / 2, Cols: 3}, m, out), safe.ErrRange, "its buffer has 100 values"},
		{gemm(M{Buffer: b, Rows: 3, Cols: 2, Stride: math.MaxInt / 2}, m, out), safe.ErrRange, "its buffer has 100 values"},
		{gemm(M{Rows: 2, Cols: 2}, m, out), safe.ErrClosed, "the buffer of a"},
		{gemm(m, blas.Rows(closed, 2, 2), out), safe.ErrClosed, "the buffer of b"},
		{gemm(m, m, m), safe.ErrOverlap, "c (2x2 float32 at"},
		{gemm(m, out, out), safe.ErrOverlap, "and b (2x2 float32 at"},
		{gemm(m, out, M{Buffer: b, Rows: 2, Cols: 2, Offset: 3}), safe.ErrOverlap, "and a (2x2 float32 at"},
		{blas.Gemm(h, s, 1i, m, m, 0, out), safe.ErrInvalidArgument, "alpha is (0+1i), but a factor of real numbers has no imaginary part"},
		{blas.Gemm(h, s, 0, m, m, 2i, out), safe.ErrInvalidArgument, "beta is (0+2i)"},
		{blas.Gemm(noHandle, s, 1, m, m, 0, out), safe.ErrClosed, "blas.Gemm"},
		{blas.Gemm(shut, s, 1, m, m, 0, out), safe.ErrClosed, "blas.Gemm"},
		{blas.Gemm(h, noStream, 1, m, m, 0, out), safe.ErrClosed, "the stream"},
		{blas.Gemv(h, s, 1, m, V{Buffer: b, N: 3}, 0, V{Buffer: other, N: 2}), safe.ErrInvalidArgument, "a (2x2) times x (3 elements) does not make y (2 elements)"},
		{blas.Gemv(h, s, 1, m, V{Buffer: b, N: 2, Offset: 10}, 0, V{Buffer: b, N: 2}), safe.ErrOverlap, "y ("},
		{blas.Gemv(h, s, 1, m, V{Buffer: other, N: 2}, 0, V{Buffer: other, N: 2, Offset: 1}), safe.ErrOverlap, "and x ("},
		{blas.Gemv(h, s, 1, m, V{Buffer: b, N: 2, Step: -1}, 0, V{Buffer: other, N: 2}), safe.ErrRange, "x is 2 float32 with step -1"},
		{blas.Axpy(h, s, 1, V{Buffer: b, N: 3}, V{Buffer: b, N: 3, Offset: 2}), safe.ErrOverlap, "and x ("},
		{blas.Axpy(h, s, 1, blas.Vec(b), V{Buffer: other, N: 3}), safe.ErrInvalidArgument, "x has 100 elements, y has 3"},
		{blas.Scal(h, s, 1, V{Buffer: b, N: 51, Step: 2}), safe.ErrRange, "but its buffer has 100 values"},
		{blas.DotTo(h, s, blas.Vec(b), blas.Vec(b), b), safe.ErrOverlap, "out ("},
		{blas.DotTo(h, s, blas.Vec(b), blas.Vec(b), closed), safe.ErrClosed, "the buffer of out"},
		{blas.GemmStrided(h, s, 1, blas.Stack[float32]{Matrix: m, Count: 2}, blas.Stack[float32]{Matrix: m, Count: 3}, 0, blas.Stack[float32]{Matrix: out, Count: 3}),
			safe.ErrInvalidArgument, "a has 2 matrices, c has 3"},
		{blas.GemmStrided(h, s, 1, blas.Stack[float32]{Matrix: m, Count: 2, Step: 97}, blas.Stack[float32]{Matrix: m, Count: 1}, 0, blas.Stack[float32]{Matrix: out, Count: 2}),
			safe.ErrRange, "a is 2 of 2x2 float32 with step 97 from value 0 on, but its buffer has 100 values"},
		{gemm(M{Buffer: b, Rows: 1, Cols: 2, Stride: 1 << 62}, m, M{Buffer: b, Rows: 1, Cols: 2, Stride: 1 << 62}), safe.ErrOverlap, "c (1x2 float32 at"},
		{gemm(M{Buffer: b, Rows: 1, Cols: 2, Stride: math.MaxInt}, m, M{Buffer: b, Rows: 1, Cols: 2, Offset: 1, Stride: math.MaxInt}), safe.ErrOverlap, "c (1x2 float32 at"},
		{gemm(M{Buffer: b, Rows: 1, Cols: 2, Offset: 1, Stride: math.MaxInt}, m, M{Buffer: b, Rows: 1, Cols: 2, Stride: math.MaxInt}), safe.ErrOverlap, "c (1x2 float32 at"},
		{blas.Axpy(h, s, 1, V{Buffer: b, N: 1, Step: 1 << 62}, V{Buffer: b, N: 1, Step: 1 << 62}), safe.ErrOverlap, "and x ("},
		{blas.GemmStrided(h, s, 1, blas.Stack[float32]{Matrix: m, Count: 3}, blas.Stack[float32]{Matrix: m, Count: 1}, 0, blas.Stack[float32]{Matrix: out, Count: 3, Step: 3}),
			safe.ErrOverlap, "cuda: blas.GemmStrided: source and destination overlap: c is 3 of 2x2 float32 with step 3: matrices 0 and 1"},
		{blas.GemmStrided(h, s, 1, blas.Stack[float32]{Matrix: m, Count: 1}, blas.Stack[float32]{Matrix: m, Count: 1}, 0,
			blas.Stack[float32]{Matrix: M{Buffer: other, Rows: 2, Cols: 2, Stride: 10}, Count: 4, Step: 3}), safe.ErrOverlap, "matrices 0 and 3"},
		{blas.GemmStrided(h, s, 1, blas.Stack[float32]{Matrix: m, Count: 2, Step: -4}, blas.Stack[float32]{Matrix: m, Count: 1}, 0, blas.Stack[float32]{Matrix: out, Count: 2}),
			safe.ErrRange, "a is 2 of 2x2 float32 with step -4"},
	} {
		assert.ErrorIs(t, c.got, c.want, c.text)
		assert.ErrorContains(t, c.got, c.text)
	}
	batch := func(a, b, c []M) error {
		p, err := blas.NewBatch(h, a, b, c)
		assert.Nil(t, p)
		return err
	}
	assert.ErrorContains(t, batch([]M{m}, nil, []M{out}), "there are 1 a, 0 b and 1 c")
	assert.ErrorContains(t, batch([]M{m, blas.Rows(b, 2, 3)}, []M{m, m}, []M{out, out}), "a[1] is 2x3 float32, but a[0] is 2x2 float32")
	half := blas.Rows(buffer(t, x, make([]dtype.Float16, 40)), 2, 2)
	odd := half
	odd.Offset = 7
	_, err = blas.NewBatch(h, []blas.Matrix[dtype.Float16]{half}, []blas.Matrix[dtype.Float16]{odd}, []blas.Matrix[dtype.Float16]{half})
	assert.ErrorContains(t, err, "b[0] is 2x2 Float16 at an address that is no multiple of 16")
	assert.ErrorContains(t, batch([]M{m, m}, []M{m, m}, []M{out, out}), "c[0] (2x2 float32 at")
	assert.ErrorContains(t, batch([]M{m, m}, []M{m, out}, []M{out, {Buffer: other, Rows: 2, Cols: 2, Offset: 50}}), "source and destination overlap")
	assert.ErrorContains(t, batch([]M{{Buffer: other, Rows: 2, Cols: 2, Offset: 2}}, []M{m}, []M{out}), "c[0] (2x2 float32 at")
	_, err = blas.NewBatch(h.With(blas.TF32), []M{m}, []M{{Buffer: b, Rows: 2, Cols: 2, Offset: 5}}, []M{out})
	assert.ErrorContains(t, err, "b[0] is 2x2 float32 at an address that is no multiple of 16")
	for _, o := range []blas.Options{{Workspace: -1}, {Handles: -1}, {Math: 7}} {
		_, err := blas.Open(x, o)
		assert.Error(t, err)
	}
	_, err = blas.Open(x, blas.Options{Handles: 1 << 60})
	assert.ErrorIs(t, err, safe.ErrRange)
	assert.ErrorContains(t, err, "Options.Handles is 1152921504606846976, more than 1024")
	_, err = blas.Open(nil, blas.Options{})
	assert.ErrorIs(t, err, safe.ErrClosed)
}

// TestEmpty: empty results are no call, and an empty sum is 0.
func TestEmpty(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	none, c := buffer(t, x, []float32{}), buffer(t, x, []float32{1, 2, 3, 4})
	require.NoError(t, blas.Gemm(h, s, 1, blas.Rows(none, 0, 3), blas.Rows(c, 3, 1), 0, blas.Rows(none, 0, 1)))
	require.NoError(t, blas.Gemm(h, s, 1, blas.Rows(none, 2, 0), blas.Rows(none, 0, 2), 2, blas.Rows(c, 2, 2)))
	assert.Equal(t, []float32{2, 4, 6, 8}, download(t, c))
	require.NoError(t, blas.Gemv(h, s, 1, blas.Rows(none, 2, 0), blas.Vec(none), 0.5, blas.Vector[float32]{Buffer: c, N: 2}))
	assert.Equal(t, []float32{1, 2, 6, 8}, download(t, c))
	nothing := blas.Stack[float32]{Matrix: blas.Rows(none, 0, 0), Count: math.MaxInt}
	require.NoError(t, blas.GemmStrided(h, s, 1, nothing, nothing, 0, nothing))
	require.NoError(t, blas.Scal(h, s, 3, blas.Vec(none)))
	norm, err := blas.Nrm2(h, s, blas.Vec(none))
	require.NoError(t, err)
	assert.Zero(t, norm)
}

// TestSideBySide: parts of one matrix that share no element may be input and output.
func TestSideBySide(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	m := blas.Rows(buffer(t, x, []float32{
		1, 2, 0, 0,
		3, 4, 0, 0,
		5, 6, 7, 8}), 3, 4)
	left, right := m.Sub(0, 0, 2, 2), m.Sub(0, 2, 2, 2)
	require.NoError(t, blas.Gemm(h, s, 1, left, left, 0, right))
	assert.Equal(t, []float32{1, 2, 7, 10, 3, 4, 15, 22, 5, 6, 7, 8}, download(t, m.Buffer))
	assert.ErrorIs(t, blas.Gemm(h, s, 1, left, left, 0, m.Sub(0, 1, 2, 2)), safe.ErrOverlap)
	assert.ErrorIs(t, blas.Gemm(h, s, 1, left, left, 0, m.Sub(1, 1, 2, 2)), safe.ErrOverlap)
	require.NoError(t, blas.Gemm(h, s, 1, left, left, 0, m.Sub(1, 2, 2, 2)), "lower, but beside")
}

// TestViews: transposing twice, and parts of parts, are what they say.
func TestViews(t *testing.T) {
	b := blas.Rows[float32](nil, 3, 5)
	assert.Equal(t, "3x5 float32", b.String())
	assert.Equal(t, "5x3 float32 by column", b.T().String())
	assert.Equal(t, "3x5 float32", b.T().T().String())
	part := b.Sub(1, 2, 2, 3).Sub(1, 1, 1, 2)
	assert.Equal(t, 13, part.Offset)
	assert.Equal(t, 5, part.Stride)
	assert.Equal(t, "3 float32 with step 5", b.Col(4).String())
	assert.Equal(t, 4, b.Col(4).Offset)
	assert.Equal(t, 10, b.Row(2).Offset)
	assert.Equal(t, b.Col(1), b.T().Row(1))
	assert.Equal(t, -1, b.Col(5).Offset, "beyond it")
	assert.True(t, b.H().Conjugate)
	assert.False(t, b.H().H().Conjugate)
	assert.Equal(t, 3*128/8, blas.AuxLen(blas.ReLU, 3, 100))
	assert.Equal(t, 3*104, blas.AuxLen(blas.DGELU, 3, 100))
	assert.Zero(t, blas.AuxLen(blas.None, 3, 100))
}

// FuzzOverlap: the check agrees with a comparison of every pair of elements.
func FuzzOverlap(f *testing.F) {
	f.Add(uint8(2), uint8(2), uint8(4), uint8(0), uint8(2), uint8(2))
	f.Add(uint8(3), uint8(1), uint8(5), uint8(4), uint8(2), uint8(6))
	f.Add(uint8(4), uint8(3), uint8(6), uint8(9), uint8(4), uint8(1))
	x := open(f)
	h, s := handle(f, x, blas.Options{}), stream(f, x)
	b := buffer(f, x, make([]float32, 300))
	f.Fuzz(func(t *testing.T, rows, colsA, stride, offsetA, colsC, offsetC uint8) {
		a := blas.Matrix[float32]{Buffer: b, Rows: int(rows%5) + 1, Cols: int(colsA%5) + 1, Offset: int(offsetA % 40)}
		c := blas.Matrix[float32]{Buffer: b, Rows: a.Rows, Cols: int(colsC%5) + 1, Offset: int(offsetC % 40)}
		a.Stride = max(a.Cols, c.Cols) + int(stride%7)
		c.Stride = a.Stride
		shared := false
		for i := range a.Rows * a.Cols {
			for j := range c.Rows * c.Cols {
				shared = shared || index(a, i/a.Cols, i%a.Cols) == index(c, j/c.Cols, j%c.Cols)
			}
		}
		far := blas.Matrix[float32]{Buffer: b, Rows: a.Cols, Cols: c.Cols, Offset: 200}
		if err := blas.Gemm(h, s, 1, a, far, 0, c); shared {
			assert.ErrorIs(t, err, safe.ErrOverlap)
		} else {
			assert.NoError(t, err)
		}
	})
}
