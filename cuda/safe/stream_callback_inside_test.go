//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls in host functions, which return ErrInCallback and must change nothing. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClosedStreamInCallback tests that a host function that uses memory does not make the layer forget
// the work of a closed stream.
func TestClosedStreamInCallback(t *testing.T) {
	watch(t)
	for name, call := range map[string]func(*safe.Buffer[uint32], *safe.Stream) error{
		"FillAsync of 0": func(b *safe.Buffer[uint32], s *safe.Stream) error { return b.FillAsync(s, 0) },
		"CopyToHost":     func(b *safe.Buffer[uint32], s *safe.Stream) error { return b.CopyToHost(make([]uint32, b.Len())) },
	} {
		t.Run(name, func(t *testing.T) {
			x := open(t, 0)
			g := newGate(t, x)
			other := stream(t, x)
			s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
			require.NoError(t, err)
			b, err := safe.NewBuffer[uint32](x, 1024)
			require.NoError(t, err)
			g.shut(t, s)
			require.NoError(t, b.FillAsync(s, 0))
			require.NoError(t, s.Close())
			for range 5 {
				f, err := other.LaunchHostFunc(func() { assert.ErrorIs(t, call(b, other), safe.ErrInCallback) })
				require.NoError(t, err)
				_, err = f.Wait(context.Background())
				require.NoError(t, err)
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				assert.NoError(t, b.Close())
			}()
			select {
			case <-closed:
				assert.Fail(t, "the memory was freed before work on the closed stream that uses it")
			case <-time.After(200 * time.Millisecond):
			}
			g.open()
			soon(t, closed, "Close did not return")
			time.Sleep(50 * time.Millisecond)
			noViolation(t)
		})
	}
}

// TestRoomInCallback tests that a host function that enqueues does not make the layer forget the work in
// the queue of a stream.
func TestRoomInCallback(t *testing.T) {
	watch(t)
	x := open(t, 0)
	k, g := kernel(t, x, "nothing"), newGate(t, x)
	s, other := stream(t, x), stream(t, x)
	g.shut(t, s)
	over := fillQueue(t, s, k, queued)
	f, err := other.LaunchHostFunc(func() {
		for range 20 {
			assert.ErrorIs(t, k.Launch(s, one), safe.ErrInCallback)
		}
	})
	require.NoError(t, err)
	_, err = f.Wait(context.Background())
	require.NoError(t, err)
	time.Sleep(300 * time.Millisecond)
	free := make(chan struct{})
	go func() {
		defer close(free)
		safe.LockStream(s)()
	}()
	select {
	case <-free:
	case <-time.After(atOnce):
		assert.Fail(t, "a launch blocks in the driver, with the stream locked")
	}
	g.open()
	<-over
	<-free
}

// TestScopeWaitFails tests that a scope keeps the memory pinned until the copies are over, even if a
// query of its wait fails.
func TestScopeWaitFails(t *testing.T) {
	needsSimulated(t)
	watch(t)
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	b := buffer[uint32](t, x, 1024)
	g.shut(t, s)
	over := make(chan error, 1)
	go func() {
		over <- s.Scope(func(c *safe.Scope) error { return safe.CopyFromSlice(c, b, make([]uint32, 1024)) })
	}()
	time.Sleep(50 * time.Millisecond) // the poller waits
	simulated.Fail("cuEventQuery", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
	require.Eventually(t, func() bool { return simulated.Failed() != "" }, hang, time.Millisecond)
	select {
	case err := <-over:
		assert.Fail(t, "the scope ends before its work", "%v, failed %s", err, simulated.Failed())
	case <-time.After(300 * time.Millisecond):
		g.open()
		<-over
	}
	assert.Equal(t, "cuEventQuery", simulated.Failed())
	simulated.Reset()
}

// TestJoinInCallback tests that a host function does not wait for a call that waits for it when it
// makes a stream join a capture, or begin one.
func TestJoinInCallback(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x, y := open(t, 0), second(t)
		s, busy, side, e, g := stream(t, x), stream(t, y), stream(t, y), event(t, x), newGraph(t, y)
		begins := func(_ *safe.Capture, err error) error { return err }
		c, err := s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
		require.NoError(t, err)
		require.NoError(t, s.Record(e))
		waits, told := make(chan struct{}), make(chan [3]error, 1)
		_, err = busy.LaunchHostFunc(func() {
			<-waits
			told <- [3]error{side.WaitEvent(e), begins(side.BeginCapture()), begins(side.BeginCaptureTo(g, safe.CaptureToOptions{}))}
		})
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() { waited <- y.Synchronize() }()
		time.Sleep(50 * time.Millisecond)
		close(waits)
		for _, err := range <-told {
			assert.ErrorIs(t, err, safe.ErrInCallback)
		}
		require.NoError(t, errors.Join(<-waited, end(c)))
	})
}

// TestRecordInCallback tests that a host function does not wait for a record that waits for it when
// it records the same event in a capture.
func TestRecordInCallback(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, other, e, m := stream(t, x), stream(t, x), event(t, x), plainBuffer[uint32](t, x, 1)
		require.NoError(t, errors.Join(m.FillAsync(s, 0), s.Record(e), s.Synchronize()))
		c, err := other.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
		require.NoError(t, err)
		full, told := make(chan struct{}), make(chan error, 1)
		_, err = s.LaunchHostFunc(func() { <-full; told <- other.Record(e) })
		require.NoError(t, err)
		uncounted(t, s, m, 1020)
		recorded := make(chan error, 1)
		go func() { recorded <- s.Record(e) }()
		time.Sleep(50 * time.Millisecond)
		close(full)
		assert.ErrorIs(t, <-told, safe.ErrInCallback)
		require.NoError(t, errors.Join(<-recorded, end(c)))
	})
}
