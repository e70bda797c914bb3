//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures that wait for calls in flight, and Device.ResetPrimary. Runs on any driver.

package safe_test

import (
	"context"
	"testing"
	"time"

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
	inside(t, "driver.CuCtxSynchronize")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	begun := make(chan error)
	go func() {
		_, err := s.CaptureWith(ctx, safe.CaptureOptions{}, func() error { return nil })
		begun <- err
	}()
	for ctx.Err() == nil {
		require.NoError(t, b.FillAsync(s, 0), "the stream is free")
		time.Sleep(time.Millisecond)
	}
	assert.ErrorIs(t, <-begun, context.DeadlineExceeded)
	go func() {
		c, err := s.BeginCaptureWith(context.Background(), safe.CaptureOptions{})
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
