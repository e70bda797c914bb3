//go:build (linux && (amd64 || arm64) && (cgo || cudabind_nocgo)) || (windows && amd64)

package driver_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHostFuncInGo: the driver calls Go on threads of its own.
func TestHostFuncInGo(t *testing.T) {
	onFake(t, func(t *testing.T) {
		const calls = 200
		done := make(chan int, calls)
		for i := range calls {
			handle := drivertest.NewHandle(func() {
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
		handle := drivertest.NewHandle(func(stream uintptr, status int) { done <- call{driver.CUstream(stream), driver.CUresult(status)} })
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
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
