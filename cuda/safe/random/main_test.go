//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Test setup: the driver and the library, shared helpers.

package random_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/require"
)

// The tests run on the simulated driver with a double of cuRAND, or with
// CUDABIND_REQUIRE_GPU=1 on the machine's driver with its library.
var (
	onGPU     = os.Getenv("CUDABIND_REQUIRE_GPU") != ""
	simulated sim.Control
	logFile   string // of the double
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
	dir, err := os.MkdirTemp("", "random")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if simulated, err = double.Driver(dir); err != nil {
		return 0, err
	}
	if os.Getenv("CUDABIND_TEST_NO_CURAND") != "" { // a test in a process of its own
		return drivertest.Run(m), nil
	}
	logFile = filepath.Join(dir, "calls")
	if err := (double.Library{Name: "curand", Open: curand.Open, Log: logFile}).Register(simulated); err != nil {
		return 0, err
	}
	code := drivertest.Run(m)
	return code, leftOver()
}

// leftOver returns an error if the tests have leaked objects, or broken rules of the driver or of cuRAND.
func leftOver() error {
	if err := drivertest.LeftOver(simulated); err != nil {
		return err
	}
	alive := map[string]bool{}
	all, err := readLog()
	for _, e := range all {
		switch e.op {
		case "create":
			alive[e.generator] = true
		case "destroy":
			delete(alive, e.generator)
		case "race":
			err = errors.Join(err, fmt.Errorf("work used the state of %v at the same time", e))
		}
	}
	if len(alive) > 0 {
		err = errors.Join(err, fmt.Errorf("%d generators are alive", len(alive)))
	}
	return err
}

// entry is a line of the double's log.
type entry struct{ op, generator, stream, out, n string }

func readLog() (entries []entry, err error) {
	text, err := os.ReadFile(logFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) == 5 {
			entries = append(entries, entry{f[0], f[1], f[2], f[3], f[4]})
		}
	}
	return entries, err
}

// logged returns the calls of one function that the double has logged since f began.
func logged(t testing.TB, op string, f func()) []entry {
	t.Helper()
	before, err := readLog()
	require.NoError(t, err)
	f()
	after, err := readLog()
	require.NoError(t, err)
	return slices.DeleteFunc(after[len(before):], func(e entry) bool { return e.op != op })
}

// needsDouble skips a test that reads what the double has logged.
func needsDouble(t testing.TB) {
	t.Helper()
	if onGPU {
		t.Skip("needs the double of cuRAND")
	}
}

func needsGPU(t testing.TB) {
	t.Helper()
	if !onGPU {
		t.Skip("needs cuRAND and a GPU")
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

func generator(t testing.TB, x *safe.Context, k random.Kind, o random.Options) *random.Generator {
	t.Helper()
	g, err := random.New(x, k, o)
	require.NoError(t, err, k)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func buffer[T any](t testing.TB, x *safe.Context, n int) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.NewZeroed[T](x, n)
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

// take returns the next n numbers of a distribution.
func take[T any](t testing.TB, g *random.Generator, s *safe.Stream, n int, f func(*random.Generator, *safe.Stream, *safe.Buffer[T]) error) []T {
	t.Helper()
	b, err := safe.NewBuffer[T](g.Context(), n)
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, f(g, s, b))
	return download(t, b)
}

func normal[T random.Float](g *random.Generator, s *safe.Stream, b *safe.Buffer[T]) error {
	return random.Normal(g, s, b, 0, 1)
}

func logNormal[T random.Float](g *random.Generator, s *safe.Stream, b *safe.Buffer[T]) error {
	return random.LogNormal(g, s, b, 0, 1)
}

func poisson(g *random.Generator, s *safe.Stream, b *safe.Buffer[uint32]) error {
	return random.Poisson(g, s, b, 3)
}

// same asserts that numbers are equal, and tells the first that differ.
func same[T comparable](t testing.TB, want, got []T, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), fmt.Sprintf(format, args...))
	for i := range want {
		if want[i] != got[i] {
			t.Errorf("%s: number %d of %d is %v, not %v", fmt.Sprintf(format, args...), i, len(want), got[i], want[i])
			return
		}
	}
}
