//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGreenContext multiplies on a stream of a green context, and in a graph that was captured there.
func TestGreenContext(t *testing.T) {
	x := open(t)
	parts, _, err := x.Device().Split(safe.SplitOptions{Groups: 1})
	if errors.Is(err, safe.ErrNotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	g, err := safe.NewGreenContext(x, parts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	h := handle(t, x, blas.Options{})
	a, c := buffer(t, x, []float32{1, 2, 3, 4}), buffer(t, x, make([]float32, 4))
	square := func() error { return blas.Gemm(h, s, 1, blas.Rows(a, 2, 2), blas.Rows(a, 2, 2), 0, blas.Rows(c, 2, 2)) }
	require.NoError(t, square())
	assert.Equal(t, []float32{7, 10, 15, 22}, download(t, c))
	require.NoError(t, c.Fill(0))
	e, err := s.CaptureExecutable(square)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	require.NoError(t, e.Launch(s))
	assert.Equal(t, []float32{7, 10, 15, 22}, download(t, c))
}
