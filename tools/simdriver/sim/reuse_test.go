//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReuse: a new object has the handle, or the address, of the one that went last.
func TestReuse(t *testing.T) {
	for _, c := range []struct {
		name string
		made func(*testing.T) (uintptr, func() error)
	}{
		{"stream", func(t *testing.T) (uintptr, func() error) {
			var s driver.CUstream
			require.NoError(t, driver.CuStreamCreate(&s, 0))
			return uintptr(s), func() error { return driver.CuStreamDestroy(s) }
		}},
		{"event", func(t *testing.T) (uintptr, func() error) {
			var e driver.CUevent
			require.NoError(t, driver.CuEventCreate(&e, 0))
			return uintptr(e), func() error { return driver.CuEventDestroy(e) }
		}},
		{"graph", func(t *testing.T) (uintptr, func() error) {
			var g driver.CUgraph
			require.NoError(t, driver.CuGraphCreate(&g, 0))
			return uintptr(g), func() error { return driver.CuGraphDestroy(g) }
		}},
		{"node", func(t *testing.T) (uintptr, func() error) {
			var g driver.CUgraph
			require.NoError(t, driver.CuGraphCreate(&g, 0))
			return uintptr(empty(t, g)), func() error { return driver.CuGraphDestroy(g) }
		}},
		{"executable", func(t *testing.T) (uintptr, func() error) {
			var e driver.CUgraphExec
			require.NoError(t, driver.CuGraphInstantiate(&e, newGraph(t), 0))
			return uintptr(e), func() error { return driver.CuGraphExecDestroy(e) }
		}},
		{"context", func(t *testing.T) (uintptr, func() error) {
			var c driver.CUcontext
			require.NoError(t, driver.CuCtxCreate_v2(&c, 0, 0))
			return uintptr(c), func() error { return driver.CuCtxDestroy(c) }
		}},
		{"memory", func(t *testing.T) (uintptr, func() error) {
			p := allocate(t, 5000)
			return uintptr(p), func() error { return driver.CuMemFree(p) }
		}},
		{"memory of the host", func(t *testing.T) (uintptr, func() error) {
			var p unsafe.Pointer
			require.NoError(t, driver.CuMemHostAlloc(&p, 5000, 0))
			return uintptr(p), func() error { return driver.CuMemFreeHost(p) }
		}},
		{"addresses", func(t *testing.T) (uintptr, func() error) {
			var p driver.CUdeviceptr
			require.NoError(t, driver.CuMemAddressReserve(&p, 2<<20, 0, 0, 0))
			return uintptr(p), func() error { return driver.CuMemAddressFree(p, 2<<20) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			first, undo := c.made(t)
			require.NoError(t, undo())
			second, undo := c.made(t)
			assert.Equal(t, first, second)
			third, undo3 := c.made(t)
			assert.NotEqual(t, second, third)
			require.NoError(t, undo3())
			require.NoError(t, undo())
		})
	}
}

// TestStale: a handle of nothing is found out until it is one of something else.
func TestStale(t *testing.T) {
	primary(t, 0)
	var stale driver.CUevent
	require.NoError(t, driver.CuEventCreate(&stale, 0))
	require.NoError(t, driver.CuEventDestroy(stale))
	assert.ErrorIs(t, driver.CuEventQuery(stale), driver.CUDA_ERROR_INVALID_HANDLE)
	violated(t, "a event is used that was destroyed")
	s, e := stream(t), event(t)
	require.Equal(t, stale, e)
	open := gate(t, s)
	require.NoError(t, driver.CuEventRecord(e, s))
	assert.ErrorIs(t, driver.CuEventQuery(stale), driver.CUDA_ERROR_NOT_READY)
	open()
	require.NoError(t, driver.CuStreamSynchronize(s))
}

// TestStaleContext: after a reset the context has its handle still, and another id.
func TestStaleContext(t *testing.T) {
	c := primary(t, 0)
	var before, after uint64
	require.NoError(t, driver.CuCtxGetId(c, &before))
	p := allocate(t, 5000)
	require.NoError(t, driver.CuDevicePrimaryCtxReset(0))
	assert.Equal(t, 1, control.Lost())
	var again driver.CUcontext
	require.NoError(t, driver.CuDevicePrimaryCtxRetain(&again, 0))
	require.Equal(t, c, again)
	require.NoError(t, driver.CuCtxGetId(c, &after))
	assert.NotEqual(t, before, after)
	assert.Equal(t, p, memory(t, 5000))
	require.NoError(t, driver.CuDevicePrimaryCtxRelease(0))
}

// TestNodesAreToldApart: an executable has no node for one with the handle of another.
func TestNodesAreToldApart(t *testing.T) {
	primary(t, 0)
	s, g, p := stream(t), newGraph(t), memory(t, 4)
	n := memset(t, g, p, 1)
	e := instantiate(t, g)
	require.NoError(t, driver.CuGraphDestroyNode(n))
	require.Equal(t, n, memset(t, g, p, 2))
	assert.ErrorIs(t, driver.CuGraphNodeSetEnabled(e, n, 0), driver.CUDA_ERROR_INVALID_VALUE)
	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{1}, words(t, p, 1))
}
