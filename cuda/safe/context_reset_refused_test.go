//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Resets that CUDA refuses because of a green context of other code. Needs the simulated driver.

package safe_test

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestScopesBesideRefusedReset: a scope waits for the work of its stream, also if CUDA refuses a reset at
// the moment when the scope is to tell whether it waits.
func TestScopesBesideRefusedReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGreenCtxStreamCreate")
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, h, g := stream(t, x), host[uint32](t, x, 1), rawGreen(t, x)
		simulated.Delay("cuDevicePrimaryCtxReset_v2", 300*time.Microsecond)
		for end := time.Now().Add(stormTime(t)); time.Now().Before(end); {
			unstick := stickOn(t, h, s)
			var stuck atomic.Bool
			stuck.Store(true)
			var begun, over sync.WaitGroup
			for range 400 {
				begun.Add(1)
				over.Go(func() {
					assert.NoError(t, s.Scope(func(*safe.Scope) error { begun.Done(); return nil }))
					assert.False(t, stuck.Load(), "Go memory is no longer pinned")
				})
			}
			begun.Wait()
			over.Go(func() {
				time.Sleep(time.Millisecond)
				stuck.Store(false)
				unstick()
			})
			assert.ErrorIs(t, x.Device().ResetPrimary(), driver.CUDA_ERROR_NOT_PERMITTED)
			over.Wait()
		}
		require.NoError(t, driver.CuGreenCtxDestroy(g))
		noViolation(t)
	})
}

// TestBlockingWaitBesideRefusedReset: a wait whose event is its own destroys that, also while a reset waits
// for it that CUDA then refuses.
func TestBlockingWaitBesideRefusedReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGreenCtxStreamCreate")
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, g := stream(t, x), rawGreen(t, x)
		require.NoError(t, s.SetSynchronizationPolicy(driver.CU_SYNC_POLICY_BLOCKING_SYNC))
		before := simulated.Live("event")
		unstick := stickOn(t, host[uint32](t, x, 1), s)
		call, reset := waitingReset(t, x, s, driver.CUDA_ERROR_NOT_PERMITTED)
		unstick()
		<-call
		<-reset
		assert.Eventually(t, func() bool { return simulated.Live("event") == before }, atOnce, time.Millisecond)
		require.NoError(t, driver.CuGreenCtxDestroy(g))
		noViolation(t)
	})
}

// TestResetInOnErrorAfterGreen: a reset in the function of OnError waits for a dropped green context,
// which the reaper destroys meanwhile.
func TestResetInOnErrorAfterGreen(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	resetting(t, func(t *testing.T, x *safe.Context) {
		told := make(chan struct{})
		safe.OnError(func(error) {
			defer close(told)
			_, err := safe.NewGreenContext(x, splitInto(t, 1)...)
			assert.NoError(t, err)
			drop()
			assert.NoError(t, x.Device().ResetPrimary())
		})
		defer safe.OnError(nil)
		r, err := safe.NewResource(x, func() { panic("no") })
		require.NoError(t, err)
		require.NoError(t, r.Close())
		soon(t, told, "the reset waits for the reaper")
	})
}

// TestClosingBesideRefusedReset: what is closed while a reset waits is destroyed, too, if CUDA refuses the
// reset.
func TestClosingBesideRefusedReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGreenCtxStreamCreate")
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, g, kinds := stream(t, x), rawGreen(t, x), []string{"memory", "async"}
		live := func() (n []int) {
			for _, kind := range kinds {
				n = append(n, simulated.Live(kind))
			}
			return n
		}
		buffer[uint64](t, x, 1) // the context makes its pool
		require.NoError(t, s.Synchronize())
		before := live()
		for end := time.Now().Add(stormTime(t)); time.Now().Before(end); {
			var objects []io.Closer
			add := func(c io.Closer, err error) {
				require.NoError(t, err)
				objects = append(objects, c)
			}
			for range 30 {
				add(safe.NewBufferWith[uint64](x, 4, safe.BufferOptions{Plain: true}))
				add(safe.NewBufferAsync[uint64](s, 4))
				add(safe.NewBuffer[uint64](x, 1<<18)) // too large for the cache of blocks
			}
			var over sync.WaitGroup
			for _, o := range objects {
				over.Go(func() { assert.NoError(t, o.Close()) })
			}
			assert.ErrorIs(t, x.Device().ResetPrimary(), driver.CUDA_ERROR_NOT_PERMITTED)
			over.Wait()
		}
		assert.Eventually(t, func() bool { return slices.Equal(before, live()) }, atOnce, time.Millisecond)
		require.NoError(t, driver.CuGreenCtxDestroy(g))
		noViolation(t)
	})
}
