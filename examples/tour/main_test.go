//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"cmp"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/require"
)

var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

// control tells the simulated driver what to do.
var control sim.Control

// TestMain runs the tests on the machine's GPU if CUDABIND_REQUIRE_GPU is set, else on
// a simulated driver.
func TestMain(m *testing.M) {
	if onGPU {
		os.Exit(m.Run())
	}
	code, err := simulated(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// simulated builds a simulated driver, opens it and runs the tests.
func simulated(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file, err := sim.Build(dir, cmp.Or(os.Getenv("CUDABIND_SIM_DRIVER"), sim.Default))
	if err != nil {
		return 0, err
	}
	if err := driver.Open(file); err != nil {
		return 0, err
	}
	if control, err = sim.Attach(file); err != nil {
		return 0, err
	}
	code = m.Run()
	return code, left()
}

// needsSimulated skips a test that tells the driver what to do.
func needsSimulated(t *testing.T) {
	t.Helper()
	if onGPU {
		t.Skip("needs the simulated driver, which does what it is told")
	}
}

// needsNVRTC skips a test if there is no NVRTC, and gives it a cache of its own.
func needsNVRTC(t *testing.T) {
	t.Helper()
	if _, _, err := nvrtc.Library(); err != nil {
		if err := nvrtc.Open("../../.cache/libnvrtc/13.5"); err != nil { // where make libraries puts it
			t.Skip(err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
}

type closer interface{ Close() error }

func closing(t *testing.T, c closer) {
	t.Cleanup(func() { require.NoError(t, c.Close()) })
}

func open(t *testing.T) *safe.Context {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	closing(t, x)
	return x
}

func newStream(t *testing.T, x *safe.Context) *safe.Stream {
	t.Helper()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	closing(t, s)
	return s
}

func newBuffer(t *testing.T, x *safe.Context, n int) *safe.Buffer[float32] {
	t.Helper()
	b, err := safe.NewBuffer[float32](x, n)
	require.NoError(t, err)
	closing(t, b)
	return b
}

func newHostBuffer(t *testing.T, x *safe.Context, n int) *safe.Pinned[float32] {
	t.Helper()
	h, err := safe.NewPinned[float32](x, n)
	require.NoError(t, err)
	closing(t, h)
	return h
}

func kernel(t *testing.T, x *safe.Context, name string) *safe.Kernel {
	t.Helper()
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	closing(t, m)
	k, err := m.Kernel(name)
	require.NoError(t, err)
	return k
}

func values(t *testing.T, b *safe.Buffer[float32]) []float32 {
	t.Helper()
	v := make([]float32, b.Len())
	require.NoError(t, b.CopyToHost(v))
	return v
}

// gate is a kernel that keeps a stream busy until it is opened. Make it before
// anything else is put on the device: loading waits for what runs.
type gate struct {
	kernel *safe.Kernel
	flag   *safe.Pinned[uint32]
}

func newGate(t *testing.T, x *safe.Context) *gate {
	t.Helper()
	flag, err := safe.NewPinned[uint32](x, 1)
	require.NoError(t, err)
	closing(t, flag)
	return &gate{kernel(t, x, "wait"), flag}
}

// shut keeps a stream busy from now on.
func (g *gate) shut(t *testing.T, s *safe.Stream) {
	t.Helper()
	g.flag.Data()[0] = 0
	one := safe.Dim{X: 1}
	require.NoError(t, g.kernel.Launch(s, safe.LaunchConfig{Grid: one, Block: one}, g.flag.Arg()))
	t.Cleanup(g.open) // before anything is closed
}

func (g *gate) open() { atomic.StoreUint32(&g.flag.Data()[0], 1) }
