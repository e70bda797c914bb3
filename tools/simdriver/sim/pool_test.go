//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func poolProps() driver.CUmemPoolProps {
	p := driver.CUmemPoolProps{AllocType: driver.CU_MEM_ALLOCATION_TYPE_PINNED}
	p.Location.Type = driver.CU_MEM_LOCATION_TYPE_DEVICE
	return p
}

func newPool(t *testing.T, props driver.CUmemPoolProps) driver.CUmemoryPool {
	t.Helper()
	var p driver.CUmemoryPool
	require.NoError(t, driver.CuMemPoolCreate(&p, &props))
	return p
}

func usage(t *testing.T, p driver.CUmemoryPool, a driver.CUmemPool_attribute) (n uint64) {
	t.Helper()
	require.NoError(t, driver.CuMemPoolGetAttribute(p, a, unsafe.Pointer(&n)))
	return n
}

// TestPoolOutlived: what comes from a pool stays when that is destroyed.
func TestPoolOutlived(t *testing.T) {
	primary(t, 0)
	var now, byDefault driver.CUmemoryPool
	require.NoError(t, driver.CuDeviceGetDefaultMemPool(&byDefault, 0)) // now, as it would reuse the handle
	s, p := stream(t), newPool(t, poolProps())
	var a driver.CUdeviceptr
	require.NoError(t, driver.CuMemAllocFromPoolAsync(&a, 100, p, s))
	assert.EqualValues(t, 100, usage(t, p, driver.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
	assert.EqualValues(t, 32<<20, usage(t, p, driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT))
	assert.Equal(t, 1, control.Live("pool"))
	require.NoError(t, driver.CuDeviceSetMemPool(0, p))
	require.NoError(t, driver.CuMemPoolDestroy(p))
	assert.Zero(t, control.Live("pool"))
	require.NoError(t, driver.CuDeviceGetMemPool(&now, 0))
	assert.Equal(t, byDefault, now)
	assert.ErrorIs(t, driver.CuMemPoolDestroy(byDefault), invalid)
	require.NoError(t, driver.CuMemsetD8Async(a, 1, 100, s))
	require.NoError(t, driver.CuMemFreeAsync(a, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.ErrorIs(t, driver.CuMemAllocFromPoolAsync(&a, 100, p, s), invalid)
	violated(t, "a memory pool is used that was destroyed")
}

// TestPoolNotices: a pool keeps memory whose release the host has not waited for.
func TestPoolNotices(t *testing.T) {
	primary(t, 0)
	s, other, p := stream(t), stream(t), newPool(t, poolProps())
	for _, test := range []struct {
		name   string
		notice func() error
		keeps  uint64
	}{
		{"query", func() error { return driver.CuStreamQuery(s) }, 32 << 20},
		{"another stream", func() error { return driver.CuStreamSynchronize(other) }, 32 << 20},
		{"stream", func() error { return driver.CuStreamSynchronize(s) }, 0},
		{"context", driver.CuCtxSynchronize, 0},
	} {
		threshold := uint64(math.MaxUint64)
		require.NoError(t, driver.CuMemPoolSetAttribute(p, driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, unsafe.Pointer(&threshold)))
		var a driver.CUdeviceptr
		require.NoError(t, driver.CuMemAllocFromPoolAsync(&a, 100, p, s))
		require.NoError(t, driver.CuMemFreeAsync(a, s))
		require.Eventually(t, func() bool { return driver.CuStreamQuery(s) == nil }, time.Minute, time.Millisecond)
		require.NoError(t, test.notice())
		require.NoError(t, driver.CuMemPoolTrimTo(p, 0))
		assert.Equal(t, test.keeps, usage(t, p, driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), test.name)
	}
	require.NoError(t, driver.CuMemPoolDestroy(p))
}

// TestPoolsAndCaptures: some of what a program does with pools costs others a capture.
func TestPoolsAndCaptures(t *testing.T) {
	primary(t, 0)
	s, p, zero := stream(t), newPool(t, poolProps()), uint64(0)
	props := poolProps()
	for _, c := range []struct {
		name   string
		breaks bool
		call   func() error
	}{
		{"create", true, func() error { var p driver.CUmemoryPool; return driver.CuMemPoolCreate(&p, &props) }},
		{"trim", true, func() error { return driver.CuMemPoolTrimTo(p, 0) }},
		{"set", true, func() error {
			return driver.CuMemPoolSetAttribute(p, driver.CU_MEMPOOL_ATTR_USED_MEM_HIGH, unsafe.Pointer(&zero))
		}},
		{"get", false, func() error {
			return driver.CuMemPoolGetAttribute(p, driver.CU_MEMPOOL_ATTR_USED_MEM_HIGH, unsafe.Pointer(&zero))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin(t, s)
			err := c.call()
			var g driver.CUgraph
			end := driver.CuStreamEndCapture(s, &g)
			if c.breaks {
				assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
				assert.ErrorIs(t, end, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
				return
			}
			assert.NoError(t, err)
			assert.NoError(t, end)
			assert.NoError(t, driver.CuGraphDestroy(g))
		})
	}
	require.NoError(t, driver.CuMemPoolDestroy(p))
}

func TestPoolsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*driver.CUmemPoolProps){
		"no type":        func(p *driver.CUmemPoolProps) { p.AllocType = 0 },
		"no place":       func(p *driver.CUmemPoolProps) { p.Location.Type = 0 },
		"no such device": func(p *driver.CUmemPoolProps) { *p.Location.Id() = 99 },
		"a handle type":  func(p *driver.CUmemPoolProps) { p.HandleTypes = driver.CU_MEM_HANDLE_TYPE_WIN32 },
		"shared host memory": func(p *driver.CUmemPoolProps) {
			p.HandleTypes, p.Location.Type = driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, driver.CU_MEM_LOCATION_TYPE_HOST
		},
		"limited managed memory": func(p *driver.CUmemPoolProps) {
			p.AllocType, p.MaxSize = driver.CU_MEM_ALLOCATION_TYPE_MANAGED, 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			props := poolProps()
			change(&props)
			var p driver.CUmemoryPool
			assert.ErrorIs(t, driver.CuMemPoolCreate(&p, &props), invalid)
			assert.Zero(t, p)
		})
	}
}

// TestPoolRetains: others cannot have the memory that a pool retains.
func TestPoolRetains(t *testing.T) {
	primary(t, 0)
	s, p, all := stream(t), newPool(t, poolProps()), uint64(math.MaxUint64)
	require.NoError(t, driver.CuMemPoolSetAttribute(p, driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, unsafe.Pointer(&all)))
	var free, total uint64
	left := func() uint64 {
		require.NoError(t, driver.CuMemGetInfo(&free, &total))
		return free
	}
	before := left()
	size := before / 2
	var a, b driver.CUdeviceptr
	require.NoError(t, driver.CuMemAllocFromPoolAsync(&a, size, p, s))
	retained := before - left()
	assert.GreaterOrEqual(t, retained, size)
	require.NoError(t, driver.CuMemFreeAsync(a, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, before-retained, left())
	assert.ErrorIs(t, driver.CuMemAlloc(&b, size+1<<20), driver.CUDA_ERROR_OUT_OF_MEMORY)
	require.NoError(t, driver.CuMemAllocFromPoolAsync(&a, size, p, s), "the pool has it still")
	require.NoError(t, driver.CuMemFreeAsync(a, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	require.NoError(t, driver.CuMemPoolTrimTo(p, 0))
	assert.Equal(t, before, left())
	require.NoError(t, driver.CuMemAllocFromPoolAsync(&a, 100, p, s))
	require.NoError(t, driver.CuMemPoolDestroy(p))
	assert.Equal(t, before-100, left(), "the memory in use")
	require.NoError(t, driver.CuMemFreeAsync(a, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, before, left())
}

// TestPoolDestroyedStream: a pool shrinks although a stream was destroyed before it got to a release.
func TestPoolDestroyedStream(t *testing.T) {
	primary(t, 0)
	s, other, p := driver.CUstream(0), stream(t), newPool(t, poolProps())
	require.NoError(t, driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING))
	for _, on := range []driver.CUstream{s, other} {
		var m driver.CUdeviceptr
		require.NoError(t, driver.CuMemAllocFromPoolAsync(&m, 4, p, on))
		control.Hold(on == s)
		require.NoError(t, driver.CuMemFreeAsync(m, on))
		if on == s {
			require.NoError(t, driver.CuStreamDestroy(s))
		}
		control.Hold(false)
	}
	require.NoError(t, driver.CuStreamSynchronize(other))
	assert.Eventually(t, func() bool { return usage(t, p, driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, driver.CuMemPoolDestroy(p))
}
