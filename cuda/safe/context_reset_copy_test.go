//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls that enqueue copies and writes of memory of another device, beside its reset. Each test runs in its
// own process.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCopyAcrossBesideReset: a reset waits for the call that enqueues a copy of memory of its device,
// also of pinned memory, on a stream of another.
func TestCopyAcrossBesideReset(t *testing.T) {
	needsSimulated(t)
	for name, copy := range map[string]func(w *survivor) error{
		"CopyFrom":         func(w *survivor) error { return w.mine.CopyFrom(w.other) },
		"Pitched.CopyFrom": func(w *survivor) error { return w.pitched((*safe.Pitched[uint32]).CopyFrom) },
		"CopyFromAsync":    func(w *survivor) error { return w.mine.CopyFromAsync(w.s, w.other) },
		"Pitched.CopyFromAsync": func(w *survivor) error {
			return w.pitched(func(dst, src *safe.Pitched[uint32]) error { return dst.CopyFromAsync(w.s, src) })
		},
		"Batch": func(w *survivor) error {
			return w.batch(func(b *safe.Batch) error { return safe.BatchCopy[uint32](b, w.mine, w.other) })
		},
		"CopyFromHostAsync": func(w *survivor) error { return w.mine.CopyFromHostAsync(w.s, w.pinned) },
		"CopyToHostAsync":   func(w *survivor) error { return w.mine.CopyToHostAsync(w.s, w.pinned) },
		"Pinned.ZeroAsync":  func(w *survivor) error { return w.pinned.ZeroAsync(w.s) },
		"Pitched.CopyFromHostAsync": func(w *survivor) error {
			p, err := w.mine.Pitched(safe.Extent{Width: 4}, 0)
			return errors.Join(err, p.CopyFromHostAsync(w.s, w.pinned))
		},
		"BatchCopies": func(w *survivor) error {
			return w.s.BatchCopies([]safe.CopyOp{safe.NewCopyOp[uint32](w.mine, w.pinned)}, safe.BatchCopyOptions{})
		},
		"WriteValue": func(w *survivor) error { return safe.WriteValue(w.s, w.pinned.At(0), uint32(1)) },
		"Batch, pinned": func(w *survivor) error {
			return w.batch(func(b *safe.Batch) error { return safe.BatchCopy[uint32](b, w.mine, w.pinned) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "BatchCopies" {
				needs(t, "cuMemcpyBatchAsync_v2")
			}
			withPeer(t, func(t *testing.T, x, y *safe.Context) {
				w := newSurvivor(t, x, y)
				var err error
				w.pinned, err = safe.NewPinned[uint32](y, 4, safe.PinnedOptions{})
				require.NoError(t, err)
				for _, call := range []string{
					"cuMemcpyPeerAsync", "cuMemcpy3DPeerAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async",
					"cuMemcpy3DAsync_v2", "cuMemcpyBatchAsync_v2", "cuStreamWriteValue32_v2",
				} {
					simulated.Delay(call, 100*time.Millisecond)
					simulated.Fail(call, 1, uint32(driver.CUDA_ERROR_INVALID_VALUE)) // so that no work uses the memory later
				}
				copied := inDriver(t, func() error { return copy(w) })
				resetPrimary(t, y)
				assert.Zero(t, simulated.Flying(), "the reset has not waited")
				assert.ErrorIs(t, <-copied, driver.CUDA_ERROR_INVALID_VALUE)
				simulated.Reset()
				assert.NoError(t, errors.Join(w.mine.Zero(), w.other.Close(), w.pinned.Close()))
			})
		})
	}
}
