//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The simulated driver that this process has loaded, and what it is told.
var (
	library string
	control sim.Control
)

// parents names the library in the environment of a process that a test starts.
const parents = "SIMDRIVER_TEST_LIBRARY"

func TestMain(m *testing.M) {
	if what := os.Getenv(asMain); what != "" {
		os.Exit(mains[what]())
	}
	code, err := onSimulated(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func onSimulated(m *testing.M) (int, error) {
	library = os.Getenv(parents) // where this is a process of a test's own
	if library == "" {
		dir, err := os.MkdirTemp("", "sim")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		if library, err = sim.Build(dir, sim.Newest); err != nil {
			return 0, err
		}
		if _, err = sim.BuildKernels(dir, "testdata/kernels.c"); err != nil {
			return 0, err
		}
	}
	var err error
	if err := driver.Open(library); err != nil {
		return 0, err
	}
	if control, err = sim.Attach(library); err != nil {
		return 0, err
	}
	if err := driver.CuInit(0); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// primary makes the primary context of a device current for the test. When the
// test is over, nothing may be alive, and the driver is as it was.
func primary(t *testing.T, device driver.CUdevice) driver.CUcontext {
	t.Helper()
	runtime.LockOSThread()
	var c driver.CUcontext
	require.NoError(t, driver.CuDevicePrimaryCtxRetain(&c, device))
	require.NoError(t, driver.CuCtxPushCurrent(c))
	t.Cleanup(func() {
		assert.NoError(t, driver.CuCtxPopCurrent(&c))
		assert.NoError(t, driver.CuDevicePrimaryCtxRelease(device))
		if control.Live("primary") == 0 { // the last of the test's
			assert.Zero(t, control.Live(""), control.List())
			assert.Zero(t, control.Lost())
			assert.Empty(t, control.Violation())
			control.Reset()
			control.Purge()
		}
		runtime.UnlockOSThread()
	})
	return c
}

func stream(t *testing.T) driver.CUstream {
	t.Helper()
	var s driver.CUstream
	require.NoError(t, driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING))
	t.Cleanup(func() { assert.NoError(t, driver.CuStreamDestroy(s)) })
	return s
}

func event(t *testing.T) driver.CUevent {
	t.Helper()
	var e driver.CUevent
	require.NoError(t, driver.CuEventCreate(&e, 0))
	t.Cleanup(func() { assert.NoError(t, driver.CuEventDestroy(e)) })
	return e
}

// memory is device memory that is freed with the test.
func memory(t *testing.T, size uint64) driver.CUdeviceptr {
	t.Helper()
	p := allocate(t, size)
	t.Cleanup(func() { assert.NoError(t, driver.CuMemFree(p)) })
	return p
}

func allocate(t *testing.T, size uint64) driver.CUdeviceptr {
	t.Helper()
	var p driver.CUdeviceptr
	require.NoError(t, driver.CuMemAlloc(&p, size))
	return p
}

// kernel is one of the test data's.
func kernel(t *testing.T, name string) driver.CUfunction {
	t.Helper()
	return kernelOf(t, "kernels.ptx", name)
}

func kernelOf(t *testing.T, file, name string) driver.CUfunction {
	t.Helper()
	image, err := os.ReadFile("../../../cuda/safe/testdata/" + file)
	require.NoError(t, err)
	image = append(image, 0)
	var m driver.CUmodule
	require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
	t.Cleanup(func() { assert.NoError(t, driver.CuModuleUnload(m)) })
	var f driver.CUfunction
	require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData(name+"\x00")))
	return f
}

func launch(f driver.CUfunction, s driver.CUstream, argument uint64) error {
	params := [...]unsafe.Pointer{unsafe.Pointer(&argument)}
	return driver.CuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, &params[0], nil)
}

// gate keeps a stream busy until the function that it returns is called.
func gate(t *testing.T, s driver.CUstream) (open func()) {
	t.Helper()
	var flag unsafe.Pointer
	require.NoError(t, driver.CuMemHostAlloc(&flag, 4, 0))
	t.Cleanup(func() { assert.NoError(t, driver.CuMemFreeHost(flag)) })
	open = func() { atomic.StoreUint32((*uint32)(flag), 1) }
	atomic.StoreUint32((*uint32)(flag), 0)
	require.NoError(t, launch(kernel(t, "wait"), s, uint64(uintptr(flag))))
	t.Cleanup(open) // before it is freed
	return open
}

func words(t *testing.T, p driver.CUdeviceptr, n int) []uint32 {
	t.Helper()
	v := make([]uint32, n)
	require.NoError(t, driver.CuMemcpyDtoH(unsafe.Pointer(&v[0]), p, uint64(4*n)))
	return v
}

// violated expects a wrong use, and has it forgotten.
func violated(t *testing.T, says string) {
	t.Helper()
	assert.Contains(t, control.Violation(), says)
	control.Reset()
}
