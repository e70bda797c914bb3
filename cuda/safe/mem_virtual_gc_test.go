//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests check how long virtual memory lives. They run on the simulated driver and
// on a GPU.

package safe_test

import (
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVirtualCapturing: memory stays mapped while a capture uses it.
func TestVirtualCapturing(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	r, s := reserve(t, x, 2*granule), stream(t, x)
	mapped(t, x, r, 0, granule)
	mapped(t, x, r, granule, granule)
	b := mappedBuffer[float32](t, r, 0, 10)
	graph, err := s.Capture(func() error {
		require.NoError(t, b.FillAsync(s, 0))
		assert.ErrorIs(t, b.Fill(0), safe.ErrCapturing)
		assert.ErrorIs(t, r.SetAccess(granule, granule, 0), safe.ErrCapturing)
		assert.NoError(t, r.SetAccess(granule, granule, readWrite))
		require.NoError(t, b.Close())
		return r.Unmap(0, granule)
	})
	require.NoError(t, err, "the capture goes on")
	exec := executable(t, graph)
	require.NoError(t, exec.Launch(s))
	require.NoError(t, s.Synchronize())
	require.NoError(t, graph.Close())
	require.NoError(t, r.SetAccess(granule, granule, 0))
	assert.False(t, isUnmapped(t, x, r), "the executable needs it")
}

// TestVirtualNodes: graphs built by hand retain mapped memory.
func TestVirtualNodes(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	r, s, out := reserve(t, x, granule), stream(t, x), buffer[float32](t, x, 100)
	mapped(t, x, r, 0, granule)
	b := mappedBuffer[float32](t, r, 0, 100)
	graph, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, graph)
	zero := addNode(t, graph, safe.FillNode(b, 0))
	k := addNode(t, graph, safe.KernelNode(kernel(t, x, "fill"), perValue(100), safe.Val(uint32(50)), safe.Val(float32(4)), b.Arg()), zero)
	addNode(t, graph, safe.CopyNode[float32](out, b), k)
	exec := executable(t, graph)
	require.NoError(t, b.Close())
	require.NoError(t, r.Unmap(0, granule))
	require.NoError(t, exec.Launch(s))
	got := make([]float32, 100)
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, []float32{4, 0}, got[49:51])
	_, err = graph.Add(safe.FillNode(b, 0))
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = graph.Add(safe.FreeNode(b))
	assert.Error(t, err)
}

// TestVirtualAnyOrder closes objects in orders that CUDA does not allow.
func TestVirtualAnyOrder(t *testing.T) {
	startClean(t) // what tests before have dropped keeps the context in use
	x, err := safe.Open(0)
	require.NoError(t, err)
	granule := virtual(t, x)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	p, err := safe.NewPhysicalMemory(x, granule, safe.PhysicalMemoryOptions{})
	require.NoError(t, err)
	r, err := safe.ReserveAddress(x, granule, safe.ReserveOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Map(0, p))
	require.NoError(t, r.SetAccess(0, granule, readWrite, x.Device()))
	b, err := safe.NewMappedBuffer[float32](r, 0, 100)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	for range 2 {
		require.NoError(t, p.Close())
		require.NoError(t, r.Close())
	}
	assert.ErrorIs(t, r.Map(0, p), safe.ErrClosed)
	require.NoError(t, b.FillAsync(s, 3))
	require.NoError(t, s.Close())
	got := make([]float32, 100)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 3, got[99])
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	assert.Eventually(t, func() bool { return !inUse(t, safe.Device{}) }, atOnce, 10*time.Millisecond, "the last object is closed")
}

// TestVirtualDropped: objects dropped without Close are released.
func TestVirtualDropped(t *testing.T) {
	startClean(t) // memory of earlier tests would come back meanwhile
	x := open(t, 0)
	granule := virtual(t, x)
	free := func() uint64 {
		n, _, err := x.MemoryInfo()
		require.NoError(t, err)
		return n
	}
	size := 256 << 20 / granule * granule
	before := free()
	func() {
		r, err := safe.ReserveAddress(x, size, safe.ReserveOptions{})
		require.NoError(t, err)
		p, err := safe.NewPhysicalMemory(x, size, safe.PhysicalMemoryOptions{})
		require.NoError(t, err)
		require.NoError(t, r.Map(0, p))
		require.NoError(t, r.SetAccess(0, size, readWrite))
		b, err := safe.NewMappedBuffer[byte](r, 0, 1)
		require.NoError(t, err)
		require.NoError(t, b.FillAsync(stream(t, x), 0))
		assert.LessOrEqual(t, free(), before-size)
	}()
	assert.Eventually(t, func() bool {
		drop()
		return free() > before-size/2
	}, atOnce, 10*time.Millisecond)
}

// TestVirtualShared imports exported memory in the same process.
func TestVirtualShared(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	n, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
	require.NoError(t, err)
	if n == 0 {
		_, err := safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{Shareable: true})
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		t.Skip("the device shares no memory")
	}
	p := physical(t, x, granule, safe.PhysicalMemoryOptions{Shareable: true})
	f, err := p.Export()
	require.NoError(t, err)
	q, err := safe.ImportPhysicalMemory(x, f, p.Size())
	require.NoError(t, err)
	closing(t, q)
	require.NoError(t, f.Close())
	_, err = safe.ImportPhysicalMemory(x, f, p.Size())
	assert.Error(t, err, "the file is closed")
	assert.Equal(t, p.Size(), q.Size())
	assert.Equal(t, p.Location(), q.Location())
	r := reserve(t, x, 2*granule)
	require.NoError(t, r.Map(0, p))
	require.NoError(t, r.Map(granule, q))
	require.NoError(t, r.SetAccess(0, 2*granule, readWrite))
	a, b := mappedBuffer[float32](t, r, 0, 100), mappedBuffer[float32](t, r, granule, 100)
	require.NoError(t, a.CopyFromHost(count(100)))
	got := make([]float32, 100)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, count(100), got)
	_, err = q.Export()
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)

	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	_, err = safe.ImportPhysicalMemory(x, null, granule)
	var e *safe.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "ImportPhysicalMemory", e.Op)
}
