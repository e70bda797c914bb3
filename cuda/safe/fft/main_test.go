//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Test setup: the driver and the library, shared helpers.

package fft_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/require"
)

// The tests run on the simulated driver with a double of cuFFT, or with
// CUDABIND_REQUIRE_GPU=1 on the machine's driver with its library.
var (
	onGPU     = os.Getenv("CUDABIND_REQUIRE_GPU") != ""
	simulated sim.Control
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if onGPU {
		return drivertest.Run(m), nil
	}
	dir, err := os.MkdirTemp("", "fft")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if simulated, err = double.Driver(dir); err != nil {
		return 0, err
	}
	if err := (double.Library{Name: "cufft", Open: cufft.Open}).Register(simulated); err != nil {
		return 0, err
	}
	code := drivertest.Run(m)
	return code, drivertest.LeftOver(simulated)
}

// needsDouble skips a test of what the double does.
func needsDouble(t testing.TB) {
	t.Helper()
	if onGPU {
		t.Skip("needs the double of cuFFT")
	}
}

func open(t testing.TB) *safe.Context {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func stream(t testing.TB, x *safe.Context) *safe.Stream {
	t.Helper()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func buffer[T any](t testing.TB, x *safe.Context, values []T) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.Upload(x, values)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func download[T any](t testing.TB, b *safe.Buffer[T]) []T {
	t.Helper()
	values, err := b.Download()
	require.NoError(t, err)
	return values
}
