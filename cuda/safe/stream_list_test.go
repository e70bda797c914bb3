//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Streams that are closed while a call has them locked, and handles that several goroutines borrow at
// once. Runs on any driver.

package safe_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loose returns a Stream for a stream of CUDA that no other Stream has.
func loose(t *testing.T, x *safe.Context) (*safe.Stream, driver.CUstream) {
	t.Helper()
	owner, err := safe.NewStream(x)
	require.NoError(t, err)
	raw := owner.Release()
	s, err := safe.BorrowStream(raw, x, nil)
	require.NoError(t, err)
	return s, raw
}

// TestDestroyAfterClose tests that a stream may be destroyed once every Stream that borrowed it is
// closed, though a call had locked it.
func TestDestroyAfterClose(t *testing.T) {
	for name, test := range map[string]struct {
		patient bool          // Close waits for the call
		locked  time.Duration // after Close has begun
		destroy func(x *safe.Context, raw driver.CUstream) error
	}{
		"raw": {true, 2 * time.Millisecond, func(x *safe.Context, raw driver.CUstream) error {
			return x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) })
		}},
		"owned": {false, 50 * time.Millisecond, func(x *safe.Context, raw driver.CUstream) error {
			s, err := safe.StreamFromRaw(raw, x)
			return errors.Join(err, s.Close())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x := open(t, 0)
			s, raw := loose(t, x)
			require.NoError(t, errors.Join(buffer[uint32](t, x, 4).CopyFromHostAsync(s, host[uint32](t, x, 4)), s.Synchronize()))
			if test.patient {
				defer safe.ClosePatience(hang)()
			}
			unlock := safe.LockStream(s)
			time.AfterFunc(test.locked, unlock)
			require.NoError(t, s.Close())
			require.NoError(t, test.destroy(x, raw))
			if !onGPU {
				settle(t)
			}
			noViolation(t)
		})
	}
}

// TestDestroyAfterEarlyClose tests that Close leaves nothing to do for a stream that has only recorded events, also
// where a call has it locked for longer than Close waits.
func TestDestroyAfterEarlyClose(t *testing.T) {
	x := open(t, 0)
	s, raw := loose(t, x)
	require.NoError(t, errors.Join(s.Record(event(t, x)), s.Synchronize()))
	defer safe.ClosePatience(0)()
	unlock := safe.LockStream(s)
	require.NoError(t, s.Close())
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
	unlock()
	settle(t)
	noViolation(t)
}

// together calls f on several goroutines at once.
func together[T any](t *testing.T, f func() (T, error)) []T {
	t.Helper()
	results, errs := make([]T, 8), make([]error, 8)
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range results {
		all.Go(func() {
			<-begin
			results[i], errs[i] = f()
		})
	}
	close(begin)
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	return results
}

// TestBorrowEventTogether tests that all Events for an event of CUDA share its state.
func TestBorrowEventTogether(t *testing.T) {
	x := open(t, 0)
	safe.TrackLeaks(true) // makes them take longer
	defer safe.TrackLeaks(false)
	for range 300 {
		var raw driver.CUevent
		require.NoError(t, x.WithCurrent(func() error { return driver.CuEventCreate(&raw, 0) }))
		events := together(t, func() (*safe.Event, error) { return safe.BorrowEvent(raw, x, nil) })
		for _, e := range events {
			assert.True(t, safe.SameRecording(events[0], e))
			require.NoError(t, e.Close())
		}
		owner, err := safe.EventFromRaw(raw, x)
		require.NoError(t, errors.Join(err, owner.Close()))
	}
}

// TestBorrowTogether tests that all Streams for a stream of CUDA share a queue.
func TestBorrowTogether(t *testing.T) {
	x := open(t, 0)
	first, raw := loose(t, x)
	require.NoError(t, first.Close())
	streams := together(t, func() (*safe.Stream, error) { return safe.BorrowStream(raw, x, nil) })
	for _, s := range streams {
		assert.True(t, safe.SameQueue(streams[0], s))
		require.NoError(t, s.Close())
	}
	owner, err := safe.StreamFromRaw(raw, x)
	require.NoError(t, errors.Join(err, owner.Close()))
}

// TestBorrowedBesideTrim tests that a program may destroy a stream once the Stream that borrowed it is
// closed, though other calls look at all streams of the context.
func TestBorrowedBesideTrim(t *testing.T) {
	needsSimulated(t)
	defer safe.ClosePatience(hang)()
	for name, test := range map[string]struct {
		slow  string // what takes long
		other func(*safe.Context, *safe.Pool) error
	}{
		"Pool.Trim":           {"cuStreamSynchronize", func(_ *safe.Context, p *safe.Pool) error { return p.Trim(0) }},
		"Context.Synchronize": {"cuStreamIsCapturing", func(x *safe.Context, _ *safe.Pool) error { return x.Synchronize() }},
	} {
		t.Run(name, func(t *testing.T) {
			x := open(t, 0)
			p, err := safe.NewPool(x)
			require.NoError(t, err)
			closing(t, p)
			s, raw := loose(t, x)
			b := buffer[uint32](t, x, 16)
			require.NoError(t, b.FillAsync(s, 0)) // so that Close has something to mark
			require.NoError(t, synchronized(s))
			simulated.Delay(test.slow, 8*time.Millisecond)
			defer simulated.Reset()
			over := make(chan struct{})
			go func() {
				defer close(over)
				assert.NoError(t, test.other(x, p))
			}()
			time.Sleep(2 * time.Millisecond)
			require.NoError(t, s.Close())
			require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
			<-over
			time.Sleep(100 * time.Millisecond)
			noViolation(t)
		})
	}
}
