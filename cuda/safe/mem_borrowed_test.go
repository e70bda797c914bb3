//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What borrowed memory keeps while work uses it.

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

// TestOwnerOfBorrowedInUse: the owner of borrowed memory stays reachable while work uses the memory, also
// if the program has dropped or closed both.
func TestOwnerOfBorrowedInUse(t *testing.T) {
	needsSimulated(t)
	for name, closes := range map[string]bool{"dropped": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			startClean(t)
			x := open(t, 0)
			s, other, fill := stream(t, x), stream(t, x), kernel(t, x, "fill")
			unstick := stick(t, x, s)
			func() {
				owner, err := safe.NewBufferAsync[float32](other, 4)
				require.NoError(t, err)
				borrowed, err := safe.BorrowBuffer[float32](x, owner.Raw(), 4, owner)
				require.NoError(t, err)
				require.NoError(t, fill.Launch(s, one, safe.Val(uint32(4)), safe.Val(float32(3)), borrowed.Arg()))
				require.NoError(t, borrowed.FillAsync(s, 0))
				if closes {
					require.NoError(t, borrowed.Close())
				}
			}()
			memory := simulated.Live("async")
			drop()
			time.Sleep(20 * time.Millisecond) // for the reaper
			assert.Equal(t, memory, simulated.Live("async"))
			unstick()
			require.NoError(t, s.Synchronize())
			// The owner is dropped once the reaper has closed what borrows from it.
			assert.Eventually(t, func() bool { drop(); return simulated.Live("async") < memory }, atOnce, time.Millisecond)
			noViolation(t)
		})
	}
}

// TestContextClosedBesideCopy: a context is destroyed after the work on streams of others that uses
// borrowed memory of it.
func TestContextClosedBesideCopy(t *testing.T) {
	needsSimulated(t)
	for name, delayed := range map[string]bool{"pending": false, "in the driver": true} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, func(t *testing.T, x, y *safe.Context) {
				s, b := stream(t, x), buffer[uint32](t, x, 4)
				own, err := safe.NewContext(y.Device())
				require.NoError(t, err)
				var raw driver.CUdeviceptr
				require.NoError(t, own.WithCurrent(func() error { return driver.CuMemAlloc(&raw, 16) }))
				other, err := safe.BorrowBuffer[uint32](own, raw, 4, nil)
				require.NoError(t, err)
				unstick := stick(t, x, s)
				copied := copyAcross(t, delayed, func() error { return b.CopyFromAsync(s, other) })
				require.NoError(t, errors.Join(other.Close(), own.Close()))
				require.NoError(t, <-copied)
				unstick()
				assert.NoError(t, s.Synchronize())
				simulated.Reset()
			})
		})
	}
}
