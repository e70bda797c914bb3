package safe_test

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimSpan: the simulated driver reserves no addresses of the program's own memory. Go's heap
// begins at a random one.
func TestSimSpan(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		const at, size, commitAndReserve, readWrite = 0x300000000000, 1 << 16, 0x3000, 4
		got, _, err := syscall.NewLazyDLL("kernel32.dll").NewProc("VirtualAlloc").Call(at, size, commitAndReserve, readWrite)
		require.EqualValues(t, at, got, "%v", err)
		host := unsafe.Slice(*(**int32)(unsafe.Pointer(&got)), 2)

		x := open(t, 0)
		reserve(t, x, simGranule)
		b, err := safe.Upload(x, []int32{1, 2})
		require.NoError(t, err)
		require.NoError(t, b.CopyToHost(host))
		assert.Equal(t, []int32{1, 2}, host)
		require.NoError(t, b.Close())
	})
}
