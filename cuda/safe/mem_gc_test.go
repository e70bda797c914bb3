//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests drop, reset and share memory in unusual orders. They run on the simulated
// driver and on a GPU; those named TestSim need the simulated driver.

package safe_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDroppedArgument: memory is not collected between Arg and the launch.
func TestDroppedArgument(t *testing.T) {
	x := open(t, 0)
	k, s := kernel(t, x, "store"), stream(t, x)
	arg := func() safe.Arg {
		b, err := safe.NewBuffer[uint64](x, 1)
		require.NoError(t, err)
		return b.Arg()
	}()
	drop()
	assert.NoError(t, k.Launch(s, one, arg, safe.Val(uint64(7))))
	require.NoError(t, s.Synchronize())
}

// TestLocationNumbers: the ID of a location is not truncated.
func TestLocationNumbers(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	b, err := safe.NewManagedBuffer[int32](x, 4)
	require.NoError(t, err)
	defer b.Close()
	zero := safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: 1 << 32}
	assert.ErrorIs(t, b.PrefetchAsync(s, zero), safe.ErrInvalidArgument)
	assert.ErrorIs(t, b.Advise(driver.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, zero), safe.ErrInvalidArgument)
}

// toReset opens a context of a device that the test is going to reset.
func toReset(t *testing.T) *safe.Context {
	t.Helper()
	needsSimulated(t)
	startClean(t)
	needs(t, "cuCtxGetId")
	t.Cleanup(simulated.Reset)
	x, err := safe.Open(1)
	require.NoError(t, err)
	return x
}

// TestSimPoolAfterReset: a pool belongs to the process and survives a reset of the
// context.
func TestSimPoolAfterReset(t *testing.T) {
	x := toReset(t)
	p, err := safe.NewPool(x)
	require.NoError(t, err)
	require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
	assert.Equal(t, 1, simulated.Live("pool"))
	require.NoError(t, p.Close())
	assert.Zero(t, simulated.Live("pool"))
	require.NoError(t, x.Close())
}

// TestSimFreeAfterReset: a reset frees stream-ordered memory, and closing it afterwards
// is no error.
func TestSimFreeAfterReset(t *testing.T) {
	x := toReset(t)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	other, err := safe.NewStream(x)
	require.NoError(t, err)
	var buffers []*safe.Buffer[int32]
	for range 3 {
		b, err := safe.NewBufferAsync[int32](s, 4)
		require.NoError(t, err)
		require.NoError(t, b.FillAsync(s, 0))
		buffers = append(buffers, b)
	}
	require.NoError(t, s.Synchronize(), "the memory is there for others, too")
	for _, b := range buffers[:2] {
		require.NoError(t, b.FillAsync(other, 0))
	}
	require.NoError(t, buffers[0].Close()) // after both, on an internal stream
	require.NoError(t, s.Synchronize())
	require.NoError(t, other.Synchronize())
	settle(t) // CUDA crashes if a raw reset coincides with the free
	require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
	for _, c := range []closer{buffers[1], buffers[2], s, other, x} {
		assert.NoError(t, c.Close())
	}
	nothingAlive(t, "after the reset")
	simulated.Lost()
}

// TestLinkerInCallback: a call that is refused before it reaches CUDA leaves the linker
// usable.
func TestLinkerInCallback(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	l, err := safe.NewLinker(x, safe.LoadOptions{})
	require.NoError(t, err)
	defer l.Close()
	add := func() error { return l.Add(driver.CU_JIT_INPUT_PTX, "nothing", []byte(nothingPTX)) }
	f, err := s.LaunchHostFunc(func() { assert.ErrorIs(t, add(), safe.ErrInCallback) })
	require.NoError(t, err)
	wait(t, f)
	assert.NoError(t, add())
	_, err = l.Complete()
	assert.NoError(t, err)
	_, err = l.Complete()
	assert.ErrorIs(t, err, safe.ErrClosed)
}

// TestExportedFiles: child processes do not inherit exported files, which would keep the
// memory allocated, unless the program passes them on.
func TestExportedFiles(t *testing.T) {
	needsFiles(t)
	x := open(t, 0)
	for name, export := range map[string]func() (*os.File, error){
		"memory": func() (*os.File, error) {
			p, err := safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{Shareable: true})
			require.NoError(t, err)
			defer p.Close()
			return p.Export()
		},
		"pool": func() (*os.File, error) {
			p, err := safe.NewPoolWith(x, safe.PoolOptions{HandleTypes: driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR})
			require.NoError(t, err)
			defer p.Close()
			return p.Export()
		},
	} {
		f, err := export()
		require.NoError(t, err, name)
		assert.False(t, inherited(t, f), name)
		require.NoError(t, f.Close())
	}
}

// TestScopeCaptured: a scope whose stream captures at the end still waits for its copies.
func TestScopeCaptured(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, b := stream(t, x), buffer[int32](t, x, 4)
	var c *safe.Capture
	unstick, over := stick(t, x, s), make(chan error, 1)
	go func() {
		over <- s.Scope(func(scope *safe.Scope) error {
			if err := safe.CopyFromSlice(scope, b, []int32{1, 2, 3, 4}); err != nil {
				return err
			}
			var err error
			c, err = s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
			return err
		})
	}()
	time.Sleep(50 * time.Millisecond)
	assert.Empty(t, over, "the copy has not completed")
	unstick()
	assert.ErrorIs(t, <-over, safe.ErrCapturing)
	require.NoError(t, end(c))
	got := make([]int32, 4)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, []int32{1, 2, 3, 4}, got)
	noViolation(t)
}

// TestCopyNodeNil: a copy node refuses nil memory of every kind.
func TestCopyNodeNil(t *testing.T) {
	x := open(t, 0)
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	defer g.Close()
	b := buffer[int32](t, x, 4)
	for _, w := range []safe.NodeParams{safe.CopyNode[int32](nil, b), safe.CopyNode[int32](b, nil), safe.CopyNode(b, (*safe.Buffer[int32])(nil))} {
		_, err = g.Add(w)
		assert.ErrorIs(t, err, safe.ErrClosed)
	}
}

// TestDevicesInCallback: a host function cannot make calls that need no context either.
func TestDevicesInCallback(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	m, err := safe.NewManagedBuffer[int32](x, 4)
	require.NoError(t, err)
	defer m.Close()
	f, err := s.LaunchHostFunc(func() {
		for name, call := range map[string]func() error{
			"devices":   func() error { _, err := safe.Devices(); return err },
			"attribute": func() error { _, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_WARP_SIZE); return err },
			"open":      func() error { _, err := safe.Open(0); return err },
			"pool":      func() error { _, err := safe.NewPool(x); return err },
			"physical":  func() error { _, err := safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{}); return err },
			"prefetch":  func() error { return m.PrefetchAsync(s, safe.HostLocation) },
		} {
			assert.ErrorIs(t, call(), safe.ErrInCallback, name)
		}
	})
	require.NoError(t, err)
	wait(t, f)
}

// TestZeroScope: a Scope that lends nothing leaves no memory pinned, for which Go would end the
// process.
func TestZeroScope(t *testing.T) {
	b := buffer[int32](t, open(t, 0), 8)
	for _, scope := range []*safe.Scope{nil, {}} {
		assert.ErrorIs(t, safe.CopyFromSlice(scope, b, make([]int32, 8)), safe.ErrClosed)
		assert.ErrorIs(t, safe.CopyToSlice(scope, make([]int32, 8), b), safe.ErrClosed)
	}
	drop()
}

// TestRegisteredSlice: the slice of RegisterPinned is Go's memory, and outlives the Pinned.
func TestRegisteredSlice(t *testing.T) {
	x := open(t, 0)
	const n = 1 << 16
	data := func(end func(*safe.Pinned[byte])) []byte {
		h, err := safe.RegisterPinned(x, make([]byte, n))
		require.NoError(t, err)
		d := h.Data()
		end(h)
		return d
	}
	for name, end := range map[string]func(*safe.Pinned[byte]){
		"closed":  func(h *safe.Pinned[byte]) { require.NoError(t, h.Close()) },
		"dropped": func(*safe.Pinned[byte]) {},
	} {
		t.Run(name, func(t *testing.T) {
			d := data(end)
			drop()
			others := make([]*safe.Pinned[byte], 20)
			for i := range others {
				others[i] = host[byte](t, x, n)
				require.NoError(t, others[i].Fill(0))
			}
			for i := range d {
				d[i] = 0x41
			}
			drop()
			for _, o := range others {
				assert.Equal(t, make([]byte, n), o.Data())
			}
			assert.Equal(t, bytes.Repeat([]byte{0x41}, n), d)
		})
	}
}
