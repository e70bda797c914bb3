//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package driver_test

import (
	"bytes"
	_ "embed"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/kernels.ptx
var kernels string

// gpu makes the primary context of the first GPU current on the thread of the
// test. Where there is none, the test is skipped, or fails if
// CUDABIND_REQUIRE_GPU is 1.
func gpu(tb testing.TB) driver.CUdevice {
	tb.Helper()
	err := driver.CuInit(0)
	if err == nil {
		err = driver.Find("cuDevicePrimaryCtxRetain") // the fake driver has none
	}
	if err != nil && os.Getenv("CUDABIND_REQUIRE_GPU") != "1" {
		tb.Skip("no GPU: ", err)
	}
	require.NoError(tb, err)
	var device driver.CUdevice
	require.NoError(tb, driver.CuDeviceGet(&device, 0))
	var context driver.CUcontext
	require.NoError(tb, driver.CuDevicePrimaryCtxRetain(&context, device))
	runtime.LockOSThread()
	require.NoError(tb, driver.CuCtxSetCurrent(context))
	tb.Cleanup(func() {
		assert.NoError(tb, driver.CuCtxSetCurrent(0))
		runtime.UnlockOSThread()
		assert.NoError(tb, driver.CuDevicePrimaryCtxRelease(device))
	})
	return device
}

func newStream(tb testing.TB, flags driver.CUstream_flags) driver.CUstream {
	tb.Helper()
	var stream driver.CUstream
	require.NoError(tb, driver.CuStreamCreate(&stream, flags))
	tb.Cleanup(func() { assert.NoError(tb, driver.CuStreamDestroy(stream)) })
	return stream
}

func newEvent(tb testing.TB) driver.CUevent {
	tb.Helper()
	var event driver.CUevent
	require.NoError(tb, driver.CuEventCreate(&event, driver.CU_EVENT_DEFAULT))
	tb.Cleanup(func() { assert.NoError(tb, driver.CuEventDestroy(event)) })
	return event
}

// kernel loads a kernel of testdata/kernels.ptx.
func kernel(tb testing.TB, name string) driver.CUfunction {
	tb.Helper()
	var module driver.CUmodule
	require.NoError(tb, driver.CuModuleLoadData(&module, unsafe.Pointer(ffi.CString(kernels))))
	tb.Cleanup(func() { assert.NoError(tb, driver.CuModuleUnload(module)) })
	var function driver.CUfunction
	require.NoError(tb, driver.CuModuleGetFunction(&function, module, ffi.CString(name)))
	return function
}

// floats are n numbers in pinned memory of the host.
func floats(tb testing.TB, n int) []float32 {
	tb.Helper()
	var p unsafe.Pointer
	require.NoError(tb, driver.CuMemHostAlloc(&p, uint64(4*n), 0))
	tb.Cleanup(func() { assert.NoError(tb, driver.CuMemFreeHost(p)) })
	return unsafe.Slice((*float32)(p), n)
}

// deviceFloats are n numbers in the GPU's memory.
func deviceFloats(tb testing.TB, n int) driver.CUdeviceptr {
	tb.Helper()
	var p driver.CUdeviceptr
	require.NoError(tb, driver.CuMemAlloc(&p, uint64(4*n)))
	tb.Cleanup(func() { assert.NoError(tb, driver.CuMemFree(p)) })
	return p
}

// launchFill and launchSaxpy have their parameters on the Go stack.
func launchFill(fill driver.CUfunction, stream driver.CUstream, n uint32, value float32, y driver.CUdeviceptr) error {
	params := [...]unsafe.Pointer{unsafe.Pointer(&n), unsafe.Pointer(&value), unsafe.Pointer(&y)}
	return driver.CuLaunchKernel(fill, (n+255)/256, 1, 1, 256, 1, 1, 0, stream, &params[0], nil)
}

func launchSaxpy(saxpy driver.CUfunction, stream driver.CUstream, n uint32, a float32, x, y driver.CUdeviceptr) error {
	params := [...]unsafe.Pointer{unsafe.Pointer(&n), unsafe.Pointer(&a), unsafe.Pointer(&x), unsafe.Pointer(&y)}
	return driver.CuLaunchKernel(saxpy, (n+255)/256, 1, 1, 256, 1, 1, 0, stream, &params[0], nil)
}

func TestGPUDevices(t *testing.T) {
	gpu(t)
	file, version, err := driver.Library()
	require.NoError(t, err)
	t.Logf("%s, CUDA %s", file, version)
	var count int32
	require.NoError(t, driver.CuDeviceGetCount(&count))
	require.Positive(t, count)
	for i := range count {
		var device driver.CUdevice
		require.NoError(t, driver.CuDeviceGet(&device, i))
		var name [128]byte
		require.NoError(t, driver.CuDeviceGetName(&name[0], int32(len(name)), device))
		var memory uint64
		require.NoError(t, driver.CuDeviceTotalMem(&memory, device))
		var major, minor int32
		require.NoError(t, driver.CuDeviceGetAttribute(&major, driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
		require.NoError(t, driver.CuDeviceGetAttribute(&minor, driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
		var id driver.CUuuid
		require.NoError(t, driver.CuDeviceGetUuid(&id, device))

		text, _, _ := bytes.Cut(name[:], []byte{0})
		t.Logf("%d: %s, compute capability %d.%d, %d MiB, %x", i, text, major, minor, memory>>20, id.Bytes)
		assert.NotEmpty(t, text)
		assert.GreaterOrEqual(t, major, int32(5))
		assert.Greater(t, memory, uint64(1<<28))
		assert.NotZero(t, id.Bytes)
	}
}

// TestGPUDriverHasWhatWeSay compares our table with the driver of this machine,
// and calls a function that a driver of CUDA 13.0 lacks.
func TestGPUDriverHasWhatWeSay(t *testing.T) {
	gpu(t)
	_, version, err := driver.Library()
	require.NoError(t, err)
	checkSince(t, version)
	checkNewerFunction(t)
}

// TestToolkitStub loads the stub of a toolkit that is installed here.
func TestToolkitStub(t *testing.T) {
	var stubs []string
	for _, pattern := range []string{"/usr/local/cuda*/lib64/stubs/libcuda.so", "/usr/local/cuda*/targets/*/lib/stubs/libcuda.so"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		stubs = append(stubs, found...)
	}
	if len(stubs) == 0 {
		t.Skip("no CUDA toolkit in /usr/local")
	}
	drivertest.InChild(t, func(t *testing.T) {
		for _, stub := range stubs {
			err := driver.Open(stub)
			t.Log(err)
			requireLibraryError(t, err, stub, "the CUDA toolkit's stub", "install NVIDIA's driver")
		}
	})
}

func TestGPUErrors(t *testing.T) {
	gpu(t)
	var memory driver.CUdeviceptr
	assert.ErrorIs(t, driver.CuMemAlloc(&memory, 1<<50), driver.CUDA_ERROR_OUT_OF_MEMORY)
	var device driver.CUdevice
	assert.ErrorIs(t, driver.CuDeviceGet(&device, 1000), driver.CUDA_ERROR_INVALID_DEVICE)
	var module driver.CUmodule
	assert.Contains(t, []error{driver.CUDA_ERROR_INVALID_IMAGE, driver.CUDA_ERROR_INVALID_PTX}, driver.CuModuleLoadData(&module, unsafe.Pointer(ffi.CString("no PTX"))))
	stream := newStream(t, driver.CU_STREAM_NON_BLOCKING)
	assert.ErrorIs(t, driver.CuLaunchKernel(kernel(t, "nothing"), 1, 1, 1, 4096, 1, 1, 0, stream, nil, nil), driver.CUDA_ERROR_INVALID_VALUE)

	var name *byte
	require.NoError(t, driver.CuGetErrorName(driver.CUDA_ERROR_NOT_READY, &name))
	assert.Equal(t, driver.CUDA_ERROR_NOT_READY.String(), ffi.GoString(name))
}

// TestGPUOccupancy has the driver call a C function back.
func TestGPUOccupancy(t *testing.T) {
	gpu(t)
	var grid, block int32
	require.NoError(t, driver.CuOccupancyMaxPotentialBlockSize(&grid, &block, kernel(t, "saxpy"), driver.CUoccupancyB2DSize(drivertest.BlockBytes()), 0, 256))
	assert.Positive(t, grid)
	assert.Positive(t, block)
	assert.LessOrEqual(t, block, int32(256))
	assert.NotZero(t, drivertest.BlockBytesThread(), "not called back")
}

// TestGPUStructByValue passes a struct to the real driver and asks for what
// arrived.
func TestGPUStructByValue(t *testing.T) {
	device := gpu(t)
	var managed int32
	require.NoError(t, driver.CuDeviceGetAttribute(&managed, driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device))
	if managed == 0 {
		t.Skip("the GPU has no managed memory that takes advice")
	}
	if err := driver.Find("cuMemAdvise_v2"); err != nil {
		t.Skip(err)
	}
	var memory driver.CUdeviceptr
	require.NoError(t, driver.CuMemAllocManaged(&memory, 4096, driver.CU_MEM_ATTACH_GLOBAL))
	defer func() { assert.NoError(t, driver.CuMemFree(memory)) }()
	for _, place := range []struct {
		location driver.CUmemLocation
		want     int32
	}{
		{onDevice(int32(device)), int32(device)},
		{driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_HOST}, -1},
	} {
		require.NoError(t, driver.CuMemAdvise_v2(memory, 4096, driver.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place.location))
		var got int32
		require.NoError(t, driver.CuMemRangeGetAttribute(unsafe.Pointer(&got), 4, driver.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 4096))
		assert.Equal(t, place.want, got)
	}
}
