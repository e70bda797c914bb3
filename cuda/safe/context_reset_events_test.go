//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls with events and green contexts beside a reset. Each test runs in its own process. Runs on
// any driver.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eventsAtReset are what calls use while a reset destroys it, but for the stream of another device.
type eventsAtReset struct {
	e, start *safe.Event
	green    *safe.GreenContext
	other    *safe.Stream
}

// TestResetBesideEvents: a reset waits for calls with events and green contexts in flight, for
// which CUDA would use what the reset has destroyed.
func TestResetBesideEvents(t *testing.T) {
	for name, row := range map[string]struct {
		devices int
		call    func(w *eventsAtReset) error
	}{
		"wait of another device": {2, func(w *eventsAtReset) error { return w.other.WaitEvent(w.e) }},
		"batch of another device": {2, func(w *eventsAtReset) error {
			b, err := safe.NewBatch(w.other.Context())
			if err != nil {
				return err
			}
			return errors.Join(b.WaitEvent(w.e), b.Submit(w.other))
		}},
		"Since":                  {1, func(w *eventsAtReset) error { _, err := w.e.Since(w.start); return err }},
		"GreenContext.Record":    {1, func(w *eventsAtReset) error { return w.green.Record(w.e) }},
		"GreenContext.WaitEvent": {1, func(w *eventsAtReset) error { return w.green.WaitEvent(w.e) }},
		"GreenContext.ID":        {1, func(w *eventsAtReset) error { _, err := w.green.ID(); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			needs(t, "cuCtxGetId")
			w := &eventsAtReset{}
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				t.Cleanup(func() { wentWithContext(t) }) // after all is closed
				if row.devices > 1 {
					w.other = stream(t, second(t))
				}
				for end := time.Now().Add(stormTime(t)); time.Now().Before(end); {
					w.reset(t, row.call)
				}
			})
		})
	}
}

// reset resets the device while three goroutines call.
func (w *eventsAtReset) reset(t *testing.T, call func(*eventsAtReset) error) {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	w.e, err = safe.NewEvent(x, safe.EventOptions{})
	require.NoError(t, err)
	w.start, err = safe.NewEvent(x, safe.EventOptions{})
	require.NoError(t, err)
	w.green, err = safe.NewGreenContext(x, splitInto(t, 1)...)
	require.NoError(t, err)
	require.NoError(t, errors.Join(s.Record(w.start), s.Record(w.e), s.Synchronize()))
	told := make(chan error, 3)
	for range cap(told) {
		go func() {
			err := call(w)
			for err == nil {
				err = call(w)
			}
			told <- err
		}()
	}
	time.Sleep(time.Millisecond)
	resetPrimary(t, x)
	for range cap(told) {
		assert.ErrorIs(t, <-told, safe.ErrReset)
	}
	require.NoError(t, errors.Join(w.green.Close(), w.start.Close(), w.e.Close(), s.Close(), x.Close()))
}
