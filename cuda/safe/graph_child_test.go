//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Child graphs, memory nodes, OnRelease, destroyed nodes. Runs on any driver;
// TestSimUnknownNodes needs the simulated one.

package safe_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read returns the first value of a buffer.
func read(t *testing.T, b *safe.Buffer[float32]) float32 {
	t.Helper()
	got := make([]float32, b.Len())
	require.NoError(t, b.CopyToHost(got))
	return got[0]
}

func TestChildGraph(t *testing.T) {
	x := open(t, 0)
	const n = 10
	s, saxpy, ones, y := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, n), buffer[float32](t, x, n)
	child := adding(t, s, saxpy, ones, y)
	g := newGraph(t, x)
	zeroed := addNode(t, g, safe.FillNode(y, 0))
	first := addNode(t, g, safe.ChildGraphNode(child), zeroed)
	addNode(t, g, safe.ChildGraphNode(child), first)
	require.NoError(t, child.Close())
	e := executable(t, g)
	launch(t, e, s)
	assert.EqualValues(t, 2, read(t, y))

	part, err := first.ChildGraph()
	require.NoError(t, err)
	nodes, err := part.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.NoError(t, nodes[0].Set(saxpyWork(saxpy, 10, ones, y)), "the copy is changed")
	same, err := first.ChildGraph()
	require.NoError(t, err)
	nodes, err = same.Nodes()
	require.NoError(t, err)
	_, err = part.Add(safe.EmptyNode(), nodes[0])
	require.NoError(t, err, "it is the same graph")
	require.NoError(t, part.Close(), "which does nothing")
	_, err = part.Instantiate()
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	launch(t, executable(t, g), s)
	assert.EqualValues(t, 11, read(t, y))
	launch(t, e, s)
	assert.EqualValues(t, 2, read(t, y), "as it was")

	other := adding(t, s, saxpy, y, y) // y += y
	require.NoError(t, e.Set(first, safe.ChildGraphNode(other)))
	require.NoError(t, e.Set(zeroed, safe.FillNode(y, 3)))
	launch(t, e, s)
	assert.EqualValues(t, 7, read(t, y))
	assert.ErrorIs(t, first.Set(safe.ChildGraphNode(other)), safe.ErrInvalidArgument)
	_, err = zeroed.ChildGraph()
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	clone, err := g.Clone()
	require.NoError(t, err)
	closing(t, clone)
	launch(t, executable(t, clone), s)
	assert.EqualValues(t, 11, read(t, y))

	require.NoError(t, g.Close())
	_, err = part.Nodes()
	assert.ErrorIs(t, err, safe.ErrClosed, "it has gone with the whole")
	_, err = nodes[0].Params()
	assert.ErrorIs(t, err, safe.ErrClosed)
}

// TestChildGraphMemory: launches of a clone of the graph inside a node do not allocate the memory of the graph around
// it, but use what that retains.
func TestChildGraphMemory(t *testing.T) {
	x := open(t, 0)
	const n = 10
	s, saxpy, y := stream(t, x), kernel(t, x, "saxpy"), buffer[float32](t, x, n)
	require.NoError(t, y.Fill(0))
	child, g := adding(t, s, saxpy, ones(t, x, n), y), newGraph(t, x)
	b, alloc, err := safe.AddAlloc[float32](g, n)
	require.NoError(t, err)
	closing(t, b)
	inner, err := addNode(t, g, safe.ChildGraphNode(child), alloc).ChildGraph()
	require.NoError(t, err)
	clone, err := inner.Clone()
	require.NoError(t, err)
	closing(t, clone)
	e := executable(t, clone)
	require.NoError(t, child.Close())
	require.NoError(t, g.Close())
	drop() // the clone has the only references to the buffers of ones
	launch(t, e, s)
	launch(t, e, s)
	assert.EqualValues(t, 2, read(t, y))
	assert.ErrorIs(t, b.CopyToHost(make([]float32, n)), safe.ErrNotAllocated)
	noViolation(t)
}

func TestGraphMemory(t *testing.T) {
	x := open(t, 0)
	const n = 1 << 10
	s, saxpy, ones, y := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, n), buffer[float32](t, x, n)
	var none uint64
	for _, peak := range []driver.CUgraphMem_attribute{driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH} {
		require.NoError(t, driver.CuDeviceSetGraphMemAttribute(x.Device().Raw(), peak, unsafe.Pointer(&none)))
	}
	g := newGraph(t, x)
	b, allocated, err := safe.AddAlloc[float32](g, n)
	require.NoError(t, err)
	assert.NotZero(t, b.Raw())
	filled := addNode(t, g, safe.FillNode(b, 5), allocated)
	added := addNode(t, g, saxpyWork(saxpy, 1, ones, b), filled)
	copied := addNode(t, g, safe.CopyNode(y, b), added)
	freed := addNode(t, g, safe.FreeNode(b), copied)
	p, err := allocated.Params()
	require.NoError(t, err)
	assert.Equal(t, b.Raw(), p.Alloc().Dptr)
	p, err = freed.Params()
	require.NoError(t, err)
	assert.Equal(t, b.Raw(), p.Free().Dptr)
	e := executable(t, g)
	for range 2 {
		launch(t, e, s)
		assert.EqualValues(t, 6, read(t, y))
	}
	used := aboutGraphs(t, x, driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
	assert.GreaterOrEqual(t, used, uint64(4*n))
	assert.GreaterOrEqual(t, aboutGraphs(t, x, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), used)
	for name, call := range map[string]func() error{
		"clone":       func() error { _, err := g.Clone(); return err },
		"destroy":     copied.Destroy,
		"edges":       func() error { return g.RemoveEdges(safe.Edge{From: copied, To: freed}) },
		"instantiate": func() error { _, err := g.Instantiate(); return err },
	} {
		assert.ErrorIs(t, call(), safe.ErrNotSupported, name)
	}
	assert.Error(t, freed.Set(safe.FreeNode(b)))
	_, _, err = safe.AddAlloc[*int](g, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	_, _, err = safe.AddAlloc[int](g, 1, safe.Node{})
	assert.ErrorIs(t, err, safe.ErrForeignNode)
	require.NoError(t, e.Close())
	require.NoError(t, g.Close())
	require.NoError(t, x.TrimGraphMemory())
	assert.Eventually(t, func() bool { _, err := b.Slice(0, 1); return err != nil }, hang, time.Millisecond, "it has gone with the graph")
}

// TestGraphMemoryLeft tests that FreeAsync, or the next launch, frees memory that a launch
// leaves allocated.
func TestGraphMemoryLeft(t *testing.T) {
	x := open(t, 0)
	const n = 100
	s, side, e := stream(t, x), stream(t, x), event(t, x)
	make1 := func() (*safe.Graph, *safe.Buffer[float32]) {
		g := newGraph(t, x)
		b, allocated, err := safe.AddAlloc[float32](g, n)
		require.NoError(t, err)
		addNode(t, g, safe.FillNode(b, 5), allocated)
		return g, b
	}
	t.Run("freed on a stream", func(t *testing.T) {
		g, b := make1()
		exec := executable(t, g)
		launch(t, exec, s)
		assert.EqualValues(t, 5, read(t, b))
		assert.ErrorIs(t, exec.Launch(s), driver.CUDA_ERROR_INVALID_VALUE, "it is still allocated")
		require.NoError(t, s.Record(e))
		require.NoError(t, side.WaitEvent(e))
		require.NoError(t, b.FreeAsync(side))
		require.NoError(t, side.Synchronize())
		launch(t, exec, s)
		require.NoError(t, b.FreeAsync(s))
		part, err := b.Slice(0, 1)
		require.NoError(t, err)
		assert.ErrorIs(t, part.FreeAsync(s), safe.ErrInvalidArgument)
		assert.ErrorIs(t, buffer[int](t, x, 1).FreeAsync(s), safe.ErrInvalidArgument)
		require.NoError(t, s.Synchronize())
	})
	t.Run("freed by the next launch", func(t *testing.T) {
		g, b := make1()
		exec, err := g.InstantiateWith(safe.InstantiateOptions{AutoFreeOnLaunch: true})
		require.NoError(t, err)
		closing(t, exec)
		for range 3 {
			launch(t, exec, s)
		}
		assert.EqualValues(t, 5, read(t, b))
		require.NoError(t, b.FreeAsync(s))
		require.NoError(t, s.Synchronize())
	})
}

// TestGraphOnRelease tests that functions run after the release of the graph and its
// executables.
func TestGraphOnRelease(t *testing.T) {
	x := open(t, 0)
	gate, s, y := newGate(t, x), stream(t, x), buffer[float32](t, x, 10)
	released := make(chan struct{})
	g, err := s.Capture(func() error { return y.FillAsync(s, 0) })
	require.NoError(t, err)
	require.NoError(t, g.OnRelease(func() { close(released) }))
	e, err := g.Instantiate()
	require.NoError(t, err)
	outer := newGraph(t, x)
	addNode(t, outer, safe.ChildGraphNode(g))
	gate.shut(t, s)
	require.NoError(t, e.Launch(s))
	require.NoError(t, g.Close())
	require.NoError(t, e.Close())
	drop()
	assert.False(t, isDone(released), "a launch is under way")
	gate.open()
	require.NoError(t, s.Synchronize())
	drop()
	assert.False(t, isDone(released), "another graph has it")
	require.NoError(t, outer.Close())
	collected(t, released)
}

// TestNodeDestroyedInTurn: a graph inside a node is destroyed when no other goroutine copies or instantiates a graph.
func TestNodeDestroyedInTurn(t *testing.T) {
	x := open(t, 0)
	g := newGraph(t, x)
	n, over := addNode(t, g, safe.ChildGraphNode(newGraph(t, x))), make(chan error, 1)
	safe.InTurn(func() {
		go func() { over <- n.Destroy() }()
		select {
		case err := <-over:
			t.Error("it is destroyed at once", err)
			over <- err
		case <-time.After(20 * time.Millisecond):
		}
	})
	require.NoError(t, <-over)
}

// TestNodeDestroyed tests that the graphs inside a node are destroyed with it.
func TestNodeDestroyed(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	child := newGraph(t, x)
	inner := addNode(t, child, safe.FillNode(y, 0))
	g := newGraph(t, x)
	n := addNode(t, g, safe.ChildGraphNode(child))
	part, err := n.ChildGraph()
	require.NoError(t, err)
	parts, err := part.Nodes()
	require.NoError(t, err)
	e := executable(t, g)
	require.NoError(t, n.Destroy())
	for name, call := range map[string]func() error{
		"node":         func() error { _, err := n.Params(); return err },
		"again":        n.Destroy,
		"child":        func() error { _, err := n.ChildGraph(); return err },
		"set":          func() error { return n.Set(safe.ChildGraphNode(child)) },
		"executable":   func() error { return e.Set(n, safe.ChildGraphNode(child)) },
		"part":         func() error { _, err := part.Nodes(); return err },
		"node of part": func() error { return parts[0].Set(safe.FillNode(y, 1)) },
	} {
		assert.ErrorIs(t, call(), safe.ErrClosed, name)
	}
	_, err = g.Add(safe.EmptyNode(), n)
	assert.ErrorIs(t, err, safe.ErrForeignNode)
	launch(t, e, s)
	require.NoError(t, inner.Destroy())
	for range 100 { // also if CUDA reuses the handle
		again := addNode(t, child, safe.EmptyNode())
		_, err := again.Params()
		require.NoError(t, err)
		require.NoError(t, again.Destroy())
	}
}

// TestGraphCapturedInto tests that a graph cannot be changed while a stream captures into it.
func TestGraphCapturedInto(t *testing.T) {
	needs(t, "cuStreamBeginCaptureToGraph")
	x := open(t, 0)
	s, side, y := stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	g, other := newGraph(t, x), newGraph(t, x)
	n := addNode(t, g, safe.FillNode(y, 0))
	e := executable(t, g)
	require.NoError(t, s.CaptureTo(g, safe.CaptureToOptions{Dependencies: []safe.Node{n}}, func() error {
		require.NoError(t, y.FillAsync(s, 1))
		for name, call := range map[string]func() error{
			"add":         func() error { _, err := g.Add(safe.EmptyNode()); return err },
			"set":         func() error { return n.Set(safe.FillNode(y, 0)) },
			"edges":       func() error { return g.AddEdges() },
			"destroy":     n.Destroy,
			"clone":       func() error { _, err := g.Clone(); return err },
			"instantiate": func() error { _, err := g.Instantiate(); return err },
			"update":      func() error { return e.Update(g) },
			"child":       func() error { _, err := other.Add(safe.ChildGraphNode(g)); return err },
			"memory":      func() error { _, _, err := safe.AddAlloc[int](g, 1); return err },
			"condition":   func() error { _, err := g.NewCondition(safe.ConditionOptions{}); return err },
			"capture": func() error {
				return side.CaptureTo(g, safe.CaptureToOptions{}, func() error { return nil })
			},
		} {
			assert.ErrorIs(t, call(), safe.ErrCapturing, name)
		}
		return y.FillAsync(s, 2)
	}))
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 3)
	launch(t, executable(t, g), s)
	assert.EqualValues(t, 2, read(t, y))
}

// TestSimUnknownNodes uses nodes of a type that only a newer driver has.
func TestSimUnknownNodes(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	g := newGraph(t, x)
	n := addNode(t, g, safe.EmptyNode())
	simulated.OddNodes(99)
	defer simulated.OddNodes(0)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	assert.EqualValues(t, 99, nodes[0].Type())
	assert.Contains(t, nodes[0].String(), "99")
	if !supports(13020) {
		_, err = nodes[0].Params()
		assert.ErrorIs(t, err, safe.ErrNotSupported)
	}
	_, err = g.Add(safe.EmptyNode(), nodes...)
	require.NoError(t, err)
	assert.ErrorIs(t, nodes[0].Set(safe.EmptyNode()), safe.ErrInvalidArgument)
	require.NoError(t, nodes[0].Destroy())
	_ = n
}
