//go:build (linux && (amd64 || arm64) && !cgo && cudabind_nocgo) || (windows && amd64)

package driver_test

import (
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGoOnCallingThread: the library calls Go before the call returns. If the stack moves
// meanwhile, the results are where nobody looks, and the call panics.
func TestGoOnCallingThread(t *testing.T) {
	onFake(t, func(t *testing.T) {
		callback := drivertest.BlockBytesInGo(func(threads int32) uintptr { return 4 * uintptr(threads) })
		var grid, block int32
		require.NoError(t, driver.CuOccupancyMaxPotentialBlockSize(&grid, &block, 0x10, driver.CUoccupancyB2DSize(callback), 0, 256))
		assert.Equal(t, [2]int32{4 * 256, 256}, [2]int32{grid, block})

		drivertest.BlockBytesInGo(func(int32) uintptr { return grow(1000) })
		panics := make(chan any)
		go func() { // a small stack
			defer func() { panics <- recover() }()
			var grid, block int32
			driver.CuOccupancyMaxPotentialBlockSize(&grid, &block, 0x10, driver.CUoccupancyB2DSize(callback), 0, 256)
		}()
		assert.Equal(t, "cuda: cuOccupancyMaxPotentialBlockSize called Go on the calling thread, and the goroutine's stack moved: results are lost", receive(t, panics))
	})
}

// grow uses up a lot of stack.
//
//go:noinline
func grow(depth int) uintptr {
	var pad [200]byte
	if depth == 0 {
		return 0
	}
	pad[depth%len(pad)] = 1
	n := grow(depth - 1)
	runtime.KeepAlive(&pad)
	return n + uintptr(pad[depth%len(pad)])
}
