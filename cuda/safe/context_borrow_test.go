//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Borrowed contexts whose work is pending when the context that they were borrowed from is closed.
// Simulated driver alone.

package safe_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

// TestOpenClosedBeforeBorrowed: a primary context is released after the last of its Contexts, also one
// that was borrowed and still asks for the end of its work when it is closed.
func TestOpenClosedBeforeBorrowed(t *testing.T) {
	needsSimulated(t)
	body := func(t *testing.T) {
		watch(t)
		x, err := safe.Open(0)
		require.NoError(t, err)
		h, err := safe.NewPinned[uint32](x, 1, safe.PinnedOptions{})
		require.NoError(t, err)
		var raw driver.CUstream
		var memory driver.CUdeviceptr
		require.NoError(t, x.WithCurrent(func() error {
			return errors.Join(driver.CuStreamCreate(&raw, uint32(driver.CU_STREAM_NON_BLOCKING)), driver.CuMemAlloc(&memory, 16))
		}))
		busy, goOn := make(chan struct{}), make(chan struct{})
		y, err := safe.Open(1)
		require.NoError(t, err)
		r, err := safe.NewResource(y, func() { close(busy); <-goOn })
		require.NoError(t, err)

		b, err := safe.BorrowContext(x.Raw(), nil)
		require.NoError(t, err)
		s, err := safe.BorrowStream(raw, b, nil)
		require.NoError(t, err)
		m, err := safe.BorrowBuffer[uint32](b, memory, 4, nil)
		require.NoError(t, err)
		unstick := stickOn(t, h, s)
		require.NoError(t, m.ZeroAsync(s))
		require.NoError(t, r.Close())
		<-busy // the reaper
		require.NoError(t, errors.Join(m.Close(), s.Close(), b.Close()))
		unstick()
		require.NoError(t, x.WithCurrent(func() error {
			return errors.Join(driver.CuStreamSynchronize(raw), driver.CuStreamDestroy(raw), driver.CuMemFree(memory))
		}))
		require.NoError(t, errors.Join(h.Close(), x.Close(), y.Close()))
		close(goOn)
		settle(t)
		noViolation(t)

		x = open(t, 0) // a new context, perhaps with the handle of the old one
		require.NoError(t, errors.Join(stream(t, x).Synchronize(), buffer[uint32](t, x, 4).CopyToHost(make([]uint32, 4))))
		noViolation(t)
	}
	t.Run("newest", func(t *testing.T) { drivertest.InChild(t, body) })
	t.Run("11.8", func(t *testing.T) { withDriver(t, "11.8", body) })
}
