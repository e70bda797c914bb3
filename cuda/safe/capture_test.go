//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func executable(t *testing.T, g *safe.Graph) *safe.GraphExec {
	t.Helper()
	e, err := g.Instantiate(0)
	require.NoError(t, err)
	closing(t, e)
	return e
}

// adding is a graph that adds 1 to each value, by way of saxpy.
func adding(t *testing.T, s *safe.Stream, saxpy *safe.Kernel, ones, y *safe.Buffer[float32]) *safe.Graph {
	t.Helper()
	g, err := s.Capture(localMode, func() error {
		return saxpy.Launch(s, perValue(y.Len()), safe.Val(uint32(y.Len())), safe.Val(float32(1)), ones.Arg(), y.Arg())
	})
	require.NoError(t, err)
	closing(t, g)
	return g
}

func ones(t *testing.T, x *safe.Context, n int) *safe.Buffer[float32] {
	b := buffer[float32](t, x, n)
	require.NoError(t, b.Fill(1))
	return b
}

func TestCapture(t *testing.T) {
	x := open(t, 0)
	const n = 100
	s, saxpy, one, y := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, n), buffer[float32](t, x, n)
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			require.NoError(t, y.Zero())
			g, err := s.Capture(m.mode, func() error {
				status, err := s.CaptureStatus()
				assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_ACTIVE, status)
				return errors.Join(err, y.FillAsync(s, 4),
					saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), one.Arg(), y.Arg()))
			})
			require.NoError(t, err)
			status, err := s.CaptureStatus()
			require.NoError(t, err)
			assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_NONE, status)
			got := make([]float32, n)
			require.NoError(t, y.CopyToHost(got))
			assert.Zero(t, got[0], "nothing has run")
			e := executable(t, g)
			require.NoError(t, g.Close())
			require.NoError(t, e.Upload(s))
			require.NoError(t, e.Launch(s))
			require.NoError(t, y.CopyToHost(got), "behind the launch")
			assert.EqualValues(t, 5, got[n-1])
		})
	}
}

func TestCaptureInspect(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g := adding(t, s, kernel(t, x, "saxpy"), ones(t, x, 10), y)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_KERNEL, nodes[0].Type())
	edges, err := g.Edges()
	require.NoError(t, err)
	assert.Empty(t, edges)
	needs(t, "cuStreamBeginCaptureToGraph")
	require.NoError(t, s.CaptureTo(g, nodes, nil, localMode, func() error { return y.ZeroAsync(s) }))
	edges, err = g.Edges()
	require.NoError(t, err)
	require.Len(t, edges, 1)
	assert.Equal(t, nodes[0], edges[0].From)
	assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_MEMSET, edges[0].To.Type())
	dot, err := g.DOT(0)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(strings.TrimSpace(dot), "digraph"), "%s", dot)
	clone, err := g.Clone()
	require.NoError(t, err)
	closing(t, clone)
	same, err := clone.Nodes()
	require.NoError(t, err)
	assert.Len(t, same, 2)
	err = s.CaptureTo(g, same, nil, localMode, func() error { return nil })
	assert.ErrorIs(t, err, safe.ErrGraph, "nodes of another graph")
	e := executable(t, clone)
	require.NoError(t, e.Launch(s))
	require.NoError(t, s.Synchronize())
}

// needs skips where the driver lacks a function.
func needs(t *testing.T, symbol string) {
	t.Helper()
	if err := driver.Find(symbol); err != nil {
		t.Skip(err)
	}
}

// TestCaptureFork captures two streams, of which one is fed by another goroutine.
func TestCaptureFork(t *testing.T) {
	x := open(t, 0)
	const n = 64
	s, side, fork, join := stream(t, x), stream(t, x), event(t, x), event(t, x)
	saxpy, one := kernel(t, x, "saxpy"), ones(t, x, n)
	a, b := buffer[float32](t, x, n), buffer[float32](t, x, n)
	g, err := s.Capture(localMode, func() error {
		require.NoError(t, a.FillAsync(s, 1))
		require.NoError(t, s.Record(fork, 0))
		require.NoError(t, side.WaitEvent(fork, 0))
		_, err := side.Query()
		assert.ErrorIs(t, err, safe.ErrCapturing)
		fed := make(chan error)
		go func() { fed <- b.FillAsync(side, 2) }()
		require.NoError(t, <-fed)
		require.NoError(t, side.Record(join, 0))
		require.NoError(t, s.WaitEvent(join, 0))
		return saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), a.Arg(), b.Arg())
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 3)
	e := executable(t, g)
	require.NoError(t, e.Launch(side))
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 3, got[n-1])
	_ = one
	require.NoError(t, fork.Close())
	require.NoError(t, side.Synchronize(), "it captures no more")
}

// TestCaptureErrors provokes each way in which a capture can fail.
func TestCaptureErrors(t *testing.T) {
	x := open(t, 0)
	s, side, y := stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	e, fork := event(t, x), event(t, x)
	mine := errors.New("mine")
	for _, test := range []struct {
		name string
		f    func(t *testing.T) error
		is   error
	}{
		{"f's error", func(*testing.T) error { return mine }, mine},
		{"unjoined", func(t *testing.T) error {
			require.NoError(t, errors.Join(y.ZeroAsync(s), s.Record(fork, 0), side.WaitEvent(fork, 0)))
			return y.FillAsync(side, 1)
		}, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED},
		{"isolation", func(t *testing.T) error {
			require.NoError(t, y.FillAsync(side, 1))
			require.NoError(t, side.Record(e, 0))
			assert.ErrorIs(t, s.WaitEvent(e, 0), driver.CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
			return nil
		}, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
		{"invalidated by a raw call", func(t *testing.T) error {
			err := x.Do(func() error { return driver.CuStreamQuery(s.Raw()) })
			assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
			assert.Error(t, y.ZeroAsync(s))
			return nil
		}, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
		{"captures already", func(t *testing.T) error {
			_, err := s.Capture(localMode, func() error { return nil })
			assert.ErrorIs(t, err, safe.ErrCapturing)
			return err
		}, safe.ErrCapturing},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, err := s.Capture(localMode, func() error { return test.f(t) })
			assert.ErrorIs(t, err, test.is)
			assert.Nil(t, g)
			require.NoError(t, s.Synchronize(), "it captures no more")
			require.NoError(t, side.Synchronize(), "nor does this one")
		})
	}
	t.Run("merge", func(t *testing.T) {
		c, err := side.BeginCapture(localMode)
		require.NoError(t, err)
		require.NoError(t, errors.Join(y.ZeroAsync(side), side.Record(fork, 0)))
		_, err = s.Capture(localMode, func() error {
			assert.ErrorIs(t, s.WaitEvent(fork, 0), driver.CUDA_ERROR_STREAM_CAPTURE_MERGE)
			return nil
		})
		assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
		_, err = c.End()
		assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	})
	t.Run("unmatched", func(t *testing.T) {
		_, err := s.Capture(localMode, func() error {
			require.NoError(t, errors.Join(y.ZeroAsync(s), s.Record(fork, 0), side.WaitEvent(fork, 0)))
			err := x.Do(func() error {
				var graph driver.CUgraph
				return driver.CuStreamEndCapture(side.Raw(), &graph)
			})
			assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
			return nil
		})
		assert.Error(t, err)
		require.NoError(t, side.Synchronize())
	})
	t.Run("lossy query", func(t *testing.T) {
		needs(t, "cuStreamGetCaptureInfo_v3")
		nothing := kernel(t, x, "nothing")
		g, err := s.Capture(localMode, func() error {
			require.NoError(t, nothing.Launch(s, one))
			info, err := s.CaptureInfo()
			require.NoError(t, err)
			programmatic := driver.CUgraphEdgeData{From_port: 1, Type: uint8(driver.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)}
			data := []driver.CUgraphEdgeData{programmatic}
			require.NoError(t, s.UpdateCaptureDependencies(info.Dependencies, data, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
			err = x.Do(func() error {
				var status driver.CUstreamCaptureStatus
				var n uint64
				var nodes *driver.CUgraphNode
				return driver.CuStreamGetCaptureInfo_v2(s.Raw(), &status, nil, nil, &nodes, &n)
			})
			assert.ErrorIs(t, err, driver.CUDA_ERROR_LOSSY_QUERY)
			info, err = s.CaptureInfo()
			require.NoError(t, err)
			assert.Equal(t, data, info.Data)
			return s.UpdateCaptureDependencies(info.Dependencies, nil, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		})
		require.NoError(t, err)
		require.NoError(t, g.Close())
	})
	t.Run("panic", func(t *testing.T) {
		assert.PanicsWithValue(t, 1, func() { s.Capture(localMode, func() error { panic(1) }) })
		require.NoError(t, s.Synchronize())
	})
	t.Run("Goexit", func(t *testing.T) {
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.Capture(localMode, func() error { runtime.Goexit(); return nil })
		}()
		<-over
		require.NoError(t, s.Synchronize())
	})
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	_, err = legacy.Capture(localMode, func() error { return nil })
	assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

// TestCaptureRefuses: what a capturing stream cannot do is refused, and the
// capture goes on.
func TestCaptureRefuses(t *testing.T) {
	x := open(t, 0)
	s, y, captured := stream(t, x), buffer[float32](t, x, 10), event(t, x)
	g := adding(t, s, kernel(t, x, "saxpy"), ones(t, x, 10), y)
	e := executable(t, g)
	made, err := s.Capture(driver.CU_STREAM_CAPTURE_MODE_GLOBAL, func() error {
		require.NoError(t, y.ZeroAsync(s))
		require.NoError(t, s.Record(captured, 0))
		for name, call := range map[string]func() error{
			"query":       func() error { _, err := s.Query(); return err },
			"wait":        s.Synchronize,
			"blocking":    s.SynchronizeBlocking,
			"id":          func() error { _, err := s.ID(); return err },
			"callback":    func() error { return s.AddCallback(func(error) {}) },
			"scope":       func() error { return s.Scope(func(*safe.Scope) error { return nil }) },
			"completion":  func() error { return s.Completion().Err() },
			"launch":      func() error { return e.Launch(s) },
			"upload":      func() error { return e.Upload(s) },
			"synchronize": x.Synchronize,
			"event":       func() error { _, err := captured.Query(); return err },
			"event wait":  captured.Synchronize,
			"buffer":      func() error { return y.Zero() },
			"async":       func() error { _, err := safe.NewBufferAsync[int](s, 1); return err },
		} {
			assert.ErrorIs(t, call(), safe.ErrCapturing, name)
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, made.Close())
}

func TestCaptureThreads(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	onOther := func(f func()) {
		over := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			defer close(over)
			f()
		}()
		<-over
	}
	c, err := s.BeginCapture(localMode)
	require.NoError(t, err)
	onOther(func() {
		_, err := c.End()
		assert.ErrorIs(t, err, safe.ErrWrongThread)
	})
	require.NoError(t, y.ZeroAsync(s))
	g, err := c.End()
	require.NoError(t, err, "the capture went on")
	require.NoError(t, g.Close())
	_, err = c.End()
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = (*safe.Capture)(nil).End()
	assert.ErrorIs(t, err, safe.ErrClosed)

	c, err = s.BeginCapture(driver.CU_STREAM_CAPTURE_MODE_RELAXED)
	require.NoError(t, err)
	onOther(func() {
		g, err := c.End()
		assert.NoError(t, err)
		assert.NoError(t, g.Close())
	})
	require.NoError(t, s.Synchronize())
}

func TestWithCaptureMode(t *testing.T) {
	x := open(t, 0)
	mode := func() (m driver.CUstreamCaptureMode) {
		m = driver.CU_STREAM_CAPTURE_MODE_GLOBAL
		require.NoError(t, driver.CuThreadExchangeStreamCaptureMode(&m))
		was := m
		require.NoError(t, driver.CuThreadExchangeStreamCaptureMode(&m))
		return was
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine := errors.New("mine")
	assert.Equal(t, mine, safe.WithCaptureMode(driver.CU_STREAM_CAPTURE_MODE_RELAXED, func() error {
		assert.Equal(t, driver.CU_STREAM_CAPTURE_MODE_RELAXED, mode())
		require.NoError(t, stream(t, x).Synchronize())
		assert.Equal(t, driver.CU_STREAM_CAPTURE_MODE_RELAXED, mode())
		return mine
	}))
	assert.Panics(t, func() {
		safe.WithCaptureMode(driver.CU_STREAM_CAPTURE_MODE_RELAXED, func() error { panic(1) })
	})
	assert.Equal(t, driver.CU_STREAM_CAPTURE_MODE_GLOBAL, mode())
}

func TestCaptureInfo(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	info, err := s.CaptureInfo()
	require.NoError(t, err)
	assert.Equal(t, safe.CaptureInfo{}, info)
	var first []safe.Node
	g, err := s.Capture(localMode, func() error {
		require.NoError(t, y.FillAsync(s, 1))
		info, err := s.CaptureInfo()
		require.NoError(t, err)
		assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_ACTIVE, info.Status)
		assert.NotZero(t, info.ID)
		assert.NotZero(t, info.Graph)
		require.Len(t, info.Dependencies, 1)
		assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_MEMSET, info.Dependencies[0].Type())
		first = info.Dependencies
		require.NoError(t, y.FillAsync(s, 2))
		require.NoError(t, s.UpdateCaptureDependencies(first, nil, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
		return y.FillAsync(s, 3) // behind the first, beside the second
	})
	require.NoError(t, err)
	closing(t, g)
	edges, err := g.Edges()
	require.NoError(t, err)
	require.Len(t, edges, 2)
	for _, e := range edges {
		assert.Equal(t, first[0].Raw(), e.From.Raw())
	}
	err = s.UpdateCaptureDependencies(first, nil, 0)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_ILLEGAL_STATE)
	other, err := s.Capture(localMode, func() error {
		assert.ErrorIs(t, s.UpdateCaptureDependencies(first, nil, 0), safe.ErrGraph)
		return y.ZeroAsync(s)
	})
	require.NoError(t, err)
	require.NoError(t, other.Close())
}

// TestGraphLost: a capture into a graph that fails takes the graph with it.
func TestGraphLost(t *testing.T) {
	x := open(t, 0)
	needs(t, "cuStreamBeginCaptureToGraph")
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	require.NoError(t, s.CaptureTo(g, nil, nil, localMode, func() error { return y.ZeroAsync(s) }))
	err = s.CaptureTo(g, nil, nil, localMode, func() error {
		require.NoError(t, y.ZeroAsync(s))
		return x.Do(func() error {
			driver.CuStreamQuery(s.Raw()) // destroys the capture
			return nil
		})
	})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	_, err = g.Nodes()
	assert.ErrorIs(t, err, safe.ErrGraphLost)
	_, err = g.Instantiate(0)
	assert.ErrorIs(t, err, safe.ErrGraphLost)
	assert.ErrorIs(t, s.CaptureTo(g, nil, nil, localMode, func() error { return nil }), safe.ErrGraphLost)
	require.NoError(t, g.Close())
}

// TestCaptureExecutable replays three Go functions, which nobody else keeps.
func TestCaptureExecutable(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	var ran [3]atomic.Int32
	gone := make(chan struct{})
	e := func() *safe.GraphExec {
		large := new([1 << 10]int32)
		runtime.AddCleanup(large, func(gone chan struct{}) { close(gone) }, gone)
		b, err := safe.NewBuffer[int32](x, 16)
		require.NoError(t, err)
		m, err := safe.LoadFile(x, "testdata/kernels.ptx")
		require.NoError(t, err)
		k, err := m.Kernel("store")
		require.NoError(t, err)
		e, err := s.CaptureExecutable(localMode, 0, func() error {
			for i := range ran {
				f, err := s.LaunchHostFunc(func() { ran[i].Add(1); large[0]++ }, safe.HostFuncOptions{})
				require.NoError(t, err)
				assert.ErrorIs(t, f.Err(), safe.ErrCapturing)
			}
			return k.Launch(s, one, b.Arg(), safe.Val(uint64(7)))
		})
		require.NoError(t, err)
		require.NoError(t, errors.Join(b.Close(), m.Close()))
		return e
	}()
	drop()
	const replays = 1000
	for range replays {
		require.NoError(t, e.Launch(s))
	}
	drop()
	require.NoError(t, s.Synchronize())
	for i := range ran {
		assert.EqualValues(t, replays, ran[i].Load())
	}
	assert.False(t, isDone(gone))
	require.NoError(t, e.Close())
	collected(t, gone)
	assert.ErrorIs(t, e.Launch(s), safe.ErrClosed)
}

func TestCaptureReplayPanics(t *testing.T) {
	x := open(t, 0)
	s, h := stream(t, x), newHook(t)
	e, err := s.CaptureExecutable(localMode, 0, func() error {
		_, err := s.LaunchHostFunc(func() { panic("mine") }, safe.HostFuncOptions{})
		return err
	})
	require.NoError(t, err)
	closing(t, e)
	require.NoError(t, e.Launch(s))
	assert.Equal(t, "mine", reported[*safe.PanicError](t, h).Value)
	require.NoError(t, s.Synchronize())
}

// TestExecUpdate: what an update replaces lives until the launches before it are over.
func TestExecUpdate(t *testing.T) {
	x := open(t, 0)
	const n = 32
	gate, s, saxpy, one, y := newGate(t, x), stream(t, x), kernel(t, x, "saxpy"), ones(t, x, n), buffer[float32](t, x, n)
	require.NoError(t, y.Zero())
	source := func(v float32) *safe.Buffer[float32] {
		b, err := safe.NewBuffer[float32](x, n)
		require.NoError(t, err)
		require.NoError(t, b.Fill(v))
		return b
	}
	first, second := source(1), source(10)
	a, b := adding(t, s, saxpy, first, y), adding(t, s, saxpy, second, y)
	e := executable(t, a)
	require.NoError(t, a.Close())
	gate.shut(t, s)
	require.NoError(t, e.Launch(s))
	require.NoError(t, first.Close())
	require.NoError(t, e.Update(b))
	require.NoError(t, b.Close())
	require.NoError(t, second.Close())
	require.NoError(t, e.Launch(s))
	drop()
	gate.open()
	got := make([]float32, n)
	require.NoError(t, y.CopyToHost(got))
	assert.EqualValues(t, 11, got[n-1])

	other, err := s.Capture(localMode, func() error { return errors.Join(y.ZeroAsync(s), y.FillAsync(s, 1)) })
	require.NoError(t, err)
	closing(t, other)
	err = e.Update(other)
	var u *safe.UpdateError
	require.ErrorAs(t, err, &u)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
	assert.Equal(t, driver.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, u.Result)
	assert.ErrorContains(t, err, "GraphExec.Update")
	require.NoError(t, e.Launch(s), "it is as before")
	require.NoError(t, s.Synchronize())
	_ = one
}

// TestCaptureAmongOthers: a capture in any mode survives 100 goroutines that use
// the layer.
func TestCaptureAmongOthers(t *testing.T) {
	x := open(t, 0)
	const n = 256
	fill, side := kernel(t, x, "fill"), stream(t, x)
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			s, b := stream(t, x), buffer[float32](t, x, n)
			var others sync.WaitGroup
			g, err := s.Capture(m.mode, func() error {
				for i := range 100 {
					others.Go(func() {
						for r := range 5 {
							assert.NoError(t, oneRound(x, side, fill, n, float32(i+r), r%2 == 0))
							_, err := side.LaunchHostFunc(func() {}, safe.HostFuncOptions{})
							assert.NoError(t, err)
							assert.NoError(t, side.Completion().Err())
						}
					})
				}
				for range 20 {
					require.NoError(t, fill.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(5)), b.Arg()))
					runtime.GC()
					time.Sleep(time.Millisecond)
				}
				others.Wait()
				return nil
			})
			others.Wait()
			require.NoError(t, err)
			closing(t, g)
			require.NoError(t, executable(t, g).Launch(s))
			got := make([]float32, n)
			require.NoError(t, b.CopyToHost(got))
			assert.EqualValues(t, 5, got[n-1])
		})
	}
}
