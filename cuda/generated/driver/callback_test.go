//go:build cgo && linux && (amd64 || arm64)

package driver_test

import (
	"fmt"
	"runtime"
	"runtime/cgo"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCallbackOnCallingThread: a C function is called before the call returns.
func TestCallbackOnCallingThread(t *testing.T) {
	onFake(t, func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var grid, block int32
		require.NoError(t, driver.CuOccupancyMaxPotentialBlockSize(&grid, &block, 0x10, driver.CUoccupancyB2DSize(drivertest.BlockBytes()), 0, 256))
		assert.EqualValues(t, 256, block)
		assert.EqualValues(t, 4*256, grid, "what the callback answered")
		assert.Equal(t, syscall.Gettid(), drivertest.BlockBytesThread())
		assert.Equal(t, fmt.Sprint("thread ", syscall.Gettid()), said(t))

		require.NoError(t, driver.CuOccupancyMaxPotentialBlockSize(&grid, &block, 0x10, 0, 77, 128), "no callback")
		assert.EqualValues(t, 77, grid)

		var object driver.CUuserObject
		require.NoError(t, driver.CuUserObjectCreate(&object, 42, driver.CUhostFn(drivertest.Destructor()), 1, uint32(driver.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)))
		assert.Equal(t, 42, drivertest.Destroyed())
	})
}

// TestHostFuncInGo: the driver calls Go on threads of its own.
func TestHostFuncInGo(t *testing.T) {
	onFake(t, func(t *testing.T) {
		const calls = 200
		done := make(chan int, calls)
		for i := range calls {
			handle := cgo.NewHandle(func() {
				var count int32
				assert.NoError(t, driver.CuDeviceGetCount(&count), "a call from inside")
				if i%50 == 0 {
					runtime.GC()
				}
				done <- i
			})
			defer handle.Delete()
			require.NoError(t, driver.CuLaunchHostFunc(0, driver.CUhostFn(drivertest.HostFunc()), uintptr(handle)))
		}
		seen := map[int]bool{}
		for range calls {
			seen[receive(t, done)] = true
		}
		assert.Len(t, seen, calls, "each once")
	})
}

func TestStreamCallbackInGo(t *testing.T) {
	onFake(t, func(t *testing.T) {
		type call struct {
			stream driver.CUstream
			status driver.CUresult
		}
		done := make(chan call, 1)
		handle := cgo.NewHandle(func(stream uintptr, status int) { done <- call{driver.CUstream(stream), driver.CUresult(status)} })
		defer handle.Delete()
		require.NoError(t, driver.CuStreamAddCallback(driver.CU_STREAM_LEGACY, driver.CUstreamCallback(drivertest.StreamCallback()), uintptr(handle), 0))
		assert.Equal(t, call{driver.CU_STREAM_LEGACY, driver.CUDA_ERROR_ILLEGAL_ADDRESS}, receive(t, done))
	})
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
