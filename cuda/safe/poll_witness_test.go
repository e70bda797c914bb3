//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// CUDA is lost or a context reset while only a host function is pending. All but
// TestWitnessRests need the simulated driver, which can cause both.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHostFuncLost: futures of host functions fail although no other call reaches CUDA.
func TestHostFuncLost(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		for range 2 { // the second time there was a loss before
			s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
			require.NoError(t, err)
			var futures []*safe.Future[struct{}]
			simulated.Hold(true)
			for range 3 {
				f, err := s.LaunchHostFunc(func() { t.Error("it runs") })
				require.NoError(t, err)
				futures = append(futures, f)
			}
			time.Sleep(60 * time.Millisecond)
			assert.False(t, isDone(futures[0].Done()))
			simulated.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
			for _, f := range futures {
				ctx, cancel := context.WithTimeout(context.Background(), atOnce)
				_, err = f.Wait(ctx)
				cancel()
				assert.True(t, safe.IsFatal(err), "%v", err)
			}
			s.Close()
			require.Eventually(t, safe.ReaperIdle, atOnce, time.Millisecond, "the loss is told")
			simulated.Reset()
		}
		x.Close()
		purge(t)
	})
}

// TestHostFuncReset: futures of host functions fail if other code has reset their context, and those of another context do
// not.
func TestHostFuncReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuCtxGetId")
	drivertest.InChild(t, func(t *testing.T) {
		simulated.Hold(true)
		var streams [2]*safe.Stream
		var futures [2]*safe.Future[struct{}]
		var ran atomic.Int32
		x := open(t, 0)
		own, err := safe.NewContext(x.Device())
		require.NoError(t, err)
		closing(t, own)
		for i, x := range []*safe.Context{x, own} {
			streams[i] = stream(t, x)
			futures[i], err = streams[i].LaunchHostFunc(func() { ran.Add(1) })
			require.NoError(t, err)
		}
		// The simulated driver runs the functions of a context before it resets it, as CUDA may. So the witness learns of
		// a reset from the first context that it asks.
		simulated.Fail("cuCtxGetId", 1, uint32(driver.CUDA_ERROR_CONTEXT_IS_DESTROYED))
		require.Eventually(t, func() bool { return isDone(futures[0].Done()) || isDone(futures[1].Done()) }, atOnce, time.Millisecond)
		simulated.Reset()
		simulated.Hold(false)
		require.NoError(t, errors.Join(streams[0].Synchronize(), streams[1].Synchronize()))
		reset, other := futures[0].Err(), futures[1].Err()
		if reset == nil {
			reset, other = other, reset
		}
		assert.ErrorIs(t, reset, safe.ErrReset)
		assert.NoError(t, other)
		assert.EqualValues(t, 1, ran.Load())
	})
}

// TestWitnessIsPending: the witness retains contexts, so the reaper is not idle while it asks.
func TestWitnessIsPending(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		simulated.Hold(true)
		f, err := s.LaunchHostFunc(func() {})
		require.NoError(t, err)
		settle(t)
		simulated.Delay("cuEventQuery", 300*time.Millisecond)
		require.Eventually(t, func() bool { return !safe.ReaperIdle() }, atOnce, time.Millisecond)
		simulated.Reset()
		<-f.Done()
		require.NoError(t, s.Close())
		require.NoError(t, x.Close())
		settle(t)
	})
}

// TestWitnessRests: nothing keeps running when no future waits.
func TestWitnessRests(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	f, err := s.LaunchHostFunc(func() {})
	require.NoError(t, err)
	<-f.Done() // Go keeps a goroutine for the driver's thread
	before := runtime.NumGoroutine()
	for range 50 {
		f, err := s.LaunchHostFunc(func() {})
		require.NoError(t, err)
		<-f.Done()
	}
	noneLeft(t, before)
	assert.Eventually(t, func() bool { return !safe.Witnessing() }, atOnce, time.Millisecond)
}
