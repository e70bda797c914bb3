//go:build cgo && linux && amd64 && !race && !cudabind_lockorder

package random_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/stretchr/testify/require"
)

// TestCounts compares what random numbers take beside cuRAND with testdata/counts.txt. Where a change is meant, -update
// writes the file.
func TestCounts(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	even, odd := buffer[float32](t, x, 1000), buffer[float32](t, x, 999)
	g, err := random.New(x, random.Philox, random.Options{})
	require.NoError(t, err)
	defer g.Close()
	drivertest.Counts(t, x.Synchronize, []drivertest.Counted{
		{Name: "Uniform", F: func() error { return random.Uniform(g, s, odd) }},
		{Name: "Normal", F: func() error { return random.Normal(g, s, even, 0, 1) }},
		{Name: "Normal of an odd length", F: func() error { return random.Normal(g, s, odd, 0, 1) }},
		{Name: "Uniform on another stream than the last", F: func() error {
			s, other = other, s
			return random.Uniform(g, s, even)
		}},
	})
}
