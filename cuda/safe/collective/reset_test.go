//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCloseAfterReset: a communicator whose context was reset cannot end in order, and the other ranks
// hear of it.
func TestCloseAfterReset(t *testing.T) {
	needsDouble(t)
	drivertest.InChild(t, func(t *testing.T) {
		w := newWorld(t)
		w.stuckAt(t, 1)
		require.NoError(t, w.contexts[0].Device().ResetPrimary())
		require.NoError(t, w.comms[0].Close())
		select {
		case <-w.comms[1].Done():
		case <-time.After(10 * time.Second):
			t.Error("rank 1 waits for rank 0")
			w.comms[1].Abort(nil)
		}
		for _, c := range w.comms {
			err := c.Shutdown(soon(t))
			assert.ErrorIs(t, err, ErrAborted)
			assert.ErrorIs(t, err, safe.ErrReset)
		}
		assert.EqualValues(t, 1, told.get(&told.Aborted), "that of rank 1")
		atomic.AddInt32(&told.Live, -1) // NCCL keeps the one of rank 0
	})
}
