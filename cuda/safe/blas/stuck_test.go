//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stuck makes a stream of x wait until release.
func stuck(t *testing.T, x *safe.Context) (release func()) {
	t.Helper()
	wait := make(chan struct{})
	_, err := stream(t, x).LaunchHostFunc(func() { <-wait })
	require.NoError(t, err)
	release = sync.OnceFunc(func() { close(wait) })
	t.Cleanup(release)
	return release
}

// dropped leaves a Handle of each context to the garbage collector, with a stuck stream of the first one.
func dropped(t *testing.T, x, y *safe.Context) (release func()) {
	t.Helper()
	one, err := blas.Open(x, blas.Options{Workspace: 4096})
	require.NoError(t, err)
	_, err = blas.Open(y, blas.Options{Workspace: 4096})
	require.NoError(t, err)
	release = stuck(t, x)
	runtime.KeepAlive(one)
	return release
}

// TestDroppedBesideStuck: a dropped Handle waits for a stuck stream of its context, and nothing else
// does: no capture, no handle or executable of another device.
func TestDroppedBesideStuck(t *testing.T) {
	needsDouble(t)
	drivertest.InChild(t, func(t *testing.T) {
		x := open(t)
		y, err := safe.Open(1)
		require.NoError(t, err)
		e, err := stream(t, y).CaptureExecutable(func() error { return nil })
		require.NoError(t, err)
		release := dropped(t, x, y)
		collected := func(n int) func() bool {
			return func() bool { runtime.GC(); return destroyed(lines(t)) == n }
		}
		require.Eventually(t, collected(3), time.Minute, time.Millisecond, "the one on the idle device")

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, err := stream(t, x).CaptureWith(ctx, safe.CaptureOptions{}, func() error { return nil })
		require.NoError(t, errors.Join(err, g.Close()))
		require.NoError(t, e.Close())
		assert.Eventually(t, func() bool { return simulated.Live("exec") == 0 }, time.Minute, time.Millisecond)
		assert.Equal(t, 3, destroyed(lines(t)))
		release()
		assert.Eventually(t, collected(6), time.Minute, time.Millisecond)
		require.NoError(t, y.Close())
	})
}

// TestOpenBesideStuck: Open and Close wait for a stuck stream without keeping captures from beginning.
func TestOpenBesideStuck(t *testing.T) {
	needsDouble(t)
	x := open(t)
	h := handle(t, x, blas.Options{})
	s := stream(t, x)
	for name, call := range map[string]func() error{
		"Open": func() error {
			h, err := blas.Open(x, blas.Options{Workspace: 4096})
			return errors.Join(err, h.Close())
		},
		"Close": h.Close,
	} {
		t.Run(name, func(t *testing.T) {
			release := stuck(t, x)
			done := make(chan error, 1)
			go func() { done <- call() }()
			require.Never(t, func() bool { return len(done) > 0 }, 20*time.Millisecond, time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			g, err := s.CaptureWith(ctx, safe.CaptureOptions{}, func() error { return nil })
			require.NoError(t, errors.Join(err, g.Close()))
			release()
			require.NoError(t, <-done)
		})
	}
}

// TestManyPending: a stream takes 100 calls before one waits.
func TestManyPending(t *testing.T) {
	x := open(t)
	h, s, b := handle(t, x, blas.Options{}), stream(t, x), buffer(t, x, make([]float32, 16))
	scale := func() error { return blas.Scal(h, s, 2, blas.Vector[float32]{Buffer: b, N: 16}) }
	drivertest.AllPending(t, s.LaunchHostFunc, scale)
	require.NoError(t, s.Synchronize())
}
