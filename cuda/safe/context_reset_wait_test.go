//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What a reset does while it waits for calls in flight. Each test runs in its own process. Runs on
// any driver.

package safe_test

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// background calls f on another goroutine, and returns once it most likely waits.
func background(f func()) (over chan struct{}) {
	over = make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	time.Sleep(20 * time.Millisecond)
	return over
}

// TestResetFindsNewStreams: a stream made while the reset waits for another one counts, too.
func TestResetFindsNewStreams(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s := stream(t, x)
		finish := make(chan struct{})
		call := background(func() {
			assert.NoError(t, s.EnqueueRaw(func(driver.CUstream) error { <-finish; return nil }))
		})
		reset := background(func() { assert.ErrorIs(t, x.Device().ResetPrimary(), safe.ErrCapturing) })
		u := stream(t, x)
		c, err := u.BeginCapture()
		require.NoError(t, err)
		close(finish)
		<-call
		<-reset
		g, err := c.End()
		require.NoError(t, err)
		require.NoError(t, g.Close())
		assert.NoError(t, s.Synchronize())
		noViolation(t)
	})
}

// TestBesideWaitingReset: while a reset waits for a call in flight, it holds up nothing that the
// call may wait for in turn.
func TestBesideWaitingReset(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, x, y *safe.Context) (finish func()){
		"wait on another device": func(t *testing.T, _, y *safe.Context) func() {
			s := stream(t, y)
			g := newGate(t, y)
			g.shut(t, s)
			over := background(func() { assert.NoError(t, s.Synchronize()) })
			return func() {
				g.open()
				soon(t, over, "the wait waits for the reset")
			}
		},
		"query of another stream": func(t *testing.T, x, _ *safe.Context) func() {
			s := stream(t, x)
			return func() {
				soon(t, background(func() {
					_, err := s.Query()
					assert.ErrorIs(t, err, safe.ErrReset)
				}), "the query waits for the reset")
			}
		},
		"release on another device": func(t *testing.T, _, y *safe.Context) func() {
			r, gone := resource(t, y)
			return func() {
				require.NoError(t, r.Close())
				soon(t, gone, "the release waits for the reset")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				t.Cleanup(func() { wentWithContext(t) })
				y := second(t)
				x := open(t, 0)
				s := stream(t, x)
				h := host[uint32](t, x, 1)
				finish := begin(t, x, y)
				unstick := stickOn(t, h, s)
				call := background(func() { assert.NoError(t, except(s.SynchronizeBlocking(), safe.ErrReset, nil)) })
				reset := background(func() { assert.NoError(t, x.Device().ResetPrimary()) })
				finish()
				unstick()
				<-call
				<-reset
			})
		})
	}
}

// TestOpenDuringReset: a context that is opened while a reset waits is one of after the reset.
func TestOpenDuringReset(t *testing.T) {
	needs(t, "cuCtxGetId")
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		t.Cleanup(func() { wentWithContext(t) })
		x := open(t, 0)
		s := stream(t, x)
		h := host[uint32](t, x, 1)
		unstick := stickOn(t, h, s)
		call := background(func() { assert.NoError(t, except(s.SynchronizeBlocking(), safe.ErrReset, nil)) })
		reset := background(func() { assert.NoError(t, x.Device().ResetPrimary()) })
		opened := background(func() {
			y, err := safe.Open(0)
			if assert.NoError(t, err) {
				u, err := safe.NewStream(y, safe.StreamOptions{})
				assert.NoError(t, err)
				<-reset
				assert.NoError(t, u.Synchronize())
				assert.NoError(t, u.Close())
				assert.NoError(t, y.Close())
			}
		})
		unstick()
		<-call
		<-reset
		<-opened
	})
}

// TestResetInOnError: the function of OnError may reset a device, though the reaper waits for it.
func TestResetInOnError(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		told := make(chan struct{})
		safe.OnError(func(error) {
			assert.NoError(t, x.Device().ResetPrimary())
			close(told)
		})
		defer safe.OnError(nil)
		r, err := safe.NewResource(x, func() { panic("no") })
		require.NoError(t, err)
		require.NoError(t, r.Close())
		soon(t, told, "the reset waits for the reaper")
	})
}
