//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Test setup: the driver and the libraries, shared helpers.

package blas_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/require"
)

// The tests run on the simulated driver with doubles of cuBLAS and cuBLASLt, or with
// CUDABIND_REQUIRE_GPU=1 on the machine's driver with its libraries.
var (
	onGPU     = os.Getenv("CUDABIND_REQUIRE_GPU") != ""
	simulated sim.Control
	logFile   string // of the doubles
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
	dir, err := os.MkdirTemp("", "blas")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if simulated, err = double.Driver(dir); err != nil {
		return 0, err
	}
	if os.Getenv("CUDABIND_TEST_NO_CUBLAS") != "" { // a test in a process of its own
		return drivertest.Run(m), nil
	}
	logFile = filepath.Join(dir, "calls")
	if err := errors.Join(
		double.Library{Name: "cublas", Open: cublas.Open, Log: logFile}.Register(simulated),
		double.Library{Name: "cublaslt", Open: cublaslt.Open, Log: logFile}.Register(simulated)); err != nil {
		return 0, err
	}
	code := drivertest.Run(m)
	return code, drivertest.LeftOver(simulated)
}

// needsDouble skips a test that reads what the doubles have logged.
func needsDouble(t testing.TB) {
	t.Helper()
	if onGPU {
		t.Skip("needs the double of cuBLAS")
	}
}

func needsGPU(t testing.TB) {
	t.Helper()
	if !onGPU {
		t.Skip("needs cuBLAS and a GPU")
	}
}

func open(t testing.TB) *safe.Context {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// handle opens cuBLAS with small workspaces on the simulated driver.
func handle(t testing.TB, x *safe.Context, o blas.Options) *blas.Handle {
	t.Helper()
	if !onGPU && o.Workspace == 0 {
		o.Workspace = 4096
	}
	h, err := blas.Open(x, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
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
	b, err := safe.NewBuffer[T](x, len(values))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.CopyFromHost(values))
	return b
}

func download[T any](t testing.TB, b *safe.Buffer[T]) []T {
	t.Helper()
	values, err := b.Download()
	require.NoError(t, err)
	return values
}

// entry is a line of the doubles' log.
type entry struct{ op, handle, stream, workspace, size string }

// logged returns what the doubles have logged since f began.
func logged(t testing.TB, f func()) []entry {
	t.Helper()
	before := len(lines(t))
	f()
	return lines(t)[before:]
}

// lines is the whole log.
func lines(t testing.TB) (entries []entry) {
	t.Helper()
	text, err := os.ReadFile(logFile)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) == 5 {
			entries = append(entries, entry{f[0], f[1], f[2], f[3], f[4]})
		}
	}
	return entries
}
