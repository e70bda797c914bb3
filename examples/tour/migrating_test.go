//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withPrimary calls f on an OS thread of its own, with a device's primary context current.
func withPrimary(ordinal int32, f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := driver.CuInit(0); err != nil {
		return err
	}
	var device driver.CUdevice
	if err := driver.CuDeviceGet(&device, ordinal); err != nil {
		return err
	}
	var primary driver.CUcontext
	if err := driver.CuDevicePrimaryCtxRetain(&primary, device); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.CuDevicePrimaryCtxRelease(device)) }()
	if err := driver.CuCtxPushCurrent(primary); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.CuCtxPopCurrent(&primary)) }()
	return f()
}

// loadFunction loads PTX and looks up one of its kernels.
func loadFunction(ptx, name string) (module driver.CUmodule, kernel driver.CUfunction, err error) {
	if err := driver.CuModuleLoadData(&module, unsafe.Pointer(ffi.CString(ptx))); err != nil {
		return 0, 0, err
	}
	if err := driver.CuModuleGetFunction(&kernel, module, ffi.CString(name)); err != nil {
		return 0, 0, errors.Join(err, driver.CuModuleUnload(module))
	}
	return module, kernel, nil
}

// launchAddRaw enqueues sum = a + b. The arguments stay on the Go stack, and nothing is allocated.
func launchAddRaw(add driver.CUfunction, s driver.CUstream, a, b, sum driver.CUdeviceptr, n uint32) error {
	args := [...]unsafe.Pointer{unsafe.Pointer(&a), unsafe.Pointer(&b), unsafe.Pointer(&sum), unsafe.Pointer(&n)}
	return driver.CuLaunchKernel(add, (n+255)/256, 1, 1, 256, 1, 1, 0, s, &args[0], nil)
}

// uploadRaw enqueues a copy of values, and waits for it. CUDA reads the slice after the call that
// enqueues the copy has returned, so the slice stays pinned until the wait is over.
func uploadRaw(s driver.CUstream, to driver.CUdeviceptr, values []float32) error {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&values[0])
	if err := driver.CuMemcpyHtoDAsync(to, unsafe.Pointer(&values[0]), uint64(4*len(values)), s); err != nil {
		return err
	}
	return driver.CuStreamSynchronize(s)
}

// allocateRaw allocates device memory. Where there is none left, it asks the program to free some, and tries again.
func allocateRaw(size uint64, free func()) (p driver.CUdeviceptr, err error) {
	err = driver.CuMemAlloc(&p, size)
	switch code, _ := driver.Status(err); code {
	case driver.CUDA_SUCCESS:
	case driver.CUDA_ERROR_OUT_OF_MEMORY:
		free()
		err = driver.CuMemAlloc(&p, size)
	}
	return p, err
}

func TestMigrating(t *testing.T) {
	if !onGPU {
		require.NoError(t, registerAdd())
	}
	const n = 1000
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)
	}
	require.NoError(t, withPrimary(0, func() error {
		module, add, err := loadFunction(string(ptx), "add")
		require.NoError(t, err)
		var s driver.CUstream
		require.NoError(t, driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING))
		var at [2]driver.CUdeviceptr
		for i := range at {
			at[i], err = allocateRaw(4*n, func() { t.Error("there is memory") })
			require.NoError(t, err)
		}
		require.NoError(t, uploadRaw(s, at[0], values))
		require.NoError(t, launchAddRaw(add, s, at[0], at[0], at[1], n))
		require.NoError(t, driver.CuStreamSynchronize(s))
		require.NoError(t, driver.CuMemcpyDtoH(unsafe.Pointer(&values[0]), at[1], 4*n))
		assert.EqualValues(t, 2*(n-1), values[n-1])

		_, _, err = loadFunction(string(ptx), "nowhere")
		code, known := driver.Status(err)
		assert.Equal(t, driver.CUDA_ERROR_NOT_FOUND, code)
		assert.True(t, known)
		return errors.Join(driver.CuMemFree(at[0]), driver.CuMemFree(at[1]), driver.CuStreamDestroy(s), driver.CuModuleUnload(module))
	}))
}

func TestMigratingOutOfMemory(t *testing.T) {
	freed := false
	require.NoError(t, withPrimary(0, func() error {
		_, err := allocateRaw(1<<60, func() { freed = true })
		assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
		return nil
	}))
	assert.True(t, freed)
}
