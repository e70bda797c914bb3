//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const invalid = driver.CUDA_ERROR_INVALID_VALUE

// hostView is the device memory itself, which the simulated driver keeps in the process.
func hostView(p driver.CUdeviceptr) *byte { return *(**byte)(unsafe.Pointer(&p)) }

func TestOutOfBounds(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	for _, size := range []uint64{1, 511, 512, 513, 100_000} {
		p := memory(t, size)
		require.NoError(t, driver.CuMemsetD8(p, 1, size))
		for name, err := range map[string]error{
			"memset":         driver.CuMemsetD8(p, 1, size+1),
			"memset after":   driver.CuMemsetD8(p+driver.CUdeviceptr(size), 1, 1),
			"memset before":  driver.CuMemsetD8(p-1, 1, 1),
			"async memset":   driver.CuMemsetD8Async(p, 1, size+1, s),
			"copy in":        driver.CuMemcpyHtoD(p+1, unsafe.Pointer(unsafe.SliceData(make([]byte, size))), size),
			"copy out":       driver.CuMemcpyDtoH(unsafe.Pointer(unsafe.SliceData(make([]byte, size))), p+1, size),
			"copy of others": driver.CuMemcpyDtoDAsync(p, p+1, size, s),
		} {
			assert.ErrorIs(t, err, invalid, "%s, %d bytes", name, size)
		}
	}
	assert.Empty(t, control.Violation(), "refused, not done")
}

// TestGuards: a write that no call of the driver has made is found.
func TestGuards(t *testing.T) {
	for _, c := range []struct {
		name string
		at   func(size int) int
		says string
	}{
		{"after", func(size int) int { return size }, "something wrote past the end of a block of 100 bytes"},
		{"far after", func(size int) int { return size + 500 }, "something wrote past the end of a block of 100 bytes"},
		{"before", func(int) int { return -1 }, "something wrote before a block of 100 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			p := allocate(t, 100)
			*(*byte)(unsafe.Add(unsafe.Pointer(hostView(p)), c.at(100))) ^= 1
			violated(t, c.says)
			require.NoError(t, driver.CuMemFree(p))
			violated(t, c.says)
		})
	}
}

func TestUseAfterFree(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	for _, c := range []struct {
		name, says string
		want       error
		do         func(p driver.CUdeviceptr) error
	}{
		{"memset", "a memset of memory of 64 bytes that was freed", invalid, func(p driver.CUdeviceptr) error { return driver.CuMemsetD8(p, 1, 1) }},
		{"copy to", "a copy to memory of 64 bytes that was freed", invalid, func(p driver.CUdeviceptr) error { return driver.CuMemcpyDtoDAsync(p, p, 1, s) }},
		{"free", "memory of 64 bytes is freed twice", invalid, func(p driver.CUdeviceptr) error { return driver.CuMemFree(p) }},
		{"free async", "memory of 64 bytes is freed twice", invalid, func(p driver.CUdeviceptr) error { return driver.CuMemFreeAsync(p, s) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			p := allocate(t, 64)
			require.NoError(t, driver.CuMemFree(p))
			assert.ErrorIs(t, c.do(p), c.want)
			violated(t, c.says)
		})
	}
}

// TestUseAfterFreeElsewhere: work enqueued before another stream freed its
// memory is a fault when it runs.
func TestUseAfterFreeElsewhere(t *testing.T) {
	primary(t, 0)
	a, b := stream(t), stream(t)
	var p driver.CUdeviceptr
	require.NoError(t, driver.CuMemAllocAsync(&p, 64, a))
	require.NoError(t, driver.CuStreamSynchronize(a))
	open := gate(t, b)
	require.NoError(t, driver.CuMemsetD8Async(p, 1, 64, b))
	require.NoError(t, driver.CuMemFreeAsync(p, a))
	require.NoError(t, driver.CuStreamSynchronize(a))
	open()
	assert.ErrorIs(t, driver.CuStreamSynchronize(b), driver.CUDA_ERROR_ILLEGAL_ADDRESS)
	violated(t, "a memset of 64 bytes, after the release of a block of 64")
}

func TestWrongHandles(t *testing.T) {
	primary(t, 0)
	var s driver.CUstream
	require.NoError(t, driver.CuStreamCreate(&s, 0))
	e := event(t)
	assert.ErrorIs(t, driver.CuStreamQuery(driver.CUstream(e)), driver.CUDA_ERROR_INVALID_HANDLE)
	violated(t, "the handle of a event is used for a stream")
	assert.ErrorIs(t, driver.CuStreamQuery(12345), driver.CUDA_ERROR_INVALID_HANDLE)
	violated(t, "is no handle of a stream")
	require.NoError(t, driver.CuStreamDestroy(s))
	assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_INVALID_HANDLE)
	violated(t, "a stream is used that was destroyed (in cuStreamQuery)")
	assert.ErrorIs(t, driver.CuStreamDestroy(s), driver.CUDA_ERROR_INVALID_HANDLE)
	violated(t, "a stream is used that was destroyed")
}

func TestOutOfMemory(t *testing.T) {
	primary(t, 0)
	var free, total uint64
	require.NoError(t, driver.CuMemGetInfo(&free, &total))
	assert.Equal(t, total, free)
	p := allocate(t, total/2)
	require.NoError(t, driver.CuMemGetInfo(&free, &total))
	assert.Equal(t, total-total/2, free)
	var more driver.CUdeviceptr
	assert.ErrorIs(t, driver.CuMemAlloc(&more, total), driver.CUDA_ERROR_OUT_OF_MEMORY)
	require.NoError(t, driver.CuMemFree(p))
	require.NoError(t, driver.CuMemAlloc(&more, total), "there is room again")
	require.NoError(t, driver.CuMemFree(more))
}
