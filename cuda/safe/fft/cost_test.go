//go:build cgo && linux && amd64 && !race && !cudabind_lockorder

package fft_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/stretchr/testify/require"
)

// TestCounts compares what transforms take beside cuFFT with testdata/counts.txt. Where a change is meant, -update writes
// the file.
func TestCounts(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	b := buffer(t, x, make([]complex64, 8))
	plan := func(o fft.Options) *fft.Plan[complex64, complex64] {
		p, err := fft.New[complex64, complex64](x, fft.Shape{N: []int{8}}, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}
	one, scaled := plan(fft.Options{}), plan(fft.Options{Scale: true})
	late := stream(t, x)
	drivertest.Counts(t, heldBack(t, x, late), []drivertest.Counted{
		{Name: "Forward", F: func() error { return one.Forward(s, b, b) }},
		{Name: "Inverse", F: func() error { return one.Inverse(s, b, b) }},
		{Name: "Inverse, scaled", F: func() error { return scaled.Inverse(late, b, b) }},
		{Name: "Forward on another stream than the last", F: func() error {
			s, other = other, s
			return one.Forward(s, b, b)
		}},
	})
}
