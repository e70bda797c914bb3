//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Streams that wait for streams, forks and timing. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaitStream(t *testing.T) {
	x := open(t, 0)
	g, first, second, b := newGate(t, x), stream(t, x), stream(t, x), buffer[int32](t, x, 10)
	h := host[int32](t, x, 10)
	g.shut(t, first)
	require.NoError(t, b.FillAsync(first, 7))
	require.NoError(t, second.WaitStream(first))
	require.NoError(t, b.CopyToHostAsync(second, h))
	time.Sleep(5 * time.Millisecond)
	done, err := second.Query()
	require.NoError(t, err)
	assert.False(t, done, "it waits")
	require.NoError(t, first.WaitStream(first), "which is in order already")
	g.open()
	require.NoError(t, second.Synchronize())
	assert.EqualValues(t, 7, h.Data()[9])
}

// TestWaitStreamPoint: work that is enqueued later is not waited for.
func TestWaitStreamPoint(t *testing.T) {
	x := open(t, 0)
	g, first, second := newGate(t, x), stream(t, x), stream(t, x)
	require.NoError(t, second.WaitStream(first))
	g.shut(t, first)
	require.NoError(t, second.Synchronize())
	done, err := first.Query()
	require.NoError(t, err)
	assert.False(t, done)
}

func TestWaitStreamDevices(t *testing.T) {
	x, y := open(t, 0), second(t)
	g, there, here := newGate(t, y), stream(t, y), stream(t, x)
	g.shut(t, there)
	require.NoError(t, here.WaitStream(there))
	time.Sleep(time.Millisecond)
	done, err := here.Query()
	require.NoError(t, err)
	assert.False(t, done)
	g.open()
	require.NoError(t, here.Synchronize())
}

// TestWaitStreamCaptured: a stream joins the capture of another, and is joined.
func TestWaitStreamCaptured(t *testing.T) {
	x := open(t, 0)
	s, other, b := stream(t, x), stream(t, x), buffer[int32](t, x, 10)
	g, err := s.Capture(func() error {
		return errors.Join(b.FillAsync(s, 1), other.WaitStream(s), b.FillAsync(other, 2), s.WaitStream(other), b.FillAsync(s, 3))
	})
	require.NoError(t, err)
	closing(t, g)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	require.NoError(t, exec.Launch(s))
	got, err := b.Download()
	require.NoError(t, err)
	assert.EqualValues(t, 3, got[0])
	require.NoError(t, s.WaitStream(other), "after the capture")
	require.NoError(t, s.Synchronize())
}

func TestWaitStreamRefused(t *testing.T) {
	x := open(t, 0)
	s, other, third, b := stream(t, x), stream(t, x), stream(t, x), buffer[int32](t, x, 10)
	closed, err := safe.NewStream(x)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for name, stream := range map[string]*safe.Stream{"nil": nil, "zero": {}, "closed": closed} {
		assert.ErrorIs(t, s.WaitStream(stream), safe.ErrClosed, name)
		assert.ErrorIs(t, stream.WaitStream(s), safe.ErrClosed, name)
	}
	g, err := s.Capture(func() error {
		require.NoError(t, b.FillAsync(s, 0))
		err := s.WaitStream(other)
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "takes no part in the capture")
		c, err := other.BeginCapture()
		require.NoError(t, err)
		err = s.WaitStream(other)
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "different captures")
		_, err = c.End()
		return err
	})
	require.NoError(t, err, "the capture survives")
	require.NoError(t, g.Close())
	relaxed := x.WithCurrent(func() error {
		require.NoError(t, driver.CuStreamBeginCapture(third.Raw(), driver.CU_STREAM_CAPTURE_MODE_RELAXED))
		err := s.WaitStream(third)
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "did not begin")
		var raw driver.CUgraph
		require.NoError(t, driver.CuStreamEndCapture(third.Raw(), &raw))
		return driver.CuGraphDestroy(raw)
	})
	require.NoError(t, relaxed)
	require.NoError(t, s.WaitStream(third))
}

func TestFork(t *testing.T) {
	x := open(t, 0)
	g, s, b := newGate(t, x), stream(t, x), buffer[int32](t, x, 400)
	h := host[int32](t, x, 400)
	for round := range int32(5) {
		if round == 0 {
			g.shut(t, s)
		}
		require.NoError(t, b.FillAsync(s, 0))
		require.NoError(t, s.Fork(4, func(branches []*safe.Stream) error {
			var all sync.WaitGroup
			for i, branch := range branches {
				part, err := b.Slice(100*i, 100*i+100)
				require.NoError(t, err)
				assert.Equal(t, x.Device(), branch.Device())
				assert.True(t, branch.NonBlocking())
				all.Go(func() { assert.NoError(t, part.FillAsync(branch, int32(i)+10*round)) })
			}
			all.Wait()
			return nil
		}))
		if round == 0 {
			time.Sleep(time.Millisecond)
			done, err := s.Query()
			require.NoError(t, err)
			assert.False(t, done, "they wait for the stream")
			g.open()
		}
		require.NoError(t, b.CopyToHostAsync(s, h))
		require.NoError(t, s.Synchronize(), "which waits for them")
		for i := range int32(4) {
			assert.Equal(t, i+10*round, h.Data()[100*i+99])
		}
	}
}

// TestForkCaptured: the branches join a capture, and work in it runs side by side.
func TestForkCaptured(t *testing.T) {
	x := open(t, 0)
	s, b, other := stream(t, x), buffer[int32](t, x, 3), buffer[int32](t, x, 3)
	require.NoError(t, s.Fork(3, func([]*safe.Stream) error { return nil }), "uncaptured before")
	g, err := s.Capture(func() error {
		require.NoError(t, b.FillAsync(s, 5))
		for range 2 { // the second uses the streams of the first
			require.NoError(t, s.Fork(3, func(branches []*safe.Stream) error {
				for i, branch := range branches {
					part, err := b.Slice(i, i+1)
					require.NoError(t, err)
					require.NoError(t, part.FillAsync(branch, int32(i)))
				}
				return nil
			}))
		}
		return b.CopyFromAsync(s, other)
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, 8)
	edges, err := g.Edges()
	require.NoError(t, err)
	after := map[safe.Node]map[safe.Node]bool{} // the nodes that a node waits for
	for range nodes {
		for _, e := range edges {
			if after[e.To] == nil {
				after[e.To] = map[safe.Node]bool{}
			}
			after[e.To][e.From] = true
			maps.Copy(after[e.To], after[e.From])
		}
	}
	var waits []int
	for _, n := range nodes {
		waits = append(waits, len(after[n]))
	}
	slices.Sort(waits)
	assert.Equal(t, []int{0, 1, 1, 1, 4, 4, 4, 7}, waits, "one after another, and three side by side")
	require.NoError(t, s.Fork(3, func([]*safe.Stream) error { return nil }), "uncaptured afterwards")
	require.NoError(t, s.Synchronize())
}

// TestForkEnds: the streams are joined and closed however f ends.
func TestForkEnds(t *testing.T) {
	x := open(t, 0)
	failed := errors.New("failed")
	for _, captured := range []bool{false, true} {
		for name, end := range map[string]func() error{
			"error":  func() error { return failed },
			"panic":  func() error { panic(failed) },
			"goexit": func() error { runtime.Goexit(); return nil },
		} {
			t.Run(name, func(t *testing.T) {
				s, b := stream(t, x), buffer[int32](t, x, 10)
				var kept []*safe.Stream
				fork := func() (err error) {
					over := make(chan struct{})
					go func() {
						defer close(over)
						defer func() {
							if r := recover(); r != nil {
								err = r.(error)
							}
						}()
						err = s.Fork(2, func(branches []*safe.Stream) error {
							kept = branches
							assert.NoError(t, b.FillAsync(branches[1], 9))
							return end()
						})
					}()
					<-over
					return err
				}
				if captured {
					g, err := s.Capture(func() error {
						require.NoError(t, b.FillAsync(s, 0))
						fork()
						return nil
					})
					require.NoError(t, err, "all are joined")
					require.NoError(t, g.Close())
				} else if err := fork(); name != "goexit" {
					assert.ErrorIs(t, err, failed)
				}
				for _, branch := range kept {
					assert.ErrorIs(t, b.FillAsync(branch, 0), safe.ErrClosed)
					assert.Zero(t, branch.Raw())
				}
				require.NoError(t, s.Synchronize())
			})
		}
	}
}

func TestForkRefused(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[int32](t, x, 10)
	never := func([]*safe.Stream) error { t.Error("called"); return nil }
	assert.ErrorIs(t, s.Fork(-1, never), safe.ErrRange)
	assert.ErrorIs(t, (*safe.Stream)(nil).Fork(1, never), safe.ErrClosed)
	called := false
	require.NoError(t, s.Fork(0, func(branches []*safe.Stream) error { called = true; assert.Empty(t, branches); return nil }))
	assert.True(t, called)

	var c *safe.Capture
	err := s.Fork(1, func(branches []*safe.Stream) (err error) {
		require.NoError(t, b.FillAsync(branches[0], 0))
		c, err = branches[0].BeginCapture() // and no End
		return err
	})
	assert.ErrorIs(t, err, safe.ErrCapturing)
	assert.NoError(t, s.Fork(1, func(branches []*safe.Stream) error { return b.FillAsync(branches[0], 0) }), "it uses another stream")
	g, err := c.End()
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, s.Synchronize(), "it has not joined")
}

// TestForkHuge: a mistyped number creates no stream.
func TestForkHuge(t *testing.T) {
	s := stream(t, open(t, 0))
	for _, n := range []int{4097, 1 << 40, math.MaxInt, -1, math.MinInt} {
		err := s.Fork(n, func([]*safe.Stream) error { t.Error("called"); return nil })
		assert.ErrorIs(t, err, safe.ErrRange)
		assert.ErrorContains(t, err, fmt.Sprint(n, " streams, but there may be 0 to 4096"))
	}
	require.NoError(t, s.Synchronize())
}

// TestForkFails: what cannot be created ends in an error.
func TestForkFails(t *testing.T) {
	needsSimulated(t)
	startClean(t) // what tests before have left creates streams, too
	defer simulated.Reset()
	x := open(t, 0)
	s := stream(t, x)
	simulated.Fail("cuStreamCreateWithPriority", 3, uint32(driver.CUDA_ERROR_UNKNOWN))
	err := s.Fork(100, func([]*safe.Stream) error { t.Error("called"); return nil })
	assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
	require.NoError(t, s.Synchronize())
	simulated.Fail("cuStreamWaitEvent", 4, uint32(driver.CUDA_ERROR_UNKNOWN))
	err = s.Fork(4, func([]*safe.Stream) error { t.Error("called"); return nil })
	assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
	require.NoError(t, errors.Join(s.Synchronize(), s.Close(), x.Close()))
	nothingAlive(t, "the branches")
}

// TestForkReplaced: a stream that f writes in the place of a branch is still closed by the garbage collector.
func TestForkReplaced(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	func() {
		other, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		require.NoError(t, s.Fork(1, func(branches []*safe.Stream) error {
			drivertest.Replace(branches[0], other)
			return nil
		}))
		assert.NotZero(t, other.Raw())
	}()
	require.NoError(t, errors.Join(s.Close(), x.Close()))
	assert.Eventually(t, func() bool { drop(); return simulated.Live("") == 0 }, atOnce, time.Millisecond)
}

// TestForkNested forks a branch, and a stream during its own fork.
func TestForkNested(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[int32](t, x, 4)
	var nest func(s *safe.Stream, at, n int) error
	nest = func(s *safe.Stream, at, n int) error {
		if n == 1 {
			part, err := b.Slice(at, at+1)
			return errors.Join(err, part.FillAsync(s, int32(at+1)))
		}
		return s.Fork(2, func(branches []*safe.Stream) error {
			return errors.Join(nest(branches[0], at, n/2), nest(branches[1], at+n/2, n/2))
		})
	}
	require.NoError(t, nest(s, 0, 4))
	require.NoError(t, s.Fork(1, func([]*safe.Stream) error { return nest(s, 0, 4) }))
	h := host[int32](t, x, 4)
	require.NoError(t, b.CopyToHostAsync(s, h))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, []int32{1, 2, 3, 4}, h.Data())
}

// TestForkOfKinds forks the legacy default stream, a borrowed stream, and one with a
// priority.
func TestForkOfKinds(t *testing.T) {
	x := open(t, 0)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	_, greatest := priorities(t, x)
	urgent, err := safe.NewStreamWith(x, safe.StreamOptions{Priority: greatest})
	require.NoError(t, err)
	closing(t, urgent)
	borrowed, err := urgent.Borrow()
	require.NoError(t, err)
	closing(t, borrowed)
	for name, s := range map[string]*safe.Stream{"legacy": legacy, "urgent": urgent, "borrowed": borrowed} {
		t.Run(name, func(t *testing.T) {
			b, h := buffer[int32](t, x, 1), host[int32](t, x, 1)
			require.NoError(t, s.Fork(2, func(branches []*safe.Stream) error {
				if s != legacy {
					assert.Equal(t, greatest, branches[1].Priority())
				}
				return b.FillAsync(branches[1], 8)
			}))
			require.NoError(t, b.CopyToHostAsync(s, h))
			require.NoError(t, s.Synchronize())
			assert.EqualValues(t, 8, h.Data()[0])
		})
	}
}

// TestForkGreen: the branches run on the multiprocessors of the stream.
func TestForkGreen(t *testing.T) {
	x := open(t, 0)
	s, b := greenStream(t, green(t, x, splitInto(t, 2)[0])), buffer[int32](t, x, 10)
	want, err := s.GreenContext()
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, s.Fork(2, func(branches []*safe.Stream) error {
			got, err := branches[1].GreenContext()
			require.NoError(t, err)
			assert.Equal(t, want, got)
			return b.FillAsync(branches[0], 4)
		}))
	}
	got, err := b.Download()
	require.NoError(t, err)
	assert.EqualValues(t, 4, got[0])
}

// TestForkForeignGreen: there are no branches for a stream of a green context that was created elsewhere, as their work
// would leave its multiprocessors. Those of a stream that other code has made of a GreenContext stay there.
func TestForkForeignGreen(t *testing.T) {
	needs(t, "cuStreamGetCtx_v2")
	x := open(t, 0)
	g := rawGreen(t, x)
	defer func() { assert.NoError(t, driver.CuGreenCtxDestroy(g)) }()
	var raw driver.CUstream
	require.NoError(t, driver.CuGreenCtxStreamCreate(&raw, g, driver.CU_STREAM_NON_BLOCKING, 0))
	s, err := safe.BorrowStream(raw, x, nil)
	require.NoError(t, err)
	for n, name := range []string{"none", "one"} {
		err = s.Fork(n, func([]*safe.Stream) error { t.Error("f is called"); return nil })
		assert.ErrorIs(t, err, safe.ErrNotSupported, name)
		assert.ErrorContains(t, err, "BorrowStream", name)
	}
	require.NoError(t, s.Close())
	require.NoError(t, driver.CuStreamDestroy(raw))

	own := green(t, x, splitInto(t, 1)...)
	require.NoError(t, driver.CuGreenCtxStreamCreate(&raw, own.Raw(), driver.CU_STREAM_NON_BLOCKING, 0))
	s, err = safe.StreamFromRaw(raw, x)
	require.NoError(t, err)
	closing(t, s)
	want, err := s.GreenContext()
	require.NoError(t, err)
	require.NoError(t, s.Fork(1, func(branches []*safe.Stream) error {
		got, err := branches[0].GreenContext()
		assert.Equal(t, want, got)
		return err
	}))
}

// TestForkAgain: the streams are used again, also while their work is pending, but not if
// the program may know them.
func TestForkAgain(t *testing.T) {
	if onGPU {
		t.Skip("counts calls of the simulated driver")
	}
	startClean(t) // what tests before have left creates streams, too
	x := open(t, 0)
	g, b := newGate(t, x), buffer[int32](t, x, 10)
	least, greatest := priorities(t, x)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{Priority: (least + greatest) / 2}) // no other test has left such streams
	require.NoError(t, err)
	closing(t, s)
	fork := func(f func([]*safe.Stream) error) int {
		before := simulated.Calls("cuStreamCreateWithPriority")
		require.NoError(t, s.Fork(3, f))
		return simulated.Calls("cuStreamCreateWithPriority") - before
	}
	work := func(branches []*safe.Stream) error { return b.FillAsync(branches[0], 0) }
	assert.Equal(t, 3, fork(work))
	g.shut(t, s)
	for range 10 {
		assert.Zero(t, fork(work))
	}
	g.open()
	assert.Zero(t, fork(func(branches []*safe.Stream) error {
		assert.NotZero(t, branches[1].Raw())
		return nil
	}))
	assert.Equal(t, 1, fork(work))
	streams := simulated.Live("stream")
	require.NoError(t, s.Synchronize())
	require.NoError(t, s.Close())
	assert.Eventually(t, func() bool { return safe.ReaperIdle() }, atOnce, time.Millisecond)
	assert.LessOrEqual(t, simulated.Live("stream"), streams)
}

func TestTime(t *testing.T) {
	x := open(t, 0)
	g, s, b := newGate(t, x), stream(t, x), buffer[int32](t, x, 10)
	ctx := context.Background()
	took, err := s.Time(ctx, func() error { return b.FillAsync(s, 0) })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, time.Duration(0))
	assert.Less(t, took, time.Minute)
	took, err = s.Time(ctx, func() error {
		// The time begins in the order of the stream, which may be late.
		_, err := s.LaunchHostFunc(func() { time.AfterFunc(20*time.Millisecond, g.open) })
		return errors.Join(err, g.kernel.Launch(s, one, g.flag.Arg()))
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, 10*time.Millisecond)

	failed := errors.New("failed")
	_, err = s.Time(ctx, func() error { return failed })
	assert.Equal(t, failed, err)
	_, err = s.Time(ctx, func() error { _, err := (*safe.Stream)(nil).Time(ctx, nil); return err })
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = s.Capture(func() error {
		_, err := s.Time(ctx, func() error { t.Error("called"); return nil })
		return err
	})
	assert.ErrorIs(t, err, safe.ErrCapturing)
}

// TestTimeEnds: Time waits no longer than its context, and the work goes on.
func TestTimeEnds(t *testing.T) {
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Time(ctx, func() error { g.shut(t, s); return nil })
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "Stream.Time")
	g.open()
	require.NoError(t, s.Synchronize())
}

// TestForkInRawCapture: no branch joins a capture of other code, which goes on.
func TestForkInRawCapture(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	rawCapture(t, x, s, driver.CU_STREAM_CAPTURE_MODE_RELAXED, func() {
		assert.ErrorIs(t, s.Fork(2, func([]*safe.Stream) error { return nil }), safe.ErrCapturing)
	})
	require.NoError(t, s.Fork(2, func([]*safe.Stream) error { return nil }))
}
