//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures and the streams that join them: captured objects are retained, joined streams
// may be closed, two captures never get one stream, and captures begin soon. Runs on any
// driver.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJoinedIsClosed: a stream is closed or shut down while it is part of a capture.
func TestJoinedIsClosed(t *testing.T) {
	for name, end := range map[string]func(s *safe.Stream) error{
		"Close":    (*safe.Stream).Close,
		"Shutdown": func(s *safe.Stream) error { return except(s.Shutdown(context.Background()), safe.ErrCapturing) },
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			x := open(t, 0)
			s, b := stream(t, x), buffer[uint32](t, x, 16)
			fork, join := event(t, x), event(t, x)
			for until := time.Now().Add(stormTime(t)); time.Now().Before(until); {
				side, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
				require.NoError(t, err)
				ended := make(chan error, 1)
				g, err := s.Capture(func() error {
					err := errors.Join(s.Record(fork), side.WaitEvent(fork), b.FillAsync(side, 1), side.Record(join))
					go func() { ended <- end(side) }()
					runtime.Gosched()
					return errors.Join(err, s.WaitEvent(join), b.FillAsync(s, 2))
				})
				require.NoError(t, <-ended)
				require.NoError(t, err)
				nodes, err := g.Nodes()
				require.NoError(t, err)
				require.Len(t, nodes, 2)
				require.NoError(t, errors.Join(g.Close(), side.Close()))
			}
			noViolation(t)
		})
	}
}

// TestTwoCapturesOneSide: several captures want the same stream to join at once. Those
// that do not get it return an error and continue without it.
func TestTwoCapturesOneSide(t *testing.T) {
	watch(t)
	x := open(t, 0)
	side := stream(t, x)
	one := func() func() error {
		s, b, fork, join := stream(t, x), buffer[uint32](t, x, 16), event(t, x), event(t, x)
		return func() error {
			g, err := s.Capture(func() error {
				if err := errors.Join(b.FillAsync(s, 1), s.Record(fork)); err != nil {
					return err
				}
				if err := side.WaitEvent(fork); err != nil {
					return except(err, safe.ErrCapturing)
				}
				return errors.Join(b.FillAsync(side, 2), side.Record(join), s.WaitEvent(join))
			})
			if err != nil {
				return err
			}
			return g.Close()
		}
	}
	var c racers
	for range 3 {
		c.add(1, one())
	}
	time.Sleep(2 * stormTime(t))
	assert.NoError(t, c.end())
	assert.NoError(t, side.Synchronize())
	noViolation(t)
}

// TestCaptureIsNotStarved: captures begin and record soon although many goroutines query
// without pause.
func TestCaptureIsNotStarved(t *testing.T) {
	x := open(t, 0)
	s, other, e := stream(t, x), stream(t, x), event(t, x)
	require.NoError(t, other.Record(e))
	for name, c := range map[string]struct {
		ask, inside func() error
	}{
		"begin":  {func() error { _, err := s.Query(); return err }, func() error { return nil }},
		"record": {func() error { _, err := e.Query(); return err }, func() error { return s.Record(e) }},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			var r racers
			r.add(16, func() error { return except(c.ask(), safe.ErrCapturing) })
			longest, n, start := time.Duration(0), 0, time.Now()
			for ; time.Since(start) < 4*stormTime(t) || n < 10; n++ {
				begun := time.Now()
				g, err := s.Capture(c.inside)
				longest = max(longest, time.Since(begun))
				require.NoError(t, err)
				require.NoError(t, g.Close())
				require.NoError(t, other.Record(e))
			}
			require.NoError(t, r.end())
			t.Logf("%d captures, %v at most, beside %d calls", n, longest, r.calls.Load())
			assert.Less(t, int(r.calls.Load())/n, 300_000, "calls that go before a capture")
			assert.Less(t, longest, atOnce)
			noViolation(t)
		})
	}
}

// TestLentWorkIsKept: work that another goroutine enqueues on a borrowed stream either
// runs at once or becomes part of the capture, which then retains its memory.
func TestLentWorkIsKept(t *testing.T) {
	drivertest.InChild(t, lendsWhileCapturing) // a failure makes CUDA unusable
}

func lendsWhileCapturing(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s := stream(t, x)
	lent, err := s.Borrow()
	require.NoError(t, err)
	closing(t, lent)
	captured := 0
	for end := time.Now().Add(2 * stormTime(t)); time.Now().Before(end); {
		b, err := safe.NewBuffer[uint32](x, 64)
		require.NoError(t, err)
		put := make(chan error, 1)
		go func() {
			var err error
			for range 20 {
				err = errors.Join(err, b.FillAsync(lent, 0))
			}
			put <- err
		}()
		g, err := s.Capture(func() error { return <-put })
		require.NoError(t, err)
		nodes, err := g.Nodes()
		require.NoError(t, err)
		captured += len(nodes)
		ex, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, b.Close())
		require.NoError(t, ex.Launch(s))
		require.NoError(t, s.Synchronize(), "a graph with %d nodes, whose buffer was closed after the capture", len(nodes))
		require.NoError(t, errors.Join(ex.Close(), g.Close()))
	}
	t.Logf("%d memsets became nodes", captured)
	noViolation(t)
}

// TestDroppedBesideCaptures: a single goroutine drops buffers used on a borrowed or the
// legacy stream before it captures.
func TestDroppedBesideCaptures(t *testing.T) {
	for name, uses := range map[string]func(x *safe.Context) (s, u *safe.Stream){
		"borrowed": func(x *safe.Context) (s, u *safe.Stream) {
			s = stream(t, x)
			u, err := s.Borrow()
			require.NoError(t, err)
			return s, u
		},
		"legacy": func(x *safe.Context) (s, u *safe.Stream) {
			s = blockingStream(t, x)
			u, err := safe.LegacyStream(x)
			require.NoError(t, err)
			return s, u
		},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			x := open(t, 0)
			s, u := uses(x)
			closing(t, u)
			for end := time.Now().Add(2 * stormTime(t)); time.Now().Before(end); {
				for range 60 {
					b, err := safe.NewBuffer[uint32](x, 16)
					require.NoError(t, err)
					require.NoError(t, b.FillAsync(u, 0))
					runtime.KeepAlive(b)
				}
				runtime.GC()
				for range 200 {
					g, err := s.Capture(func() error { return nil })
					require.NoError(t, err)
					require.NoError(t, g.Close())
				}
			}
			noViolation(t)
		})
	}
}

// TestCallThatUsesLast: the garbage collector does not close a buffer during the last
// call that uses it.
func TestCallThatUsesLast(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s := stream(t, x)
	var c racers
	c.add(1, func() error { runtime.GC(); return nil })
	for end := time.Now().Add(2 * stormTime(t)); time.Now().Before(end); {
		g, err := s.Capture(func() error {
			for range 20 {
				b, err := safe.NewBuffer[uint32](x, 16)
				if err != nil {
					return err
				}
				if err := b.FillAsync(s, 0); err != nil {
					return err
				}
			}
			return nil
		})
		if !assert.NoError(t, err) {
			break
		}
		require.NoError(t, g.Close())
	}
	assert.NoError(t, c.end())
	noViolation(t)
}
