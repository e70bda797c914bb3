//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

// The tests of this package need a driver and a device, and are skipped where
// there is none. CUDABIND_REQUIRE_GPU=1 makes that a failure.
func open(t testing.TB, ordinal int) *safe.Context {
	t.Helper()
	x, err := safe.Open(ordinal)
	if err != nil && os.Getenv("CUDABIND_REQUIRE_GPU") == "" {
		t.Skip("no device: ", err)
	}
	require.NoError(t, err)
	closing(t, x)
	return x
}

// second opens another device, or skips where there is only one.
func second(t testing.TB) *safe.Context {
	t.Helper()
	devices, err := safe.Devices()
	require.NoError(t, err)
	if len(devices) < 2 {
		t.Skip("needs two devices")
	}
	return open(t, 1)
}

type closer interface{ Close() error }

func closing(t testing.TB, c closer) {
	t.Cleanup(func() { require.NoError(t, c.Close()) })
}

func stream(t testing.TB, x *safe.Context) *safe.Stream {
	t.Helper()
	s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	closing(t, s)
	return s
}

func event(t testing.TB, x *safe.Context) *safe.Event {
	t.Helper()
	e, err := safe.NewEvent(x, safe.EventOptions{})
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

func host[T any](t testing.TB, x *safe.Context, n int) *safe.HostBuffer[T] {
	t.Helper()
	h, err := safe.NewHostBuffer[T](x, n, safe.HostOptions{})
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

// gate is a kernel that keeps a stream busy until it is opened. Make it before
// anything else is put on the device: loading waits for what runs.
type gate struct {
	kernel *safe.Kernel
	flag   *safe.HostBuffer[uint32]
}

func newGate(t testing.TB, x *safe.Context) *gate {
	t.Helper()
	return &gate{kernel(t, x, "wait"), host[uint32](t, x, 1)}
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

// current is the current context of this thread.
func current(t testing.TB) driver.CUcontext {
	t.Helper()
	var c driver.CUcontext
	require.NoError(t, driver.CuCtxGetCurrent(&c))
	return c
}

// drop makes the garbage collector find what was dropped.
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
