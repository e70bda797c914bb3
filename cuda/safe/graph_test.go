//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captured graphs: inspection, replays, updates, recaptures, closing. Runs on any driver.

package safe_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	require.NoError(t, s.CaptureTo(g, safe.CaptureToOptions{Dependencies: nodes}, func() error { return y.FillAsync(s, 0) }))
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
	err = s.CaptureTo(g, safe.CaptureToOptions{Dependencies: same}, func() error { return nil })
	assert.ErrorIs(t, err, safe.ErrForeignNode, "nodes of another graph")
	e := executable(t, clone)
	require.NoError(t, e.Launch(s))
	require.NoError(t, s.Synchronize())
}

// needs skips the test if the driver lacks a function.
func needs(t *testing.T, symbol string) {
	t.Helper()
	if err := driver.Find(symbol); err != nil {
		t.Skip(err)
	}
}

// TestGraphLost tests that a failed capture into a graph makes the graph unusable.
func TestGraphLost(t *testing.T) {
	x := open(t, 0)
	needs(t, "cuStreamBeginCaptureToGraph")
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	require.NoError(t, s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return y.FillAsync(s, 0) }))
	err = s.CaptureTo(g, safe.CaptureToOptions{}, func() error {
		require.NoError(t, y.FillAsync(s, 0))
		return x.WithCurrent(func() error {
			driver.CuStreamQuery(s.Raw()) // invalidates the capture
			return nil
		})
	})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	_, err = g.Nodes()
	assert.ErrorIs(t, err, safe.ErrGraphLost)
	_, err = g.Instantiate()
	assert.ErrorIs(t, err, safe.ErrGraphLost)
	assert.ErrorIs(t, s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return nil }), safe.ErrGraphLost)
	require.NoError(t, g.Close())
}

// TestCaptureExecutable replays three Go functions that only the executable refers to.
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
		e, err := s.CaptureExecutable(func() error {
			for i := range ran {
				f, err := s.LaunchHostFunc(func() { ran[i].Add(1); large[0]++ })
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
	e, err := s.CaptureExecutable(func() error {
		_, err := s.LaunchHostFunc(func() { panic("mine") })
		return err
	})
	require.NoError(t, err)
	closing(t, e)
	require.NoError(t, e.Launch(s))
	assert.Equal(t, "mine", reported[*safe.PanicError](t, h).Value)
	require.NoError(t, s.Synchronize())
}

// TestExecUpdate tests that replaced objects stay alive until earlier launches have
// completed.
func TestExecUpdate(t *testing.T) {
	x := open(t, 0)
	const n = 32
	gate, s, saxpy, one, y := newGate(t, x), stream(t, x), kernel(t, x, "saxpy"), ones(t, x, n), buffer[float32](t, x, n)
	require.NoError(t, y.Fill(0))
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

	other, err := s.Capture(func() error { return errors.Join(y.FillAsync(s, 0), y.FillAsync(s, 1)) })
	require.NoError(t, err)
	closing(t, other)
	err = e.Update(other)
	var u *safe.UpdateError
	require.ErrorAs(t, err, &u)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
	assert.Equal(t, driver.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, u.Result)
	assert.ErrorContains(t, err, "cuda: GraphExec.Update: CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED: the graphs differ in the number of nodes or in their edges, so instantiate the new graph")
	require.NoError(t, e.Launch(s), "it is as before")
	require.NoError(t, s.Synchronize())
	_ = one
}

// TestExecUpdateKeeps: what a launch in progress needs stays until its end, also if the new graph differs in nothing but
// functions.
func TestExecUpdateKeeps(t *testing.T) {
	x := open(t, 0)
	for name, add := range map[string]func(t *testing.T, g *safe.Graph, f func()){
		"a host function": func(t *testing.T, g *safe.Graph, f func()) { addNode(t, g, safe.HostFuncNode(f)) },
		"OnRelease": func(t *testing.T, g *safe.Graph, f func()) {
			addNode(t, g, safe.EmptyNode())
			require.NoError(t, g.OnRelease(f))
		},
		"a graph inside a node": func(t *testing.T, g *safe.Graph, f func()) {
			child := newGraph(t, x)
			addNode(t, child, safe.HostFuncNode(f))
			addNode(t, g, safe.ChildGraphNode(child))
			require.NoError(t, child.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			gate, s := newGate(t, x), stream(t, x)
			from, to := newGraph(t, x), newGraph(t, x)
			called := make(chan struct{}, 1)
			add(t, from, func() { called <- struct{}{} })
			add(t, to, func() {})
			e := executable(t, from)
			gate.shut(t, s)
			require.NoError(t, errors.Join(e.Launch(s), e.Update(to), from.Close()))
			time.Sleep(20 * time.Millisecond)
			assert.Empty(t, called, "the launch has not begun")
			gate.open()
			require.NoError(t, s.Synchronize())
			assert.Eventually(t, func() bool { return len(called) == 1 }, atOnce, time.Millisecond)
		})
	}
}

// TestExecUpdateWithin: the node that differs may be inside of child nodes.
func TestExecUpdateWithin(t *testing.T) {
	x := open(t, 0)
	b := buffer[float32](t, x, 10)
	around := func(depth int, w safe.NodeParams) *safe.Graph {
		g := newGraph(t, x)
		addNode(t, g, w)
		for range depth {
			child := g
			g = newGraph(t, x)
			addNode(t, g, safe.ChildGraphNode(child))
		}
		return g
	}
	for depth := range 3 {
		t.Run(fmt.Sprintf("in %d", depth), func(t *testing.T) {
			from, to := around(depth, safe.FillNode(b, 1)), around(depth, safe.EmptyNode())
			var u *safe.UpdateError
			require.ErrorAs(t, executable(t, from).Update(to), &u)
			assert.Equal(t, driver.CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, u.Result)
			nodes, err := to.Nodes()
			require.NoError(t, err)
			for range depth {
				inner, err := nodes[0].ChildGraph()
				require.NoError(t, err)
				nodes, err = inner.Nodes()
				require.NoError(t, err)
			}
			assert.True(t, u.Node == nodes[0], "%v", u.Node)
		})
	}
}

// TestExecUpdateToCopy: CUDA crashes at the launch of an executable that was updated to a copy
// of memory of a pool, if the thread that captured the copy had no context.
func TestExecUpdateToCopy(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		x := open(t, 0)
		s, from, to := stream(t, x), ones(t, x, 8), host[float32](t, x, 8)
		async, err := safe.NewBufferAsync[float32](s, 8)
		require.NoError(t, err)
		closing(t, async)
		batch, err := safe.NewBatch(x)
		require.NoError(t, err)
		require.NoError(t, errors.Join(safe.BatchCopy(batch, to, from), safe.BatchCopy(batch, from, async), batch.WaitEvent(event(t, x))))
		borrowed, err := safe.BorrowBuffer[float32](x, async.Raw(), 8, async)
		require.NoError(t, err)
		closing(t, borrowed)
		ofBorrowed, err := safe.NewBatch(x)
		require.NoError(t, err)
		require.NoError(t, errors.Join(safe.BatchCopy(ofBorrowed, to, borrowed), ofBorrowed.WaitEvent(event(t, x))))
		for name, f := range map[string]func() error{
			"copies": func() error {
				return errors.Join(from.CopyToHostAsync(s, to), from.CopyFromHostAsync(s, to), async.CopyFromAsync(s, from))
			},
			"batch":          func() error { return batch.Submit(s) },
			"borrowed":       func() error { return borrowed.CopyToHostAsync(s, to) },
			"borrowed batch": func() error { return ofBorrowed.Submit(s) },
		} {
			t.Run(name, func(t *testing.T) {
				var e *safe.GraphExec
				for range 3 {
					g, err := s.Capture(f)
					require.NoError(t, err)
					if e == nil {
						e = executable(t, g)
					}
					require.NoError(t, e.Update(g))
					require.NoError(t, g.Close())
					require.NoError(t, e.Launch(s))
					require.NoError(t, s.Synchronize())
				}
			})
		}
	})
}

// graphUses are calls of graphs and executables that must fail alike on a nil pointer, a
// zero value and a closed object.
func graphUses(s *safe.Stream, g *safe.Graph, e *safe.GraphExec) map[string]func() error {
	return map[string]func() error{
		"Graph.Clone":       func() error { _, err := g.Clone(); return err },
		"Graph.Nodes":       func() error { _, err := g.Nodes(); return err },
		"Graph.Edges":       func() error { _, err := g.Edges(); return err },
		"Graph.DOT":         func() error { _, err := g.DOT(0); return err },
		"Graph.Instantiate": func() error { _, err := g.Instantiate(); return err },
		"Graph.Add":         func() error { _, err := g.Add(safe.EmptyNode()); return err },
		"Graph.AddEdges":    func() error { return g.AddEdges() },
		"Graph.RemoveEdges": func() error { return g.RemoveEdges() },
		"Graph.OnRelease":   func() error { return g.OnRelease(func() {}) },
		"Graph.NewCondition": func() error {
			_, err := g.NewCondition(safe.ConditionOptions{})
			return err
		},
		"Graph.AddIf":          func() error { _, _, err := g.AddIf(safe.Condition{}); return err },
		"Graph.AddIfElse":      func() error { _, _, _, err := g.AddIfElse(safe.Condition{}); return err },
		"Graph.AddWhile":       func() error { _, _, err := g.AddWhile(safe.Condition{}); return err },
		"Graph.AddSwitch":      func() error { _, _, err := g.AddSwitch(safe.Condition{}, 1); return err },
		"AddAlloc":             func() error { _, _, err := safe.AddAlloc[int32](g, 1); return err },
		"GraphExec.Set":        func() error { return e.Set(safe.Node{}, safe.EmptyNode()) },
		"GraphExec.SetEnabled": func() error { return e.SetEnabled(safe.Node{}, true) },
		"Node.Dependencies":    func() error { _, err := (safe.Node{}).Dependencies(); return err },
		"Node.Destroy":         (safe.Node{}).Destroy,
		"Node.ChildGraph":      func() error { _, err := (safe.Node{}).ChildGraph(); return err },
		"Node.Params":          func() error { _, err := (safe.Node{}).Params(); return err },
		"Node.Set":             func() error { return (safe.Node{}).Set(safe.EmptyNode()) },
		"Stream.CaptureTo":     func() error { return s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return nil }) },
		"GraphExec.Launch":     func() error { return e.Launch(s) },
		"GraphExec.Upload":     func() error { return e.Upload(s) },
		"GraphExec.Update":     func() error { return e.Update(g) },
	}
}

// TestGraphHandles tests nil, zero and closed graphs and executables.
func TestGraphHandles(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	refusedAll(t, graphUses(s, nil, nil))
	refusedAll(t, graphUses(s, &safe.Graph{}, &safe.GraphExec{}))
	assert.NoError(t, errors.Join((*safe.Graph)(nil).Close(), (*safe.GraphExec)(nil).Close(), (&safe.Graph{}).Close(), (&safe.GraphExec{}).Close()))
	assert.Zero(t, (&safe.Graph{}).Raw())
	assert.Zero(t, (&safe.GraphExec{}).Raw())

	g, err := s.Capture(func() error { return y.FillAsync(s, 0) })
	require.NoError(t, err)
	e, err := g.Instantiate()
	require.NoError(t, err)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.NotZero(t, nodes[0].Raw())
	assert.Contains(t, nodes[0].String(), "MEMSET")
	assert.NotZero(t, g.Raw())
	assert.NotZero(t, e.Raw())
	require.NoError(t, e.Launch(s))
	for range 2 {
		require.NoError(t, errors.Join(e.Close(), g.Close()))
	}
	refusedAll(t, graphUses(s, g, e))
	require.NoError(t, s.Synchronize())
}

// TestBeginCaptureTo tests captures into a graph with BeginCaptureTo.
func TestBeginCaptureTo(t *testing.T) {
	x := open(t, 0)
	needs(t, "cuStreamBeginCaptureToGraph")
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, g)
	for n := range 2 {
		c, err := s.BeginCaptureTo(g, safe.CaptureToOptions{})
		require.NoError(t, err)
		require.NoError(t, y.FillAsync(s, 0))
		same, err := c.End()
		require.NoError(t, err)
		assert.Same(t, g, same)
		nodes, err := g.Nodes()
		require.NoError(t, err)
		assert.Len(t, nodes, n+1)
	}
	_, err = s.BeginCaptureTo(g, safe.CaptureToOptions{EdgeData: make([]driver.CUgraphEdgeData, 1)})
	assert.ErrorIs(t, err, safe.ErrRange)
	require.NoError(t, s.Synchronize())
}

// TestRecapture changes the arguments of a graph's nodes by recapturing it.
func TestRecapture(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g, err := s.Capture(func() error { return y.FillAsync(s, 1) })
	require.NoError(t, err)
	closing(t, g)
	e := executable(t, g)
	err = s.Recapture(g, safe.CaptureOptions{}, func() error { return y.FillAsync(s, 2) })
	if driver.Find("cuStreamBeginRecaptureToGraph") != nil {
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		assert.ErrorContains(t, err, "13.3")
		require.NoError(t, e.Update(g), "nothing has happened")
		return
	}
	require.NoError(t, err)
	require.NoError(t, e.Update(g))
	require.NoError(t, e.Launch(s))
	got := make([]float32, 10)
	require.NoError(t, y.CopyToHost(got))
	assert.EqualValues(t, 2, got[9])

	assert.Error(t, s.Recapture(g, safe.CaptureOptions{}, func() error { return errors.Join(y.FillAsync(s, 1), y.FillAsync(s, 1)) }))
	_, err = g.Nodes()
	assert.ErrorIs(t, err, safe.ErrGraphLost)
	require.NoError(t, s.Synchronize())
}
