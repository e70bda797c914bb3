//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Threads and Threads2D. Runs on any driver.

package safe_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThreads(t *testing.T) {
	for _, test := range []struct {
		n    int
		want uint32
	}{{-1, 0}, {0, 0}, {1, 1}, {256, 1}, {257, 2}, {1 << 39, 1 << 31}, {math.MaxInt, math.MaxUint32}} {
		t.Run(fmt.Sprint(test.n), func(t *testing.T) {
			assert.Equal(t, safe.LaunchConfig{Grid: safe.Dim{X: test.want}, Block: safe.Dim{X: 256}}, safe.Threads(test.n))
		})
	}
}

func TestThreads2D(t *testing.T) {
	for _, test := range []struct {
		width, height int
		want          safe.Dim
	}{
		{1, 1, safe.Dim{X: 1, Y: 1}},
		{32, 8, safe.Dim{X: 1, Y: 1}},
		{33, 9, safe.Dim{X: 2, Y: 2}},
		{1920, 1080, safe.Dim{X: 60, Y: 135}},
		{0, 8, safe.Dim{}},
		{32, 0, safe.Dim{}},
		{-1, -1, safe.Dim{}},
		{1, math.MaxInt, safe.Dim{X: 1, Y: math.MaxUint32}},
	} {
		t.Run(fmt.Sprint(test.width, "x", test.height), func(t *testing.T) {
			assert.Equal(t, safe.LaunchConfig{Grid: test.want, Block: safe.Dim{X: 32, Y: 8}}, safe.Threads2D(test.width, test.height))
		})
	}
}

// TestThreadsRefused: launches for no values, and for more than a grid has, say so.
func TestThreadsRefused(t *testing.T) {
	x := open(t, 0)
	s, b, fill := stream(t, x), buffer[float32](t, x, 1000), kernel(t, x, "fill")
	launch := func(cfg safe.LaunchConfig, n int) error {
		return fill.Launch(s, cfg, safe.Val(uint32(n)), safe.Val(float32(1)), b.Arg())
	}
	require.NoError(t, launch(safe.Threads(1000), 1000))
	got, err := b.Download()
	require.NoError(t, err)
	assert.EqualValues(t, 1, got[999])
	for _, test := range []struct {
		name string
		cfg  safe.LaunchConfig
		want string
	}{
		{"none", safe.Threads(0), "grid.X is 0: skip a launch for no values"},
		{"negative", safe.Threads(-5), "grid.X is 0: skip a launch for no values"},
		{"no height", safe.Threads2D(5, 0), "grid.X is 0: skip a launch for no values"},
		{"too many", safe.Threads(math.MaxInt), "grid.X is 4294967295, the maximum is 2147483647"},
		{"too high", safe.Threads2D(1, 524281), "grid.Y is 65536, the maximum is 65535"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := launch(test.cfg, 0)
			assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
			assert.ErrorContains(t, err, test.want)
		})
	}
}
