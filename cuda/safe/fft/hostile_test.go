//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package fft_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/stretchr/testify/require"
)

// TestHostile calls every function and method with nil, zero and extreme values.
func TestHostile(t *testing.T) {
	needsDouble(t)
	drivertest.Hostile{Objects: func(t *testing.T) []any {
		x := open(t)
		s := stream(t, x)
		shape := fft.Shape{N: []int{16}}
		p, err := fft.New[float32, complex64](x, shape, fft.Options{Scale: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return []any{x, s, p, shape, cache(t, x, fft.CacheOptions{}), buffer(t, x, make([]float32, 16)), buffer(t, x, make([]complex64, 16))}
	}}.Run(t, map[string]any{
		"Forward": fft.Forward[float32, complex64], "Inverse": fft.Inverse[float32, complex64], "New": fft.New[float32, complex64],
		"NewCache": fft.NewCache, "NewComplexFloat16": fft.NewComplexFloat16,
	}, []any{&fft.Plan[float32, complex64]{}, &fft.Cache{}, fft.ComplexFloat16{}, fft.Shape{}})
}

// TestCopiedPlan: a copy of a Plan is the same plan.
func TestCopiedPlan(t *testing.T) {
	x := open(t)
	p, err := fft.New[float32, complex64](x, fft.Shape{N: []int{16}}, fft.Options{})
	require.NoError(t, err)
	copied := *p
	require.NoError(t, copied.Close())
	err = p.Forward(stream(t, x), buffer(t, x, make([]float32, 16)), buffer(t, x, make([]complex64, 16)))
	require.ErrorIs(t, err, safe.ErrClosed)
}
