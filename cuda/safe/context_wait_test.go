//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Waits for all streams of a context. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestContextWait: Wait waits for the work that each stream has, also for that of a closed one, and for no
// later work. Captures begin meanwhile.
func TestContextWait(t *testing.T) {
	x := open(t, 0)
	require.NoError(t, x.Wait(t.Context()), "nothing to wait for")
	for name, closed := range map[string]bool{"open": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
			require.NoError(t, err)
			other := stream(t, x)
			unstick := stickOn(t, host[uint32](t, x, 1), s)
			defer unstick()
			if closed {
				require.NoError(t, s.Close())
			}
			cause := errors.New("too long")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
			defer cancel()
			assert.ErrorIs(t, x.Wait(ctx), cause)
			waits := make(chan error, 1)
			go func() { waits <- x.Wait(t.Context()) }()
			inside(t, "(*Context).Wait", "Take") // it knows what it waits for
			require.Never(t, func() bool { return len(waits) > 0 }, 20*time.Millisecond, time.Millisecond)
			g, err := other.Capture(func() error {
				assert.ErrorIs(t, x.Wait(t.Context()), safe.ErrCapturing)
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, g.Close())
			later := stick(t, x, other)
			unstick()
			assert.NoError(t, <-waits, "the later work is no part of it")
			later()
			require.NoError(t, errors.Join(x.Wait(t.Context()), s.Close()))
		})
	}
}

// TestContextWaitRefused: Wait returns errors instead of waiting for what cannot come.
func TestContextWaitRefused(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	s := stream(t, x)
	in := make(chan error, 1)
	_, err = s.LaunchHostFunc(func() { in <- x.Wait(context.Background()) })
	require.NoError(t, err)
	assert.ErrorIs(t, <-in, safe.ErrInCallback)
	require.NoError(t, errors.Join(s.Close(), x.Close()))
	assert.ErrorIs(t, x.Wait(t.Context()), safe.ErrClosed)
	assert.ErrorIs(t, (*safe.Context)(nil).Wait(t.Context()), safe.ErrClosed)
}

// TestSynchronizeInRawCapture: Synchronize refuses to end a capture of other code, and then keeps no capture out.
func TestSynchronizeInRawCapture(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	rawCapture(t, x, s, driver.CU_STREAM_CAPTURE_MODE_RELAXED, func() {
		assert.ErrorIs(t, x.Synchronize(), safe.ErrCapturing)
		assert.ErrorIs(t, x.WithoutCaptures(func() error { return nil }), safe.ErrCapturing)
	})
	soon(t, background(func() {
		g, err := s.Capture(func() error { return nil })
		assert.NoError(t, errors.Join(err, g.Close()))
	}), "the capture does not begin")
}
