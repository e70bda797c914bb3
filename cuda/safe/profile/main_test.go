//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/double"
)

// The tests run on the simulated driver with a double of CUPTI, or with CUDABIND_REQUIRE_GPU=1 on
// the machine's driver and CUPTI.
var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

// cuptiDouble is the double of CUPTI.
var cuptiDouble struct{ work, other, refuse, enabled, calls, early uintptr }

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
	dir, err := os.MkdirTemp("", "profile")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if _, err := double.Driver(dir); err != nil {
		return 0, err
	}
	if os.Getenv("CUDABIND_TEST_NO_CUPTI") != "" {
		return drivertest.Run(m), nil
	}
	lib := filepath.Join(dir, "libcupti.so.13")
	if out, err := command.CC("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", lib, "testdata/cupti.c").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building the double of CUPTI: %w\n%s", err, out)
	}
	if err := errors.Join(cupti.Open(lib), attachDouble(lib)); err != nil {
		return 0, err
	}
	return drivertest.Run(m), nil
}

func attachDouble(lib string) error {
	h, err := purego.Dlopen(lib, purego.RTLD_NOW)
	if err != nil {
		return err
	}
	for name, to := range map[string]*uintptr{"double_work": &cuptiDouble.work, "double_other": &cuptiDouble.other, "double_refuse": &cuptiDouble.refuse, "double_enabled": &cuptiDouble.enabled, "double_calls": &cuptiDouble.calls, "double_early": &cuptiDouble.early} {
		if *to, err = purego.Dlsym(h, name); err != nil {
			return err
		}
	}
	return nil
}

func needsDouble(t testing.TB) {
	t.Helper()
	if onGPU {
		t.Skip("needs the double of CUPTI")
	}
}

func needsGPU(t testing.TB) {
	t.Helper()
	if !onGPU {
		t.Skip("needs CUPTI and a GPU")
	}
}

// The kinds of work that the double makes, by CUPTI's numbers.
const (
	doubleCopy     = int(cupti.CUPTI_ACTIVITY_KIND_MEMCPY)
	doubleFill     = int(cupti.CUPTI_ACTIVITY_KIND_MEMSET)
	doubleKernel   = int(cupti.CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
	doubleGraph    = int(cupti.CUPTI_ACTIVITY_KIND_GRAPH_TRACE) // of two kernels
	doubleTimeless = 101                                        // a kernel whose times CUPTI does not know
	doubleRunning  = 102                                        // a kernel that does not end
	doubleSlow     = 103                                        // a launch that takes three flushes, and enqueues nothing
	doubleQuery    = 0                                          // a call that enqueues nothing
)

// work makes a call and its work.
func work(kind, stream int) { drivertest.Call(cuptiDouble.work, uintptr(kind), uintptr(stream), 0) }

// tell tells the double something until the end of the test.
func tell(t *testing.T, what uintptr, value int) {
	drivertest.Call(what, uintptr(value), 0, 0)
	t.Cleanup(func() { drivertest.Call(what, 0, 0, 0) })
}

// enabled is what the double records, and whether there is a subscriber.
func enabled() int { return ask(cuptiDouble.enabled) }

// ask asks the double for a number.
func ask(what uintptr) int {
	n, _, _ := purego.SyscallN(what)
	return int(n)
}

func start(t testing.TB, o Options) *Recording {
	t.Helper()
	r, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Stop() })
	return r
}

func stop(t testing.TB, r *Recording) *Timeline {
	t.Helper()
	tl, err := r.Stop()
	require.NoError(t, err)
	return tl
}

func open(t testing.TB) (*safe.Context, *safe.Stream) {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return x, s
}
