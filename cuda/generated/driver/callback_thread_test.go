//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package driver_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"

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
		require.NoError(t, driver.CuUserObjectCreate(&object, 42, driver.CUhostFn(drivertest.Destructor()), 1, driver.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC))
		assert.Equal(t, 42, drivertest.Destroyed())
	})
}
