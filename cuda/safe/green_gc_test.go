//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Lifetime of green contexts: order of Close, pending work, many goroutines. Runs on any
// driver for CUDA 12.4 or newer.

package safe_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGreenParentFirst: a closed green context is destroyed with its last stream, and the
// primary context is released with the green context.
func TestGreenParentFirst(t *testing.T) {
	startClean(t) // what tests before have dropped keeps the context in use
	parts := splitInto(t, 1)
	x, err := safe.Open(0)
	require.NoError(t, err)
	g, err := safe.NewGreenContext(x, parts...)
	require.NoError(t, err)
	active := func() bool { return inUse(t, x.Device()) }
	require.NoError(t, x.Close())
	s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	_, err = g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	assert.ErrorIs(t, err, safe.ErrClosed)
	b, err := safe.NewBufferAsync[float32](s, 10)
	require.NoError(t, err)
	require.NoError(t, b.FillAsync(s, 4))
	lent, err := s.Borrow()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, b.FillAsync(lent, 5))
	require.NoError(t, lent.Close())
	got := make([]float32, 10)
	require.NoError(t, b.CopyToHost(got), "after the work of the closed stream")
	assert.EqualValues(t, 5, got[9])
	assert.True(t, active())
	require.NoError(t, b.Close())
	assert.Eventually(t, func() bool { return !active() }, hang, time.Millisecond, "the last object is closed")
}

// TestGreenClosedBusy: work on streams of a closed green context completes.
func TestGreenClosedBusy(t *testing.T) {
	x := open(t, 0)
	gate, fill := newGate(t, x), kernel(t, x, "fill")
	b := buffer[float32](t, x, 10)
	g, err := safe.NewGreenContext(x, splitInto(t, 1)...)
	require.NoError(t, err)
	s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	launch := func() error {
		return fill.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(float32(7)), b.Arg())
	}
	require.NoError(t, launch()) // before the device is busy
	require.NoError(t, s.Synchronize())
	require.NoError(t, b.Fill(0))
	gate.shut(t, s)
	require.NoError(t, launch())
	require.NoError(t, s.Close())
	require.NoError(t, g.Close())
	gate.open()
	got := make([]float32, 10)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 7, got[9])
}

// TestGreenRecordAwaitsRoom: records of a green context that has a stuck stream wait with nothing locked,
// and use no stream that the program has closed.
func TestGreenRecordAwaitsRoom(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	for name, closes := range map[string]bool{"open stream": false, "closed stream": true} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			x := open(t, 0)
			g := green(t, x, splitInto(t, 1)...)
			s, e := greenStream(t, g), event(t, x)
			unstick := stickOn(t, host[uint32](t, x, 1), s)
			defer unstick()
			if closes {
				require.NoError(t, s.Close())
			}
			var made atomic.Int64
			recorded := background(func() {
				for range 1500 {
					assert.NoError(t, g.Record(e))
					made.Add(1)
				}
			})
			t.Logf("%d records are queued", untilBlocked(&made))
			assert.False(t, closed(recorded))
			asked := background(func() {
				_, err := g.SMResource()
				other, eventErr := safe.NewEvent(x)
				u, streamErr := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
				assert.NoError(t, errors.Join(err, eventErr, streamErr, other.Close(), u.Close()))
			})
			soon(t, asked, "other calls wait for the record")
			unstick()
			<-recorded
			assert.NoError(t, g.Synchronize())
			noViolation(t)
		})
	}
}

// TestGreenRecordBesideCapture: records that are refused take no room.
func TestGreenRecordBesideCapture(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	x := open(t, 0)
	watch(t)
	g := green(t, x, splitInto(t, 1)...)
	s, u, e := greenStream(t, g), greenStream(t, g), event(t, x)
	unstick := stickOn(t, host[uint32](t, x, 1), s)
	defer unstick()
	for range 25 {
		require.NoError(t, g.Record(e))
	}
	c, err := u.BeginCapture()
	require.NoError(t, err)
	for range 100 {
		require.ErrorIs(t, g.Record(e), safe.ErrCapturing)
	}
	captured, err := c.End()
	require.NoError(t, errors.Join(err, captured.Close(), g.Record(e)))
	unstick()
	assert.NoError(t, g.Synchronize())
}

// TestGreenGoroutines uses green contexts and their streams from many goroutines.
func TestGreenGoroutines(t *testing.T) {
	x := open(t, 0)
	const n, goroutines, rounds = 256, 32, 10
	fill := kernel(t, x, "fill")
	var greens []*safe.GreenContext
	for _, part := range splitInto(t, 2) {
		greens = append(greens, green(t, x, part))
	}
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			g := greens[i%2]
			for r := range rounds {
				s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, oneRound(x, s, fill, n, float32(i*rounds+r), false))
				e, err := safe.NewEvent(x)
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, greens[(i+r)%2].Record(e))
				assert.NoError(t, g.WaitEvent(e))
				_, err = g.SMResource()
				assert.NoError(t, err)
				assert.NoError(t, g.Synchronize())
				assert.NoError(t, s.Close())
				assert.NoError(t, e.Close())
			}
		})
	}
	all.Wait()
}

// greenUses are calls that fail alike on nil, zero and closed objects.
func greenUses(x *safe.Context, g *safe.GreenContext, s *safe.Stream, e *safe.Event, part safe.SMResource) map[string]func() error {
	return map[string]func() error{
		"NewGreenContext":          func() error { _, err := safe.NewGreenContext(x, part); return err },
		"GreenContext.SMResource":  func() error { _, err := g.SMResource(); return err },
		"GreenContext.NewStream":   func() error { _, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true}); return err },
		"GreenContext.Record":      func() error { return g.Record(e) },
		"GreenContext.WaitEvent":   func() error { return g.WaitEvent(e) },
		"GreenContext.Synchronize": g.Synchronize,
		"GreenContext.Wait":        func() error { return g.Wait(context.Background()) },
		"Stream.GreenContext":      func() error { _, err := s.GreenContext(); return err },
		"Stream.SMResource":        func() error { _, err := s.SMResource(); return err },
	}
}

func TestGreenNil(t *testing.T) {
	refusedAll(t, greenUses(nil, nil, nil, nil, safe.SMResource{}))
	var none *safe.GreenContext
	zero := &safe.GreenContext{}
	refusedAll(t, greenUses(&safe.Context{}, zero, &safe.Stream{}, &safe.Event{}, safe.SMResource{}))
	for _, g := range []*safe.GreenContext{none, zero} {
		assert.NoError(t, g.Close())
		assert.Zero(t, g.Raw())
	}
}

func TestGreenClosed(t *testing.T) {
	x, parts := open(t, 0), splitInto(t, 1)
	g, err := safe.NewGreenContext(x, parts...)
	require.NoError(t, err)
	s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	e := event(t, x)
	for range 2 {
		for _, c := range []closer{x, g, s} {
			require.NoError(t, c.Close())
		}
	}
	uses := greenUses(x, g, s, e, parts[0])
	refusedAll(t, uses)
	require.NoError(t, e.Close())
	refusedAll(t, uses)
}
