//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Streams of green contexts that were created elsewhere. Runs on any driver.

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

// TestGreenForeignStream tests that a capture on a stream of a green context that was created elsewhere
// keeps calls on the whole green context out.
func TestGreenForeignStream(t *testing.T) {
	needs(t, "cuStreamGetCtx_v2")
	x := open(t, 0)
	g, e, z := green(t, x, splitInto(t, 1)...), event(t, x), buffer[uint32](t, x, 4)
	var raw driver.CUstream
	require.NoError(t, driver.CuGreenCtxStreamCreate(&raw, g.Raw(), driver.CU_STREAM_NON_BLOCKING, 0))
	s, err := safe.StreamFromRaw(raw, x)
	require.NoError(t, err)
	closing(t, s)
	made, err := s.Capture(func() error {
		assert.ErrorIs(t, g.Record(e), safe.ErrCapturing)
		return z.FillAsync(s, 1)
	})
	if assert.NoError(t, err) {
		require.NoError(t, made.Close())
	}
	noViolation(t)
}

// TestGreenBorrowedRace tests that such captures begin and end beside calls on the green context.
func TestGreenBorrowedRace(t *testing.T) {
	needs(t, "cuStreamGetCtx_v2")
	watch(t)
	x := open(t, 0)
	g, e, z := green(t, x, splitInto(t, 1)...), event(t, x), buffer[uint32](t, x, 4)
	own := greenStream(t, g)
	s, err := safe.BorrowStream(own.Raw(), x, own)
	require.NoError(t, err)
	closing(t, s)
	if !onGPU {
		simulated.Widen(50 * time.Microsecond)
		defer simulated.Widen(0)
	}
	var c racers
	c.add(1, func() error { return except(g.Record(e), safe.ErrCapturing) })
	c.add(1, func() error {
		made, err := s.Capture(func() error { return z.FillAsync(s, 1) })
		return errors.Join(err, made.Close())
	})
	time.Sleep(500 * time.Millisecond)
	assert.NoError(t, c.end())
	noViolation(t)
}
