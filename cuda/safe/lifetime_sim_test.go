//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimWaitsOutOfOrder: a wait does not end with a later one of the same stream.
func TestSimWaitsOutOfOrder(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	ga, g1, g2 := newGate(t, x), newGate(t, x), newGate(t, x)
	sa, sb := stream(t, x), stream(t, x)
	b := buffer[int32](t, x, 4)
	ga.shut(t, sa)
	require.NoError(t, b.FillAsync(sa, 0))
	g1.shut(t, sb)
	require.NoError(t, b.FillAsync(sb, 0))
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { assert.NoError(t, b.Close()) }) // marks sa and sb, waits for sa first
	time.Sleep(100 * time.Millisecond)
	all.Go(func() { assert.NoError(t, sb.Wait(context.Background())) })
	time.Sleep(50 * time.Millisecond)
	g2.shut(t, sb)
	w2 := sb.Completion()
	ga.open() // Close goes on to the point of sb, which is older than w2
	time.Sleep(100 * time.Millisecond)
	g1.open()
	select {
	case <-w2.Done():
		done, err := sb.Query()
		require.NoError(t, err)
		assert.True(t, done, "the completion is there, and the stream is busy")
	case <-time.After(time.Second):
	}
	g2.open()
}

// TestSimScopeWithoutEvents: a scope waits also where no event can be made.
func TestSimScopeWithoutEvents(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g := newGate(t, x)
	s := stream(t, x)
	b := buffer[int32](t, x, 4)
	g.shut(t, s)
	simulated.Fail("cuEventCreate", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
	defer simulated.Reset()
	over := make(chan error)
	go func() {
		over <- s.Scope(func(c *safe.Scope) error { return safe.CopyFromSlice(c, b, []int32{1, 2, 3, 4}) })
	}()
	select {
	case err := <-over:
		done, _ := s.Query()
		assert.True(t, done, "the scope is over with %v, its copy is not", err)
		g.open()
	case <-time.After(time.Second):
		g.open()
		<-over
	}
}

// capturesInScope lends memory to a copy on s and begins a capture, in a scope that then ends with what over gets. It
// closes gone once the memory has gone. If fails is not empty, the driver's function of that name fails during the copy.
func capturesInScope(t *testing.T, s *safe.Stream, b *safe.Buffer[int32], fails string, gone chan struct{}) (c *safe.Capture, over <-chan error) {
	t.Helper()
	ended, begun := make(chan error, 1), make(chan *safe.Capture, 1)
	go func() {
		ended <- s.Scope(func(scope *safe.Scope) error {
			lent := new([1024]int32)
			runtime.AddCleanup(lent, func(gone chan struct{}) { close(gone) }, gone)
			if fails != "" {
				simulated.Fail(fails, 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
			}
			err := safe.CopyFromSlice(scope, b, lent[:])
			assert.Equal(t, fails, simulated.Failed())
			simulated.Reset()
			c, begins := s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
			begun <- c
			return errors.Join(err, begins)
		})
	}()
	return <-begun, ended
}

// TestSimScopeCopyBeforeCapture: a scope that ends during a capture waits for its copies. If CUDA cannot tell their end, the
// memory stays lent.
func TestSimScopeCopyBeforeCapture(t *testing.T) {
	needsSimulated(t)
	for _, fails := range []string{"", "cuEventCreate", "cuEventRecord"} {
		t.Run("fails "+fails, func(t *testing.T) {
			startClean(t)
			x := open(t, 0)
			g, s, b, gone := newGate(t, x), stream(t, x), buffer[int32](t, x, 1024), make(chan struct{})
			g.shut(t, s)
			c, over := capturesInScope(t, s, b, fails, gone)
			if fails != "" {
				assert.ErrorIs(t, <-over, safe.ErrCapturing)
			}
			drop()
			assert.False(t, isDone(gone), "the copy has not run yet")
			g.open()
			if fails == "" {
				assert.ErrorIs(t, <-over, safe.ErrCapturing)
				collected(t, gone)
			}
			require.NoError(t, errors.Join(end(c), s.Synchronize()))
		})
	}
}

// TestSimContextOutlivesOurs: memory is kept for work in a context that others keep.
func TestSimContextOutlivesOurs(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	var foreign driver.CUcontext
	y, err := safe.Open(1)
	require.NoError(t, err)
	require.NoError(t, driver.CuDevicePrimaryCtxRetain(&foreign, y.Device().Raw()))
	defer func() { require.NoError(t, driver.CuDevicePrimaryCtxRelease(1)) }()
	h, err := safe.RegisterPinned(x, make([]int32, 4))
	require.NoError(t, err)
	s, err := safe.NewStreamWith(y, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	b, err := safe.NewBufferAsync[int32](s, 4)
	require.NoError(t, err)
	simulated.Reset()
	before := simulated.Calls("cuMemHostUnregister")
	simulated.Hold(true)
	require.NoError(t, b.CopyToHostAsync(s, h))
	require.NoError(t, b.Close()) // in the order of s
	require.NoError(t, s.Close())
	require.NoError(t, y.Close()) // CUDA's context stays
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }() // unpins Go's memory
	time.Sleep(300 * time.Millisecond)
	assert.Equal(t, before, simulated.Calls("cuMemHostUnregister"), "given back while the copy is held")
	simulated.Hold(false)
	<-closed
	t.Log(simulated.Violation())
	simulated.Reset()
}

// TestSimStreamLast: a stream that is closed after its context, with work under
// way, leaves the context to go when the work is done.
func TestSimStreamLast(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	y, err := safe.Open(1)
	require.NoError(t, err)
	h := host[int32](t, x, 4)
	s, err := safe.NewStreamWith(y, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	b, err := safe.NewBufferAsync[int32](s, 4)
	require.NoError(t, err)
	simulated.Hold(true)
	defer simulated.Reset()
	require.NoError(t, b.CopyToHostAsync(s, h))
	require.NoError(t, b.Close())
	require.NoError(t, y.Close())
	assert.NoError(t, s.Close())
	simulated.Hold(false)
	assert.Eventually(t, func() bool { return simulated.Live("primary") == 1 }, atOnce, time.Millisecond)
}

// TestSimBorrowedUser: memory is kept for all of its users.
func TestSimBorrowedUser(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	u, err := s.Borrow()
	require.NoError(t, err)
	b, err := safe.NewBuffer[int32](x, 4)
	require.NoError(t, err)
	require.NoError(t, b.FillAsync(u, 0))
	require.NoError(t, u.Synchronize())
	simulated.Hold(true)
	require.NoError(t, b.FillAsync(other, 0))
	require.NoError(t, s.Close())
	before := simulated.Calls("cuMemFreeAsync")
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	time.Sleep(300 * time.Millisecond)
	assert.Equal(t, before, simulated.Calls("cuMemFreeAsync"), "freed while other uses it")
	simulated.Hold(false)
	t.Log(<-closed, simulated.Violation())
	u.Close()
	simulated.Reset()
}

// TestSimBorrowKeeps: a borrowed stream keeps the one it is of.
func TestSimBorrowKeeps(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	b := buffer[int32](t, x, 4)
	u, err := s.Borrow()
	require.NoError(t, err)
	require.NoError(t, b.FillAsync(u, 0))
	require.NoError(t, s.Close())
	_, err = u.Query()
	assert.NoError(t, err)
	require.NoError(t, u.Close())
	assert.Empty(t, simulated.Violation())
	simulated.Reset()
}

// TestSimReleaseTwice: a stream is given away once.
func TestSimReleaseTwice(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	for range 200 {
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		var got [2]driver.CUstream
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i] = s.Release() })
		}
		all.Wait()
		raw := max(got[0], got[1])
		require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
		if !assert.Zero(t, min(got[0], got[1]), "two owners") {
			return
		}
	}
}

// TestSimDoRestores: Do puts back what was current.
func TestSimDoRestores(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, x.WithCurrent(func() error {
		require.NoError(t, x.WithCurrent(func() error { return driver.CuCtxSetCurrent(0) }))
		assert.Equal(t, x.Raw(), current(t))
		return nil
	}))
}

// TestSimLargeNumbers: numbers are not cut off.
func TestSimLargeNumbers(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	k := kernel(t, x, "shared")
	assert.Error(t, k.SetAttribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1<<32+1024))
	n, err := k.Attribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
	t.Log(n, err)
	if a, err := k.MaxBlocksPerMultiprocessor(1<<32+64, 0); err == nil {
		assert.Zero(t, a, "blocks of 2^32+64 threads fit")
	}
	assert.NotEqual(t, uint32(1), safe.Blocks((1<<32+1)*128, 128).X)
	assert.NotZero(t, safe.Blocks(math.MaxInt, 128).X)
}

// TestSimShutdownCause: the cause of a context is only that.
func TestSimShutdownCause(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g := newGate(t, x)
	s := stream(t, x)
	g.shut(t, s)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(safe.ErrClosed)
	err := s.Shutdown(ctx)
	assert.Error(t, err)
	_, err = s.Query()
	assert.ErrorIs(t, err, safe.ErrClosed, "it was not closed")
	g.open()
}

// TestSimStaleBuffer: memory of before a reset is refused.
func TestSimStaleBuffer(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	needs(t, "cuCtxGetId")
	x, err := safe.Open(1)
	require.NoError(t, err)
	b, err := safe.NewBuffer[uint64](x, 4)
	require.NoError(t, err)
	require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
	y := open(t, 1)
	k, s := kernel(t, y, "store"), stream(t, y)
	simulated.Reset()
	err = k.Launch(s, one, b.Arg(), safe.Val(uint64(7)))
	assert.Error(t, err)
	t.Log(s.Synchronize(), simulated.Violation())
	b.Close()
	x.Close()
	simulated.Reset()
	simulated.Lost()
}

// TestSimExecDestroyedIdle: an executable is destroyed after its launches, not by the driver
// at any moment.
func TestSimExecDestroyedIdle(t *testing.T) {
	needsSimulated(t)
	startClean(t) // none of another test is left
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	e, err := chain(t, x, 1).Instantiate()
	require.NoError(t, err)
	g.shut(t, s)
	require.NoError(t, e.Launch(s))
	calls := simulated.Calls("cuGraphExecDestroy")
	require.NoError(t, e.Close())
	time.Sleep(20 * time.Millisecond)
	assert.Equal(t, calls, simulated.Calls("cuGraphExecDestroy"), "its launch is pending")
	g.open()
	assert.Eventually(t, func() bool { return simulated.Calls("cuGraphExecDestroy") == calls+1 }, atOnce, time.Millisecond)
}
