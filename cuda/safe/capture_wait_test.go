//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures that wait for calls in flight, and Device.ResetPrimary. Runs on any driver.

package safe_test

import (
	"context"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaptureWaitEnds: a capture that waits for a call in flight gives up when its
// context ends, delays no other call meanwhile, and begins once the call has returned.
func TestCaptureWaitEnds(t *testing.T) {
	x := open(t, 0)
	g, s, stuck, b := newGate(t, x), stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	g.shut(t, stuck)
	over := make(chan error)
	go func() { over <- x.Synchronize() }() // captures of the context wait for it
	time.Sleep(20 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	begun := make(chan error)
	go func() {
		_, err := s.CaptureContext(ctx, safe.CaptureOptions{}, func() error { return nil })
		begun <- err
	}()
	for ctx.Err() == nil {
		require.NoError(t, b.ZeroAsync(s), "the stream is free")
		time.Sleep(time.Millisecond)
	}
	assert.ErrorIs(t, <-begun, context.DeadlineExceeded)
	go func() {
		c, err := s.BeginCaptureContext(context.Background(), safe.CaptureOptions{})
		if err == nil {
			var g *safe.Graph
			g, err = c.End()
			g.Close()
		}
		begun <- err
	}()
	select {
	case err := <-begun:
		t.Fatalf("it begins during Context.Synchronize: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	g.open()
	require.NoError(t, <-over)
	require.NoError(t, <-begun)
}

// TestResetPrimary: old objects return ErrReset and close without errors, and a capturing
// stream prevents the reset.
func TestResetPrimary(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		e, err := safe.NewEvent(x, safe.EventOptions{})
		require.NoError(t, err)
		b, err := safe.NewBuffer[float32](x, 10)
		require.NoError(t, err)
		g, err := s.Capture(func() error {
			assert.ErrorIs(t, x.Device().ResetPrimary(), safe.ErrCapturing)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, g.Close())
		require.NoError(t, x.Device().ResetPrimary())
		_, err = s.Query()
		assert.ErrorIs(t, err, safe.ErrReset)
		_, err = e.Query()
		assert.ErrorIs(t, err, safe.ErrReset)
		assert.ErrorIs(t, s.Record(e), safe.ErrReset)
		assert.ErrorIs(t, s.WaitEvent(e), safe.ErrReset)
		assert.ErrorIs(t, b.ZeroAsync(s), safe.ErrReset)
		assert.ErrorIs(t, s.Synchronize(), safe.ErrReset)
		_, err = s.Capture(func() error { return nil })
		assert.ErrorIs(t, err, safe.ErrReset)
		y, err := safe.Open(0)
		require.NoError(t, err)
		c, err := safe.NewBuffer[float32](y, 10)
		require.NoError(t, err)
		for _, o := range []closer{b, e, s, x} {
			require.NoError(t, o.Close())
		}
		require.NoError(t, c.Zero())
		require.NoError(t, c.Close())
		require.NoError(t, y.Close())
		if !onGPU {
			simulated.Lost() // objects destroyed by the reset
		}
	})
}
