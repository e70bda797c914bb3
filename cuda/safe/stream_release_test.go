//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Stream.Release. Runs on any driver.

package safe_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReleaseBorrowed: a stream that a Stream still borrows is not given away.
func TestReleaseBorrowed(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s := stream(t, x)
	b, err := s.Borrow()
	require.NoError(t, err)
	soon(t, background(func() { assert.Zero(t, s.Release()) }), "it waits for the borrowed Stream")
	require.NoError(t, errors.Join(b.Close(), s.Synchronize()))
	raw := s.Release()
	assert.NotZero(t, raw)
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
}

// TestReleaseInRawCapture: a stream in a capture of raw calls is not given away.
func TestReleaseInRawCapture(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 4)
	require.NoError(t, errors.Join(b.FillAsync(s, 0), s.Synchronize()))
	require.NoError(t, x.WithCurrent(func() error {
		var g driver.CUgraph
		require.NoError(t, driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_RELAXED))
		soon(t, background(func() { assert.Zero(t, s.Release()) }), "it waits for the end of the capture")
		return errors.Join(driver.CuStreamEndCapture(s.Raw(), &g), driver.CuGraphDestroy(g))
	}))
	require.NoError(t, s.Synchronize())
}

// TestReleaseInScope: a stream is not given away while memory of a Scope is freed in its order.
func TestReleaseInScope(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	require.NoError(t, s.Scope(func(*safe.Scope) error {
		assert.Zero(t, s.Release())
		return nil
	}))
	require.NoError(t, s.Synchronize())
}

// TestReleaseAfterReset: the handle of a stream that a reset has destroyed may be that of another one by now.
func TestReleaseAfterReset(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		reset(t, x)
		assert.Zero(t, s.Release())
		require.NoError(t, s.Close())
	})
}
