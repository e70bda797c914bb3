//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package generated_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/cudart12"
	"github.com/cudabind/cudabind/cuda/generated/cudart13"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
)

// cudart is the folder of a real runtime library: below $CUDABIND_LIBCUDART,
// else where make libraries puts it.
func cudart(t *testing.T, version string) string {
	t.Helper()
	root := os.Getenv("CUDABIND_LIBCUDART")
	if root == "" {
		root = "../../.cache/libcudart"
	}
	dir, err := filepath.Abs(filepath.Join(root, version))
	require.NoError(t, err)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no libcudart of CUDA %s: make libraries gets it", version)
	}
	return dir
}

// noGPU are what the first calls return on a machine without a driver, or
// without a device.
func noGPU(t *testing.T, err error, codes ...error) {
	t.Helper()
	for _, code := range codes {
		if errors.Is(err, code) {
			return
		}
	}
	if err != nil || os.Getenv("CUDABIND_REQUIRE_GPU") != "1" {
		assert.NoError(t, err) // a machine with a GPU
	}
}

// TestRuntime13 loads NVIDIA's own libraries. All functions of the package are
// in the newest; an older one lacks those that came later and no other.
func TestRuntime13(t *testing.T) {
	for _, version := range []string{"13.0", "13.5"} {
		t.Run(version, func(t *testing.T) {
			dir := cudart(t, version)
			drivertest.InChild(t, func(t *testing.T) {
				require.NoError(t, cudart13.Open(dir))
				file, got, err := cudart13.Library()
				require.NoError(t, err)
				assert.Equal(t, version, got)
				assert.Equal(t, filepath.Join(dir, "libcudart.so.13"), file)
				missing, err := cudart13.Missing()
				require.NoError(t, err)
				if version == "13.5" {
					assert.Empty(t, missing)
				} else {
					assert.Len(t, missing, cudart13.Functions-407, "13.0 declares 407")
					for _, e := range missing {
						assert.Contains(t, []string{"13.1", "13.2", "13.3", "13.4", "13.5"}, e.Since, e.Symbol)
					}
				}
				var n int32
				noGPU(t, cudart13.CudaGetDeviceCount(&n), cudart13.CudaErrorNoDevice, cudart13.CudaErrorInsufficientDriver)
				name, err := cudart13.CudaGetErrorName(cudart13.CudaErrorInvalidValue)
				require.NoError(t, err)
				assert.Equal(t, "cudaErrorInvalidValue", name)
				text, err := cudart13.CudaGetErrorString(cudart13.CudaErrorInvalidValue)
				require.NoError(t, err)
				assert.NotEmpty(t, text)
				desc, err := cudart13.CudaCreateChannelDesc(8, 16, 32, 0, cudart13.CudaChannelFormatKindUnsigned)
				require.NoError(t, err)
				assert.Equal(t, cudart13.CudaChannelFormatDesc{X: 8, Y: 16, Z: 32, F: cudart13.CudaChannelFormatKindUnsigned}, desc)
			})
		})
	}
}

func TestRuntime12(t *testing.T) {
	for _, version := range []string{"12.4", "12.9"} {
		t.Run(version, func(t *testing.T) {
			dir := cudart(t, version)
			drivertest.InChild(t, func(t *testing.T) {
				require.NoError(t, cudart12.Open(dir))
				_, got, err := cudart12.Library()
				require.NoError(t, err)
				assert.Equal(t, version, got)
				missing, err := cudart12.Missing()
				require.NoError(t, err)
				if version == "12.9" {
					assert.Empty(t, missing)
				} else {
					assert.Len(t, missing, cudart12.Functions-402, "12.4 declares 402")
				}
				var n int32
				noGPU(t, cudart12.CudaGetDeviceCount(&n), cudart12.CudaErrorNoDevice, cudart12.CudaErrorInsufficientDriver)
			})
		})
	}
}

// TestOtherMajor: symbols of the same name have other prototypes in another
// major version, so its library is refused under any name.
func TestOtherMajor(t *testing.T) {
	for _, version := range []string{"11.8", "12.9"} {
		t.Run(version, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(cudart(t, version), "libcudart.so.*"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			under := filepath.Join(t.TempDir(), "libcudart.so.13")
			require.NoError(t, os.Symlink(files[0], under))
			drivertest.InChild(t, func(t *testing.T) {
				err := cudart13.Open(under)
				var library *cudart13.LibraryError
				require.ErrorAs(t, err, &library)
				// 11.8 does not even tell its version without a driver.
				assert.Regexp(t, "is of CUDA "+version+"; this package is for CUDA 13 alone|returned 35", err)
				assert.ErrorIs(t, err, errors.ErrUnsupported)
			})
		})
	}
}

// TestSitePackages finds the library where pip puts it, below a folder that
// the program names.
func TestSitePackages(t *testing.T) {
	dir := cudart(t, "13.5")
	site := t.TempDir()
	lib := filepath.Join(site, "nvidia", "cu13", "lib")
	require.NoError(t, os.MkdirAll(lib, 0o777))
	require.NoError(t, os.Symlink(filepath.Join(dir, "libcudart.so.13"), filepath.Join(lib, "libcudart.so.13")))
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, cudart13.Open(os.Getenv("SITE")))
		file, _, err := cudart13.Library()
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(file, "libcudart.so.13"), file)
	}, "SITE="+site)
}

// runtimeGPU opens the runtime library of a machine with a GPU. The test keeps its thread, whose the current context
// and captures are.
func runtimeGPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	required := os.Getenv("CUDABIND_REQUIRE_GPU") == "1"
	err := cudart13.Open(os.Getenv("CUDABIND_LIBCUDART_GPU"))
	if err == nil {
		var n int32
		err = cudart13.CudaGetDeviceCount(&n)
	}
	if err != nil && !required {
		t.Skip("no GPU, or no runtime library: ", err)
	}
	require.NoError(t, err)
}

// TestRuntimeOnGPU allocates, copies, sets and captures through the runtime.
func TestRuntimeOnGPU(t *testing.T) {
	runtimeGPU(t)
	const size = 1 << 20
	var device, host unsafe.Pointer
	require.NoError(t, cudart13.CudaMalloc(&device, size))
	defer func() { assert.NoError(t, cudart13.CudaFree(device)) }()
	require.NoError(t, cudart13.CudaMallocHost(&host, size))
	defer func() { assert.NoError(t, cudart13.CudaFreeHost(host)) }()
	var stream cudart13.CudaStream_t
	require.NoError(t, cudart13.CudaStreamCreateWithFlags(&stream, cudart13.CudaStreamNonBlocking))
	defer func() { assert.NoError(t, cudart13.CudaStreamDestroy(stream)) }()
	work := func() {
		require.NoError(t, cudart13.CudaMemsetAsync(device, 0x5a, size, stream))
		require.NoError(t, cudart13.CudaMemcpyAsync(host, device, size, cudart13.CudaMemcpyDeviceToHost, stream))
	}
	bytes := unsafe.Slice((*byte)(host), size)
	check := func() {
		t.Helper()
		require.NoError(t, cudart13.CudaStreamSynchronize(stream))
		for i, b := range bytes {
			require.Equalf(t, byte(0x5a), b, "byte %d", i)
			bytes[i] = 0
		}
	}
	work()
	check()

	require.NoError(t, cudart13.CudaStreamBeginCapture(stream, cudart13.CudaStreamCaptureModeThreadLocal))
	work()
	var graph cudart13.CudaGraph_t
	require.NoError(t, cudart13.CudaStreamEndCapture(stream, &graph))
	var exec cudart13.CudaGraphExec_t
	require.NoError(t, cudart13.CudaGraphInstantiate(&exec, graph, 0))
	for range 3 {
		require.NoError(t, cudart13.CudaGraphLaunch(exec, stream))
		check()
	}
	require.NoError(t, cudart13.CudaGraphExecDestroy(exec))
	require.NoError(t, cudart13.CudaGraphDestroy(graph))

	err := cudart13.CudaMemcpy(device, host, size, 99)
	assert.ErrorIs(t, err, cudart13.CudaErrorInvalidMemcpyDirection)
}

// TestMixing uses a stream and an event of one API through the other: their
// handles are the same.
func TestMixing(t *testing.T) {
	runtimeGPU(t)
	var fromRuntime cudart13.CudaStream_t
	require.NoError(t, cudart13.CudaStreamCreate(&fromRuntime))
	defer func() { assert.NoError(t, cudart13.CudaStreamDestroy(fromRuntime)) }()
	var fromDriver driver.CUstream
	require.NoError(t, driver.CuStreamCreate(&fromDriver, driver.CU_STREAM_NON_BLOCKING))
	defer func() { assert.NoError(t, driver.CuStreamDestroy(fromDriver)) }()

	var event driver.CUevent
	require.NoError(t, driver.CuEventCreate(&event, driver.CU_EVENT_DISABLE_TIMING))
	defer func() { assert.NoError(t, driver.CuEventDestroy(event)) }()
	require.NoError(t, driver.CuEventRecord(event, driver.CUstream(fromRuntime)))
	require.NoError(t, cudart13.CudaStreamWaitEvent(cudart13.CudaStream_t(fromDriver), cudart13.CudaEvent_t(event), 0))
	require.NoError(t, cudart13.CudaStreamSynchronize(cudart13.CudaStream_t(fromDriver)))
	require.NoError(t, driver.CuStreamSynchronize(driver.CUstream(fromRuntime)))

	var flags uint32
	require.NoError(t, cudart13.CudaStreamGetFlags(cudart13.CudaStream_t(fromDriver), &flags))
	assert.Equal(t, uint32(cudart13.CudaStreamNonBlocking), flags)
}
