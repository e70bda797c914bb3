//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Test setup: the choice of driver, shared helpers, and the check for leftover objects.
// Runs on any driver.

package safe_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/require"
)

// The tests of this package run on a simulated driver, or with CUDABIND_REQUIRE_GPU=1 on
// the machine's driver. CUDABIND_SIM_DRIVER is the CUDA version of the simulated driver,
// CUDABIND_SIM its file if it is already built.
var (
	onGPU     = os.Getenv("CUDABIND_REQUIRE_GPU") != ""
	simulated sim.Control
)

const noCache = "CUDABIND_NO_MEMORY_CACHE"

// noDriver as CUDABIND_SIM means that the tests must load no driver.
const noDriver = "none"

func TestMain(m *testing.M) {
	if onGPU {
		os.Exit(drivertest.Run(m))
	}
	code, err := onSimulated(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// prebuilt tells whether CUDABIND_SIM was set.
var prebuilt bool

// onSimulated runs the tests and then checks for leftover objects.
func onSimulated(m *testing.M) (int, error) {
	file := os.Getenv("CUDABIND_SIM")
	if prebuilt = file != ""; !prebuilt {
		dir, err := os.MkdirTemp("", "sim")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		if file, err = sim.Build(dir, cmp.Or(os.Getenv("CUDABIND_SIM_DRIVER"), sim.Default)); err != nil {
			return 0, err
		}
		os.Setenv("CUDABIND_SIM", file) // for tests in a process of their own
	}
	if file == noDriver {
		return drivertest.Run(m), nil
	}
	if err := driver.Open(file); err != nil {
		return 0, err
	}
	var err error
	if simulated, err = sim.Attach(file); err != nil {
		return 0, err
	}
	os.Setenv(noCache, "1") // for the simulated driver to see each release
	code := drivertest.Run(m)
	return code, leftOver()
}

// leaves tells that this process has objects that can never be destroyed.
var leaves bool

// leftOver returns an error if the program has leaked objects or violated rules of the
// driver.
func leftOver() error {
	for end := time.Now().Add(atOnce); !leaves && simulated.Live("") > 0 && time.Now().Before(end); {
		drop()
	}
	if n := simulated.Live(""); n != 0 && !leaves {
		return fmt.Errorf("%d objects are alive:\n%s", n, simulated.List())
	}
	if n := simulated.Lost(); n != 0 && !leaves {
		return fmt.Errorf("%d objects went with their context", n)
	}
	if v := simulated.Violation(); v != "" {
		return errors.New(v)
	}
	return nil
}

// needsFiles skips a test where CUDA shares nothing by file descriptors.
func needsFiles(t *testing.T) {
	t.Helper()
	if !sharesFiles {
		t.Skip("needs memory that is shared by file descriptors")
	}
}

func open(t testing.TB, ordinal int) *safe.Context {
	t.Helper()
	x, err := safe.Open(ordinal)
	require.NoError(t, err)
	closing(t, x)
	return x
}

// second opens another device, or skips the test if there is only one.
func second(t testing.TB) *safe.Context {
	t.Helper()
	needsSecond(t)
	return open(t, 1)
}

func needsSecond(t testing.TB) {
	t.Helper()
	devices, err := safe.Devices()
	require.NoError(t, err)
	if len(devices) < 2 {
		t.Skip("needs two devices")
	}
}

type closer interface{ Close() error }

func closing(t testing.TB, c closer) {
	t.Cleanup(func() { require.NoError(t, c.Close()) })
}

func stream(t testing.TB, x *safe.Context) *safe.Stream {
	t.Helper()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	closing(t, s)
	return s
}

func event(t testing.TB, x *safe.Context) *safe.Event {
	t.Helper()
	e, err := safe.NewEvent(x)
	require.NoError(t, err)
	closing(t, e)
	return e
}

func buffer[T any](t testing.TB, x *safe.Context, n int) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.NewBuffer[T](x, n)
	require.NoError(t, err)
	closing(t, b)
	return b
}

func plainBuffer[T any](t testing.TB, x *safe.Context, n int) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.NewBufferWith[T](x, n, safe.BufferOptions{Plain: true})
	require.NoError(t, err)
	closing(t, b)
	return b
}

func host[T any](t testing.TB, x *safe.Context, n int) *safe.Pinned[T] {
	t.Helper()
	h, err := safe.NewPinned[T](x, n)
	require.NoError(t, err)
	closing(t, h)
	return h
}

func kernel(t testing.TB, x *safe.Context, name string) *safe.Kernel {
	t.Helper()
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	closing(t, m)
	k, err := m.Kernel(name)
	require.NoError(t, err)
	return k
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

func perValue(n int) safe.LaunchConfig {
	return safe.LaunchConfig{Grid: safe.Blocks(n, 128), Block: safe.Dim{X: 128}}
}

// gate is a kernel that keeps a stream busy until it is opened. Create it before other
// work is enqueued: loading a module waits for running kernels.
type gate struct {
	kernel *safe.Kernel
	flag   *safe.Pinned[uint32]
}

func newGate(t testing.TB, x *safe.Context) *gate {
	t.Helper()
	g := &gate{kernel(t, x, "wait"), host[uint32](t, x, 1)}
	g.flag.Data()[0] = 0
	return g
}

func (g *gate) shut(t testing.TB, s *safe.Stream) {
	t.Helper()
	require.NoError(t, g.kernel.Launch(s, one, g.flag.Arg()))
	t.Cleanup(g.open) // before anything is closed
}

func (g *gate) open() {
	if data := g.flag.Data(); data != nil {
		*(*uint32)(unsafe.Pointer(&data[0])) = 1
	}
}

// withDriver runs body in a process with a simulated driver of a CUDA version, which is built
// for it.
func withDriver(t *testing.T, version string, body func(t *testing.T)) {
	t.Helper()
	if prebuilt {
		t.Skip("needs a C compiler, for another driver than CUDABIND_SIM")
	}
	drivertest.InChild(t, body, "CUDABIND_SIM=", "CUDABIND_SIM_DRIVER="+version)
}

// current returns the current context of this thread.
func current(t testing.TB) driver.CUcontext {
	t.Helper()
	var c driver.CUcontext
	require.NoError(t, driver.CuCtxGetCurrent(&c))
	return c
}

// hang is the time after which a call counts as hanging: longer under an emulator.
var hang = func() time.Duration {
	if os.Getenv(command.Wrapper) != "" {
		return 3 * time.Minute
	}
	return time.Minute
}()

// atOnce is long enough, on any machine, for what does not wait for a stuck stream.
var atOnce = hang / 2

// drop makes the garbage collector find dropped objects.
func drop() {
	for range 3 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
}

func count(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i)
	}
	return v
}
