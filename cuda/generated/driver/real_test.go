//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package driver_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// drivers are the versions of NVIDIA's drivers that we know, by the first
// number of theirs.
var drivers = map[string]int32{"470": 11040, "535": 12020, "550": 12040, "580": 13000}

// TestRealDriver loads NVIDIA's own libraries, on a machine without a GPU:
// those below the folders in $CUDABIND_LIBCUDA, else what make libraries got.
func TestRealDriver(t *testing.T) {
	folders := filepath.SplitList(os.Getenv("CUDABIND_LIBCUDA"))
	if len(folders) == 0 {
		if runtime.GOARCH != "amd64" {
			t.Skip("make libraries gets drivers for amd64 alone")
		}
		folders = []string{"../../../.cache/libcuda"}
	}
	var files []string
	for _, folder := range folders {
		folder, err := filepath.Abs(folder)
		require.NoError(t, err)
		for _, pattern := range []string{"libcuda.so.1", "*/libcuda.so.1"} {
			found, err := filepath.Glob(filepath.Join(folder, pattern))
			require.NoError(t, err)
			files = append(files, found...)
		}
	}
	if len(files) == 0 {
		t.Skipf("no libcuda.so.1 below %s: make libraries gets some", strings.Join(folders, " or "))
	}
	for _, file := range files {
		name := filepath.Base(resolved(t, file))
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				require.NoError(t, driver.Open(file))
				at, version, err := driver.Library()
				require.NoError(t, err)
				assert.Equal(t, resolved(t, file), resolved(t, at))

				var number int32
				require.NoError(t, driver.CuDriverGetVersion(&number))
				if known := drivers[strings.Split(name, ".")[2]]; known != 0 {
					assert.Equal(t, known, number)
				}
				assert.Equal(t, fmt.Sprintf("%d.%d", number/1000, number%1000/10), version)

				checkSince(t, version)
				checkNewerFunction(t)

				err = driver.CuInit(0)
				if errors.Is(err, driver.CUDA_ERROR_NO_DEVICE) || errors.Is(err, driver.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) {
					var count int32
					assert.ErrorIs(t, driver.CuDeviceGetCount(&count), driver.CUDA_ERROR_NOT_INITIALIZED)
					checkInterop(t)
					return
				}
				assert.NoError(t, err, "neither no device nor a driver of another version in the kernel")
			})
		})
	}
}

// checkSince compares what the library that is loaded has with what we say the
// functions need: it has exactly those up to its version.
func checkSince(t *testing.T, version string) {
	t.Helper()
	want := map[string]string{}
	for symbol, since := range driver.Symbols() {
		if number(t, since) > number(t, version) {
			want[symbol] = since
		}
	}
	missing, err := driver.Missing()
	require.NoError(t, err)
	got := map[string]string{}
	for _, m := range missing {
		if m.Symbol != "cuEventCreateFromEGLSync" { // drivers 535 and 550 lack it, though it is old
			got[m.Symbol] = m.Since
		}
	}
	assert.Equal(t, want, got)
}

// checkInterop calls functions for profilers and other systems without CUDA being initialized.
func checkInterop(t *testing.T) {
	t.Helper()
	var (
		resource   driver.CUgraphicsResource
		connection driver.CUeglStreamConnection
		devices    uint32
	)
	for name, err := range map[string]error{
		"profiler": driver.CuProfilerStart(),
		"OpenGL":   driver.CuGraphicsGLRegisterBuffer(&resource, 1, 0),
		"devices":  driver.CuGLGetDevices(&devices, nil, 0, driver.CU_GL_DEVICE_LIST_ALL),
		"EGL":      driver.CuEGLStreamProducerConnect(&connection, 1, 64, 64),
		"VDPAU":    driver.CuGraphicsVDPAURegisterVideoSurface(&resource, 1, 0),
	} {
		assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_INITIALIZED, name)
	}
	err := driver.CuEGLStreamProducerPresentFrame(&connection, driver.CUeglFrame{Width: 64}, nil)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_HANDLE, "a struct by value")
}

// checkNewerFunction calls a function that came with CUDA 13.1.
func checkNewerFunction(t *testing.T) {
	t.Helper()
	file, version, err := driver.Library()
	require.NoError(t, err)
	if number(t, version) >= number(t, "13.1") {
		t.Logf("the driver is of CUDA %s and has all that CUDA 13.1 brought", version)
		return
	}
	var resource driver.CUdevResource
	err = driver.CuStreamGetDevResource(driver.CU_STREAM_LEGACY, &resource, driver.CU_DEV_RESOURCE_TYPE_SM)
	assert.Equal(t, &driver.SymbolError{Symbol: "cuStreamGetDevResource", Since: "13.1", Library: file, Version: version}, err)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.EqualError(t, err, "cuda: "+file+" (CUDA "+version+") has no cuStreamGetDevResource: it needs CUDA 13.1")
}

// number makes versions such as 9.2 and 12.10 comparable.
func number(t *testing.T, version string) int {
	t.Helper()
	major, minor, ok := strings.Cut(version, ".")
	require.True(t, ok, "version %q", version)
	a, err := strconv.Atoi(major)
	require.NoError(t, err)
	b, err := strconv.Atoi(minor)
	require.NoError(t, err)
	return 1000*a + b
}
