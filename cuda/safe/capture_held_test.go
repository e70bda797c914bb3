//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What a capture holds until its end, and gives back at its end or if it cannot begin. The tests with Sim
// in their names need the simulated driver.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimGatesUntilTheEnd: calls that would see the capture are refused until the driver has ended it.
func TestSimGatesUntilTheEnd(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := blockingStream(t, x)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	c, err := s.BeginCaptureWith(t.Context(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	simulated.Delay("cuStreamEndCapture", hang)
	defer simulated.Reset()
	over := inDriver(t, func() error {
		g, err := c.End()
		return errors.Join(err, g.Close())
	})
	asked := func() int { return simulated.Calls("cuStreamIsCapturing") }
	before := asked()
	_, err = legacy.Query()
	synchronized := x.Synchronize()
	assert.ErrorIs(t, err, safe.ErrCapturing)
	assert.ErrorIs(t, synchronized, safe.ErrCapturing)
	assert.Equal(t, before, asked(), "it is too late once the driver is asked")
	noViolation(t)
	simulated.Reset() // ends the delay
	require.NoError(t, <-over)
	require.NoError(t, x.Synchronize())
	noViolation(t)
}

// TestSimBeginFails: a capture that the driver does not begin keeps no call out.
func TestSimBeginFails(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := blockingStream(t, x)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	destroyed := simulated.Calls("cuGraphDestroy")
	simulated.Fail("cuStreamBeginCapture_v2", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
	_, err = s.Capture(func() error { return nil })
	require.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
	settle(t)
	assert.Equal(t, destroyed, simulated.Calls("cuGraphDestroy"), "there is no graph")
	simulated.Reset()
	_, err = legacy.Query()
	assert.NoError(t, err)
	assert.NoError(t, x.Synchronize())
	assert.NoError(t, s.Synchronize())
	g, err := s.Capture(func() error { return nil })
	require.NoError(t, err)
	closing(t, g)
}

// TestCanceledBeginKeepsNothingOut: nor does a capture whose wait for other calls ends.
func TestCanceledBeginKeepsNothingOut(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s := stream(t, x)
	canceled, cancel := context.WithCancel(t.Context())
	require.NoError(t, x.WithoutCaptures(func() error {
		begun := make(chan error)
		go func() {
			_, err := s.CaptureWith(canceled, safe.CaptureOptions{Mode: safe.CaptureGlobal}, func() error { return nil })
			begun <- err
		}()
		time.Sleep(time.Millisecond)
		cancel()
		assert.ErrorIs(t, <-begun, context.Canceled)
		return nil
	}))
	assert.NoError(t, x.Synchronize())
}

// TestSimEventOfCapture: an event that is closed during the capture it was recorded in is destroyed at the
// end.
func TestSimEventOfCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	destroyed := func() int { return simulated.Calls("cuEventDestroy_v2") }
	before := destroyed()
	g, err := s.Capture(func() error {
		e, err := safe.NewEvent(x)
		if err := errors.Join(err, s.Record(e), e.Close()); err != nil {
			return err
		}
		settle(t)
		assert.Equal(t, before, destroyed(), "during the capture")
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
	settle(t)
	assert.Equal(t, before+1, destroyed(), "after the capture")
}

// TestOwnerOfJoined: the owner of a borrowed Stream that is closed after it has joined a capture stays reachable
// until the end: it may destroy the stream, and CUDA would invalidate the capture.
func TestOwnerOfJoined(t *testing.T) {
	x := open(t, 0)
	s, fork, join, b := stream(t, x), event(t, x), event(t, x), buffer[float32](t, x, 4)
	raw := rawStream(t, x)
	t.Cleanup(func() { assert.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) })) })
	var gone atomic.Bool
	borrow := func() *safe.Stream {
		owner := new([16]byte)
		runtime.AddCleanup(owner, func(gone *atomic.Bool) { gone.Store(true) }, &gone)
		side, err := safe.BorrowStream(raw, x, owner)
		require.NoError(t, err)
		return side
	}
	g, err := s.Capture(func() error {
		side := borrow()
		err := errors.Join(s.Record(fork), side.WaitEvent(fork), b.FillAsync(side, 0), side.Record(join), s.WaitEvent(join), side.Close())
		drop()
		assert.False(t, gone.Load(), "during the capture")
		return err
	})
	require.NoError(t, err)
	closing(t, g)
	require.Eventually(t, func() bool { drop(); return gone.Load() }, hang, time.Millisecond, "after the capture")
}

// TestDroppedBusyCapture: a capture that was dropped while a call uses its stream is ended after that.
func TestDroppedBusyCapture(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	func() {
		_, err := s.BeginCaptureWith(t.Context(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
		require.NoError(t, err)
	}()
	unlock := safe.LockStream(s)
	drop()
	drop()
	unlock()
	require.Eventually(t, func() bool {
		drop()
		status, err := s.CaptureStatus()
		return err == nil && status == driver.CU_STREAM_CAPTURE_STATUS_NONE
	}, hang, time.Millisecond)
	require.NoError(t, s.Synchronize())
}

// TestJoinBesideEnd: a stream that is about to join a capture while that ends is in none.
func TestJoinBesideEnd(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, side, e := stream(t, x), stream(t, x), event(t, x)
	c, err := s.BeginCaptureWith(t.Context(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	unlock := safe.LockCapture(c)
	ended, joined := make(chan error, 1), make(chan error, 1)
	waits := func(s *safe.Stream) { // for the lock of the capture
		require.Eventually(t, func() bool { return safe.Locked(s) }, hang, time.Millisecond)
		time.Sleep(5 * time.Millisecond)
	}
	go func() {
		g, err := c.End()
		ended <- errors.Join(err, g.Close())
	}()
	waits(s)
	go func() { joined <- side.WaitEvent(e) }()
	waits(side)
	unlock()
	require.NoError(t, except(<-ended, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED), "or it has joined before the end")
	require.NoError(t, except(<-joined, safe.ErrInvalidArgument), "or it has ended before")
	status, err := side.CaptureStatus()
	require.NoError(t, err)
	assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_NONE, status)
	require.NoError(t, errors.Join(side.Synchronize(), s.Synchronize()))
	noViolation(t)
}

// TestCaptureToBesideRawCapture: a stream that other code captures cannot capture into a graph.
func TestCaptureToBesideRawCapture(t *testing.T) {
	needs(t, "cuStreamBeginCaptureToGraph")
	x := open(t, 0)
	s, b, g := stream(t, x), buffer[float32](t, x, 4), newGraph(t, x)
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_RELAXED) }))
	err := s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return nil })
	assert.ErrorIs(t, err, safe.ErrCapturing)
	assert.ErrorContains(t, err, "did not begin")
	var raw driver.CUgraph
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamEndCapture(s.Raw(), &raw) }))
	require.NoError(t, driver.CuGraphDestroy(raw))
	require.NoError(t, s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return b.FillAsync(s, 0) }), "g is as before")
}

// TestSimGreenOfJoined: a graph retains the green context of a stream that has joined its capture.
func TestSimGreenOfJoined(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	green, err := safe.NewGreenContext(x, splitInto(t, 1)...)
	require.NoError(t, err)
	side, err := green.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	s, fork, join, b := stream(t, x), event(t, x), event(t, x), buffer[float32](t, x, 4)
	before := simulated.Calls("cuGreenCtxDestroy")
	g, err := s.Capture(func() error {
		return errors.Join(s.Record(fork), side.WaitEvent(fork), b.FillAsync(side, 0), side.Record(join), s.WaitEvent(join))
	})
	require.NoError(t, err)
	require.NoError(t, errors.Join(side.Close(), green.Close()))
	settle(t)
	assert.Equal(t, before, simulated.Calls("cuGreenCtxDestroy"), "its work runs there")
	require.NoError(t, g.Close())
	settle(t)
	assert.Equal(t, before+1, simulated.Calls("cuGreenCtxDestroy"))
}

// TestFreeAfterLostCapture: memory that only a capture that failed has freed can be freed.
func TestFreeAfterLostCapture(t *testing.T) {
	x := open(t, 0)
	s, side, fork, y := stream(t, x), stream(t, x), event(t, x), buffer[float32](t, x, 4)
	g, b := allocating[uint32](t, s, 100)
	closing(t, g)
	require.NoError(t, executable(t, g).Launch(s))
	_, err := s.Capture(func() error {
		return errors.Join(b.FreeAsync(s), s.Record(fork), side.WaitEvent(fork), y.FillAsync(side, 0))
	})
	require.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
	free, err := s.Capture(func() error { return b.FreeAsync(s) })
	require.NoError(t, err, "no node frees it")
	closing(t, free)
	require.NoError(t, errors.Join(executable(t, free).Launch(s), s.Synchronize()))
}

// TestExternalWaitForEndedCapture: the layer refuses it, as CUDA would invalidate the capture.
func TestExternalWaitForEndedCapture(t *testing.T) {
	x := open(t, 0)
	s, e, b := stream(t, x), event(t, x), buffer[float32](t, x, 4)
	g, err := s.Capture(func() error { return s.Record(e) })
	require.NoError(t, err)
	closing(t, g)
	g, err = s.Capture(func() error {
		assert.ErrorIs(t, s.WaitEventExternal(e), safe.ErrInvalidArgument)
		return b.FillAsync(s, 0)
	})
	require.NoError(t, err)
	closing(t, g)
}
