//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Test setup: the driver and the library, shared helpers.

package fft_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/internal/command"
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
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "fft")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file := os.Getenv("CUDABIND_SIM")
	if file == "" {
		if file, err = sim.Build(dir, cmp.Or(os.Getenv("CUDABIND_SIM_DRIVER"), sim.Default)); err != nil {
			return 0, err
		}
	}
	if err := driver.Open(file); err != nil {
		return 0, err
	}
	if simulated, err = sim.Attach(file); err != nil {
		return 0, err
	}
	if err := errors.Join(double(dir, file), scalers(simulated)); err != nil {
		return 0, err
	}
	code := m.Run()
	return code, drivertest.LeftOver(simulated)
}

// double builds and opens the double of cuFFT.
func double(dir, driver string) error {
	file := filepath.Join(dir, "libcufft.so")
	_, self, _, _ := runtime.Caller(0)
	here := filepath.Dir(self)
	cc := command.CC("-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-DDRIVER="+strconv.Quote(driver),
		"-I", filepath.Join(here, "..", "blas", "testdata", "double"), "-o", file, filepath.Join(here, "testdata", "cufft.c"), "-lm", "-ldl")
	if out, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("building the double of cuFFT: %w\n%s", err, out)
	}
	return cufft.Open(file)
}

// scalers registers the kernels that scale with the simulated driver.
func scalers(c sim.Control) error {
	return errors.Join(
		c.Kernel("cudabind_fft_scale16", func(_ sim.Grid, v []dtype.Float16, n uint64, f float32, _ [8]uint64) { scaleHalf(v, n, f, nil) }),
		c.Kernel("cudabind_fft_scale16_strided", func(_ sim.Grid, v []dtype.Float16, n uint64, f float32, s [8]uint64) { scaleHalf(v, n, f, &s) }),
		c.Kernel("cudabind_fft_scale32", func(_ sim.Grid, v []float32, n uint64, f float32, _ [8]uint64) { scale(v, n, f, nil) }),
		c.Kernel("cudabind_fft_scale32_strided", func(_ sim.Grid, v []float32, n uint64, f float32, s [8]uint64) { scale(v, n, f, &s) }),
		c.Kernel("cudabind_fft_scale64", func(_ sim.Grid, v []float64, n uint64, f float64, _ [8]uint64) { scale(v, n, f, nil) }),
		c.Kernel("cudabind_fft_scale64_strided", func(_ sim.Grid, v []float64, n uint64, f float64, s [8]uint64) { scale(v, n, f, &s) }))
}

func scale[T float32 | float64](v []T, n uint64, f T, steps *[8]uint64) {
	for i := range n {
		v[place(i, steps)] *= f
	}
}

func scaleHalf(v []dtype.Float16, n uint64, f float32, steps *[8]uint64) {
	for i := range n {
		at := place(i, steps)
		v[at] = dtype.NewFloat16(v[at].Float32() * f)
	}
}

// place is where number i lies.
func place(i uint64, steps *[8]uint64) uint64 {
	if steps == nil {
		return i
	}
	at, i := i%steps[0], i/steps[0]
	for d := 1; d < 4; d++ {
		at += i % steps[d] * steps[3+d]
		i /= steps[d]
	}
	return at + i*steps[7]
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
