//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package rt

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/internal/command"
)

// build compiles a library, or skips the test.
func build(t *testing.T, text string) (library string) {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "library.c"), filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(source, []byte(text), 0o666))
	cc := command.CC("-shared", "-fPIC", "-o", library, source)
	if cc.Err != nil {
		t.Skip("no C compiler: ", cc.Err)
	}
	out, err := cc.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return library
}

// TestInitOldDriver: the driver lacks functions that every supported one has.
func TestInitOldDriver(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, driver.Open(build(t, "int cuDriverGetVersion(int *version) { *version = 11040; return 0; }")))
		err := Init()
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "a driver for CUDA 11.8 or newer is needed")
		assert.ErrorContains(t, err, "cuCtxGetCurrent")
	})
}

// quietDriver is a driver in C whose functions do little. The legacy stream always captures. Copies of 7 bytes
// fail, and so do waits for stream 7. CuCtxGetId returns the address of the callback that the last call of
// CuStreamAddCallback has got, and CuStreamGetId the number of waits so far.
func quietDriver() string {
	text := `static void *callback;
static unsigned long waits;
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuCtxGetId(void *context, void **id) { *id = callback; return 0; }
int cuStreamAddCallback(void *stream, void *f, void *token, unsigned flags) { callback = f; return 0; }
int cuStreamGetId(void *stream, unsigned long *id) { *id = waits; return 0; }
int cuStreamIsCapturing(unsigned long stream, unsigned *status) { *status = stream <= 1; return 0; }
int cuStreamSynchronize(unsigned long stream) { waits++; return stream == 7 ? 700 : 0; }
int cuMemcpyDtoDAsync_v2(unsigned long dst, unsigned long src, unsigned long n, void *stream) { return n == 7 ? 1 : 0; }
`
	for _, name := range strings.Fields(`Init CtxGetCurrent CtxSetCurrent ThreadExchangeStreamCaptureMode
StreamQuery StreamWaitEvent StreamCreateWithPriority StreamBeginCapture_v2 StreamEndCapture
EventQuery EventRecord EventRecordWithFlags LaunchKernel LaunchKernelEx LaunchHostFunc
MemcpyHtoDAsync_v2 MemcpyDtoHAsync_v2 MemcpyAsync MemcpyPeerAsync MemsetD8Async MemsetD16Async MemsetD32Async
Memcpy3DAsync_v2 Memcpy3DPeerAsync MemsetD2D8Async MemsetD2D16Async MemsetD2D32Async
MemAllocAsync MemAllocFromPoolAsync MemFreeAsync MemImportFromShareableHandle MemPoolImportFromShareableHandle
GraphCreate GraphDestroy GraphGetNodes GraphNodeGetType GraphInstantiateWithFlags GraphLaunch GraphUpload GraphExecDestroy
GraphAddKernelNode GraphKernelNodeSetParams GraphExecKernelNodeSetParams`) {
		text += "int cu" + name + "(void) { return 0; }\n"
	}
	return text
}

// TestCallbackInside: a thread that makes foreign calls, or that the driver calls, still does so after the
// driver has called it once more.
func TestCallbackInside(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, driver.Open(build(t, quietDriver())))
		require.NoError(t, Init())
		defer func() { OnHostFunc, OnStatus = nil, nil }()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.Zero(t, AddCallback(0, 5, 0))
		var address uint64
		require.NoError(t, driver.CuCtxGetId(0, &address))
		hostFunc := func(token uintptr) { drivertest.Call(HostFunction(), token, 0, 0) }
		status := func(token uintptr) { drivertest.Call(uintptr(address), 5, 700, token) }
		for _, c := range []struct {
			name          string
			outer, nested func(token uintptr)
		}{
			{"foreign calls, host function", nil, hostFunc},
			{"foreign calls, callback of a stream", nil, status},
			{"host function, host function", hostFunc, hostFunc},
			{"host function, callback of a stream", hostFunc, status},
			{"callback of a stream, host function", status, hostFunc},
			{"callback of a stream, callback of a stream", status, status},
		} {
			t.Run(c.name, func(t *testing.T) {
				const outer, inside = 1, 2
				called := 0
				OnHostFunc = func(token uintptr) {
					called++
					assert.True(t, InCallback())
					if token == outer {
						c.nested(inside)
						assert.True(t, InCallback(), "it is forgotten")
						assert.Equal(t, CodeCallback, Query(0, 5, 0))
					}
				}
				OnStatus = func(token uintptr, code driver.CUresult) {
					assert.EqualValues(t, 700, code)
					OnHostFunc(token)
				}
				if c.outer != nil {
					c.outer(outer)
				} else {
					var s Scope
					require.Zero(t, Enter(&s, 7, 0, Foreign, 0))
					OnHostFunc(outer)
					Leave(&s)
				}
				assert.Equal(t, 2, called)
				assert.False(t, InCallback())
				assert.Zero(t, Query(0, 5, 0))
			})
		}
	})
}

// TestCopyWaits: a copy waits for its stream also if it fails, as a part of it may be in flight, but not if it was
// refused: a wait for the legacy stream would invalidate the captures for which it was.
func TestCopyWaits(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, driver.Open(build(t, quietDriver())))
		require.NoError(t, Init())
		waits := func() (n uint64) {
			require.NoError(t, driver.CuStreamGetId(5, &n))
			return n
		}
		for _, c := range []struct {
			name  string
			copy  Copy
			code  driver.CUresult
			waits uint64
		}{
			{"a copy", Copy{Stream: 5, Size: 4, Wait: 1}, 0, 1},
			{"without wait", Copy{Stream: 5, Size: 4}, 0, 0},
			{"a copy fails", Copy{Stream: 5, Size: 7, Wait: 1}, driver.CUDA_ERROR_INVALID_VALUE, 1},
			{"a wait fails", Copy{Stream: 7, Size: 4, Wait: 1}, driver.CUDA_ERROR_ILLEGAL_ADDRESS, 2},
			{"beside a capture", Copy{Stream: 1, Size: 4, Wait: 1}, CodeCapturing, 0},
			{"of another context", Copy{Stream: 5, Size: 4, Wait: 1, Home: 9, ID: 9}, CodeReset, 0},
		} {
			t.Run(c.name, func(t *testing.T) {
				before := waits()
				c.copy.Kind = DeviceToDevice
				assert.Equal(t, c.code, c.copy.Do(nil))
				assert.Equal(t, c.waits, waits()-before)
			})
		}
	})
}
