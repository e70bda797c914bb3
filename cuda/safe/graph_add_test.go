//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Adding and setting nodes, changing executables, edges. Runs on any driver.

package safe_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newGraph(t *testing.T, x *safe.Context) *safe.Graph {
	t.Helper()
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, g)
	return g
}

func addNode(t *testing.T, g *safe.Graph, w safe.NodeParams, deps ...safe.Node) safe.Node {
	t.Helper()
	n, err := g.Add(w, deps...)
	require.NoError(t, err)
	return n
}

// chain returns a graph of kernels, each after the one before.
func chain(t *testing.T, x *safe.Context, kernels int) *safe.Graph {
	t.Helper()
	g, k := newGraph(t, x), kernel(t, x, "nothing")
	var last []safe.Node
	for range kernels {
		last = []safe.Node{addNode(t, g, safe.KernelNode(k, one), last...)}
	}
	return g
}

// saxpyWork is a node that computes y += a * x.
func saxpyWork(k *safe.Kernel, a float32, x, y *safe.Buffer[float32]) safe.NodeParams {
	return safe.KernelNode(k, perValue(y.Len()), safe.Val(uint32(y.Len())), safe.Val(a), x.Arg(), y.Arg())
}

// launch launches e and waits for it.
func launch(t *testing.T, e *safe.GraphExec, s *safe.Stream) {
	t.Helper()
	require.NoError(t, e.Launch(s))
	require.NoError(t, s.Synchronize())
}

// TestGraphAdd builds, runs and inspects a graph of nodes of the common types.
func TestGraphAdd(t *testing.T) {
	x := open(t, 0)
	const n = 100
	s, saxpy, e := stream(t, x), kernel(t, x, "saxpy"), event(t, x)
	in, out, a, b := host[float32](t, x, n), host[float32](t, x, n), buffer[float32](t, x, n), buffer[float32](t, x, n)
	copy(in.Data(), count(n))
	var calls atomic.Int32

	g := newGraph(t, x)
	copied := addNode(t, g, safe.CopyNode(a, in))
	filled := addNode(t, g, safe.FillNode(b, 2))
	added := addNode(t, g, saxpyWork(saxpy, 3, a, b), copied, filled)
	back := addNode(t, g, safe.CopyNode(out, b), added)
	called := addNode(t, g, safe.HostFuncNode(func() { calls.Add(1) }), back)
	recorded := addNode(t, g, safe.RecordNode(e), called)
	waited := addNode(t, g, safe.WaitEventNode(e), recorded)
	last := addNode(t, g, safe.EmptyNode(), waited)

	x2 := executable(t, g)
	for i := range 3 {
		launch(t, x2, s)
		assert.EqualValues(t, 2+3*(n-1), out.Data()[n-1])
		assert.EqualValues(t, i+1, calls.Load())
	}

	all := []safe.Node{copied, filled, added, back, called, recorded, waited, last}
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.ElementsMatch(t, all, nodes)
	before, err := added.Dependencies()
	require.NoError(t, err)
	assert.ElementsMatch(t, []safe.Node{copied, filled}, before)
	edges, err := g.Edges()
	require.NoError(t, err)
	assert.Len(t, edges, 7)

	params := func(n safe.Node) driver.CUgraphNodeParams {
		t.Helper()
		p, err := n.Params()
		require.NoError(t, err)
		assert.Equal(t, n.Type(), p.Type)
		return p
	}
	p := params(added)
	assert.Equal(t, saxpy.Raw(), p.Kernel().Func)
	assert.EqualValues(t, 128, p.Kernel().BlockDimX)
	p = params(copied)
	assert.EqualValues(t, 4*n, p.Memcpy().CopyParams.WidthInBytes)
	p = params(filled)
	assert.Equal(t, b.Raw(), p.Memset().Dst)
	p = params(called)
	assert.NotZero(t, p.Host().Fn)
	p = params(recorded)
	assert.Equal(t, e.Raw(), p.EventRecord().Event)
	p = params(waited)
	assert.Equal(t, e.Raw(), p.EventWait().Event)
	params(last)
}

func TestGraphAddRefuses(t *testing.T) {
	x := open(t, 0)
	const n = 10
	saxpy, y, closed := kernel(t, x, "saxpy"), buffer[float32](t, x, n), buffer[float32](t, x, n)
	require.NoError(t, closed.Close())
	e := event(t, x)
	require.NoError(t, e.Close())
	half, err := y.Slice(0, 5)
	require.NoError(t, err)
	most, err := y.Slice(1, 9)
	require.NoError(t, err)
	g, other := newGraph(t, x), newGraph(t, x)
	foreign := addNode(t, other, safe.EmptyNode())
	for _, test := range []struct {
		name string
		work safe.NodeParams
		deps []safe.Node
		is   error
	}{
		{"no work", safe.NodeParams{}, nil, safe.ErrInvalidArgument},
		{"closed buffer", safe.FillNode(closed, 1), nil, safe.ErrClosed},
		{"nil buffer", safe.FillNode((*safe.Buffer[int])(nil), 0), nil, safe.ErrClosed},
		{"closed argument", saxpyWork(saxpy, 1, closed, y), nil, safe.ErrClosed},
		{"too few arguments", safe.KernelNode(saxpy, one), nil, nil},
		{"nil kernel", safe.KernelNode(nil, one), nil, safe.ErrClosed},
		{"copy of too much", safe.CopyNode(half, y), nil, safe.ErrRange},
		{"overlap", safe.CopyNode(y, most), nil, safe.ErrOverlap},
		{"closed source", safe.CopyNode(y, closed), nil, safe.ErrClosed},
		{"no function", safe.HostFuncNode(nil), nil, safe.ErrInvalidArgument},
		{"closed event", safe.RecordNode(e), nil, safe.ErrClosed},
		{"nil event", safe.WaitEventNode(nil), nil, safe.ErrClosed},
		{"no operations", safe.MemOpsNode(x), nil, safe.ErrRange},
		{"closed context", safe.MemOpsNode(nil), nil, safe.ErrClosed},
		{"foreign node", safe.EmptyNode(), []safe.Node{foreign}, safe.ErrForeignNode},
		{"no node", safe.EmptyNode(), []safe.Node{{}}, safe.ErrForeignNode},
		{"nil graph", safe.ChildGraphNode(nil), nil, safe.ErrClosed},
		{"itself", safe.ChildGraphNode(g), nil, safe.ErrInvalidArgument},
		{"memory that is not a graph's", safe.FreeNode(y), nil, safe.ErrInvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "too few arguments" {
				needs(t, "cuFuncGetParamInfo")
				test.is = safe.ErrInvalidArgument
			}
			_, err := g.Add(test.work, test.deps...)
			require.ErrorIs(t, err, test.is)
			assert.ErrorContains(t, err, "Graph.Add")
		})
	}
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Empty(t, nodes)

	node := addNode(t, g, safe.FillNode(y, 0))
	assert.ErrorIs(t, node.Set(safe.EmptyNode()), safe.ErrInvalidArgument, "another type")
	assert.ErrorIs(t, foreign.Set(safe.EmptyNode()), safe.ErrInvalidArgument, "what cannot be changed")
	exec := executable(t, g)
	assert.ErrorIs(t, exec.Set(node, safe.EmptyNode()), safe.ErrInvalidArgument)
	assert.ErrorIs(t, exec.Set(foreign, safe.EmptyNode()), safe.ErrForeignNode)
	assert.ErrorIs(t, exec.Set(safe.Node{}, safe.EmptyNode()), safe.ErrClosed)
	assert.ErrorIs(t, exec.SetEnabled(foreign, false), safe.ErrForeignNode)
	_, err = g.Add(safe.KernelNode(saxpy, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 4096}}, safe.Val(uint32(1)), safe.Val(float32(1)), y.Arg(), y.Arg()))
	if err != nil { // CUDA may check it here or at instantiation
		assert.ErrorContains(t, err, "block")
	}
}

// TestNodeSet tests that setting a node changes the graph, but no executable of it.
func TestNodeSet(t *testing.T) {
	x := open(t, 0)
	const n = 10
	s, saxpy, ones, y := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, n), buffer[float32](t, x, n)
	large := func() safe.NodeParams { // only the node refers to its buffer
		b, err := safe.NewBuffer[float32](x, n)
		require.NoError(t, err)
		require.NoError(t, b.Fill(100))
		return saxpyWork(saxpy, 1, b, y)
	}
	g := newGraph(t, x)
	zeroed := addNode(t, g, safe.FillNode(y, 0))
	added := addNode(t, g, large(), zeroed)
	old := executable(t, g)
	require.NoError(t, added.Set(saxpyWork(saxpy, 7, ones, y)))
	require.NoError(t, zeroed.Set(safe.FillNode(y, 1)))
	drop()
	for _, test := range []struct {
		name string
		exec *safe.GraphExec
		want float32
	}{{"old", old, 100}, {"new", executable(t, g), 8}} {
		t.Run(test.name, func(t *testing.T) {
			launch(t, test.exec, s)
			got := make([]float32, n)
			require.NoError(t, y.CopyToHost(got))
			assert.Equal(t, test.want, got[n-1])
		})
	}
	require.NoError(t, old.Update(g))
	launch(t, old, s)
	got := make([]float32, n)
	require.NoError(t, y.CopyToHost(got))
	assert.EqualValues(t, 8, got[0])

	require.NoError(t, zeroed.Destroy())
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Equal(t, []safe.Node{added}, nodes)
	clone, err := g.Clone()
	require.NoError(t, err)
	closing(t, clone)
	launch(t, executable(t, clone), s)
	require.NoError(t, y.CopyToHost(got))
	assert.EqualValues(t, 15, got[0])
}

// TestExecSetOfGone: nodes of a graph that is closed or lost cannot be changed in its executable, nor disabled.
func TestExecSetOfGone(t *testing.T) {
	x := open(t, 0)
	s, b, store := stream(t, x), buffer[uint64](t, x, 1), kernel(t, x, "store")
	out := host[uint64](t, x, 1)
	for _, c := range []struct {
		name string
		ends func(g *safe.Graph) error
		want error
	}{
		{"closed", (*safe.Graph).Close, safe.ErrClosed},
		{"lost", func(g *safe.Graph) error {
			err := s.CaptureTo(g, safe.CaptureToOptions{}, func() error {
				invalidates(t, s)
				return nil
			})
			return except(err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
		}, safe.ErrGraphLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			needs(t, "cuStreamBeginCaptureToGraph")
			g := newGraph(t, x)
			stores := addNode(t, g, safe.KernelNode(store, one, b.Arg(), safe.Val(uint64(7))))
			copies := addNode(t, g, safe.CopyNode(out, b), stores)
			e := executable(t, g)
			require.NoError(t, c.ends(g))
			assert.ErrorIs(t, e.Set(stores, safe.KernelNode(store, one, b.Arg(), safe.Val(uint64(8)))), c.want)
			assert.ErrorIs(t, e.Set(copies, safe.CopyNode(b, out)), c.want)
			assert.ErrorIs(t, e.SetEnabled(stores, false), c.want)
			out.Data()[0] = 0
			launch(t, e, s)
			assert.EqualValues(t, 7, out.Data()[0], "it is as before")
		})
	}
	noViolation(t)
}

// TestLaunchUses: a launch counts as a user of all memory that it uses.
func TestLaunchUses(t *testing.T) {
	x := open(t, 0)
	gate, s := newGate(t, x), stream(t, x)
	for name, fills := range map[string]func(t *testing.T, b *safe.Buffer[int32]) *safe.GraphExec{
		"in a node that was captured and then changed": func(t *testing.T, b *safe.Buffer[int32]) *safe.GraphExec {
			before := buffer[int32](t, x, 4)
			g, err := s.Capture(func() error { return before.FillAsync(s, 5) })
			require.NoError(t, err)
			closing(t, g)
			nodes, err := g.Nodes()
			require.NoError(t, err)
			e := executable(t, g)
			launch(t, e, s)
			require.NoError(t, e.Set(nodes[0], safe.FillNode(b, 6)))
			return e
		},
		"in a node that was changed twice": func(t *testing.T, b *safe.Buffer[int32]) *safe.GraphExec {
			g, before := newGraph(t, x), buffer[int32](t, x, 4)
			n := addNode(t, g, safe.FillNode(before, 4))
			e := executable(t, g)
			require.NoError(t, e.Set(n, safe.FillNode(buffer[int32](t, x, 4), 5)))
			launch(t, e, s)
			require.NoError(t, e.Set(n, safe.FillNode(b, 6)))
			return e
		},
		"in a graph inside a node": func(t *testing.T, b *safe.Buffer[int32]) *safe.GraphExec {
			child, g := newGraph(t, x), newGraph(t, x)
			addNode(t, child, safe.FillNode(b, 6))
			addNode(t, g, safe.ChildGraphNode(child))
			return executable(t, g)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := buffer[int32](t, x, 4)
			require.NoError(t, b.Fill(1))
			e := fills(t, b)
			gate.flag.Data()[0] = 0
			assert.EqualValues(t, 6, copiedDuring(t, gate, e, s, b))
			require.NoError(t, s.Synchronize())
		})
	}
}

// TestExecSet changes an executable during a launch. The launch in progress runs with the old
// parameters, and what they use stays alive.
func TestExecSet(t *testing.T) {
	x := open(t, 0)
	const n = 10
	gate, s, saxpy, y, out := newGate(t, x), stream(t, x), kernel(t, x, "saxpy"), buffer[float32](t, x, n), host[float32](t, x, n)
	second := host[float32](t, x, n)
	gone := make(chan struct{})
	var first, other atomic.Int32
	g := newGraph(t, x)
	zeroed := addNode(t, g, safe.FillNode(y, 0))
	var added, called safe.Node
	func() {
		b, err := safe.NewBuffer[float32](x, n)
		require.NoError(t, err)
		require.NoError(t, b.Fill(100))
		added = addNode(t, g, saxpyWork(saxpy, 1, b, y), zeroed)
		require.NoError(t, b.Close())
		large := new([1 << 10]int32)
		runtime.AddCleanup(large, func(gone chan struct{}) { close(gone) }, gone)
		called = addNode(t, g, safe.HostFuncNode(func() { first.Add(1); large[0]++ }), added)
	}()
	back := addNode(t, g, safe.CopyNode(out, y), called)
	e := executable(t, g)
	require.NoError(t, called.Set(safe.HostFuncNode(func() {})), "the graph keeps the function no longer")

	gate.shut(t, s)
	require.NoError(t, e.Launch(s))
	require.NoError(t, e.Set(zeroed, safe.FillNode(y, 1)))
	require.NoError(t, e.Set(added, saxpyWork(saxpy, 2, ones(t, x, n), y)))
	require.NoError(t, e.Set(called, safe.HostFuncNode(func() { other.Add(1) })))
	require.NoError(t, e.Set(back, safe.CopyNode(second, y)))
	drop()
	assert.False(t, isDone(gone), "the launch that is under way needs it")
	gate.open()
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 100, out.Data()[0])
	assert.EqualValues(t, 1, first.Load())
	assert.Zero(t, other.Load())
	collected(t, gone)
	launch(t, e, s)
	assert.EqualValues(t, 3, second.Data()[0])
	assert.EqualValues(t, 1, first.Load())
	assert.EqualValues(t, 1, other.Load())

	same := ones(t, x, n)
	for a := range 50 { // other values, the same buffers
		require.NoError(t, e.Set(added, saxpyWork(saxpy, float32(a), same, y)))
	}
	launch(t, e, s)
	assert.EqualValues(t, 1+49, second.Data()[0])
	require.NoError(t, e.SetEnabled(added, false))
	launch(t, e, s)
	assert.EqualValues(t, 1, second.Data()[0], "filled only")
	require.NoError(t, e.SetEnabled(added, true))
	assert.Error(t, e.SetEnabled(called, false), "host functions cannot be")
	assert.ErrorIs(t, e.SetEnabled(zeroed, false), safe.ErrNotSupported, "the driver loses the order")
	require.NoError(t, e.SetEnabled(zeroed, true))

	cfg := one
	cfg.Cooperative = true
	assert.ErrorIs(t, e.Set(added, safe.KernelNode(saxpy, cfg, safe.Val(uint32(1)), safe.Val(float32(1)), y.Arg(), y.Arg())), safe.ErrInvalidArgument)
}

// TestSetKernelAgain sets a kernel node that goes on to use the same objects, until one is closed,
// and then one that uses none.
func TestSetKernelAgain(t *testing.T) {
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	for _, uses := range []int{1, 3, 20} {
		t.Run(fmt.Sprint(uses), func(t *testing.T) {
			r, gone := resource(t, x)
			with := one
			with.Uses = []safe.Arg{r.Arg()}
			for len(with.Uses) < uses {
				more, _ := resource(t, x)
				closing(t, more)
				with.Uses = append(with.Uses, more.Arg())
			}
			with.Uses = append(with.Uses, r.Arg())
			g := newGraph(t, x)
			n := addNode(t, g, safe.KernelNode(k, with))
			e := executable(t, g)
			for name, set := range map[string]func(safe.NodeParams) error{"Node": n.Set, "GraphExec": func(w safe.NodeParams) error { return e.Set(n, w) }} {
				require.NoError(t, set(safe.KernelNode(k, with)), name)
				require.NoError(t, set(safe.KernelNode(k, with)), name)
			}
			require.NoError(t, r.Close())
			assert.ErrorIs(t, n.Set(safe.KernelNode(k, with)), safe.ErrClosed)
			assert.ErrorIs(t, e.Set(n, safe.KernelNode(k, with)), safe.ErrClosed)
			require.NoError(t, n.Set(safe.KernelNode(k, one)))
			launch(t, e, stream(t, x))
			assert.False(t, isDone(gone), "the executable uses it")
			require.NoError(t, e.Set(n, safe.KernelNode(k, one)))
			soon(t, gone, "nothing uses it")
		})
	}
}

// TestKernelNodeAttributes tests that launch attributes become the node's attributes.
func TestKernelNodeAttributes(t *testing.T) {
	x := open(t, 0)
	s, saxpy, ones, y := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, 10), buffer[float32](t, x, 10)
	require.NoError(t, y.Fill(0))
	cfg := perValue(10)
	cfg.Cooperative = true
	work := safe.KernelNode(saxpy, cfg, safe.Val(uint32(10)), safe.Val(float32(2)), ones.Arg(), y.Arg())
	g := newGraph(t, x)
	n := addNode(t, g, work)
	require.NoError(t, n.Set(work))
	var v driver.CUkernelNodeAttrValue
	require.NoError(t, x.WithCurrent(func() error {
		return driver.CuGraphKernelNodeGetAttribute(n.Raw(), driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v)
	}))
	assert.EqualValues(t, 1, *v.Cooperative())
	launch(t, executable(t, g), s)
	got := make([]float32, 10)
	require.NoError(t, y.CopyToHost(got))
	assert.EqualValues(t, 2, got[9])
	least, greatest := priorities(t, x)
	require.NotEqual(t, least, greatest)
	urgent := perValue(10)
	urgent.Priority = greatest
	added := addNode(t, g, safe.KernelNode(saxpy, urgent, safe.Val(uint32(10)), safe.Val(float32(2)), ones.Arg(), y.Arg()), n)
	require.NoError(t, x.WithCurrent(func() error {
		return driver.CuGraphKernelNodeGetAttribute(added.Raw(), driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, &v)
	}))
	assert.EqualValues(t, greatest, *v.Priority())
	require.NoError(t, added.Destroy())
	wrong := driver.CUlaunchAttribute{Id: 9999}
	cfg.Attributes = []driver.CUlaunchAttribute{wrong}
	_, err := g.Add(safe.KernelNode(saxpy, cfg, safe.Val(uint32(10)), safe.Val(float32(2)), ones.Arg(), y.Arg()))
	assert.Error(t, err)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 1, "nothing is left of a node whose attributes are refused")
}

func TestGraphEdges(t *testing.T) {
	x := open(t, 0)
	s, saxpy, ones, y := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, 10), buffer[float32](t, x, 10)
	g := newGraph(t, x)
	a, b, c := addNode(t, g, safe.FillNode(y, 1)), addNode(t, g, saxpyWork(saxpy, 1, ones, y)), addNode(t, g, saxpyWork(saxpy, 2, ones, y))
	require.NoError(t, g.AddEdges())
	require.NoError(t, g.AddEdges(safe.Edge{From: a, To: b}, safe.Edge{From: b, To: c}))
	launch(t, executable(t, g), s)
	got := make([]float32, 10)
	require.NoError(t, y.CopyToHost(got))
	assert.EqualValues(t, 4, got[0])
	assert.ErrorIs(t, g.AddEdges(safe.Edge{From: a}), safe.ErrForeignNode)
	assert.ErrorIs(t, g.AddEdges(safe.Edge{From: a, To: c}, safe.Edge{From: a, To: b}), driver.CUDA_ERROR_INVALID_VALUE, "one is there already")
	require.NoError(t, g.RemoveEdges(safe.Edge{From: a, To: c}), "the one before it was added")
	require.NoError(t, g.RemoveEdges(safe.Edge{From: b, To: c}))
	edges, err := g.Edges()
	require.NoError(t, err)
	assert.Equal(t, []safe.Edge{{From: a, To: b}}, edges)

	early := driver.CUgraphEdgeData{From_port: 1, Type: uint8(driver.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)}
	err = g.AddEdges(safe.Edge{From: b, To: c, Data: early})
	if driver.Find("cuGraphAddDependencies_v2") != nil {
		require.ErrorIs(t, err, safe.ErrNotSupported)
		return
	}
	require.NoError(t, err)
	edges, err = g.Edges()
	require.NoError(t, err)
	assert.ElementsMatch(t, []safe.Edge{{From: a, To: b}, {From: b, To: c, Data: early}}, edges)
	require.NoError(t, g.RemoveEdges(safe.Edge{From: b, To: c, Data: early}))

	require.NoError(t, g.AddEdges(safe.Edge{From: b, To: a}))
	_, err = g.Instantiate()
	assert.Error(t, err, "they wait for each other")
}

// TestMemOpsNode tests nodes of memory operations.
func TestMemOpsNode(t *testing.T) {
	x := open(t, 0)
	s, h := stream(t, x), host[uint32](t, x, 4)
	g := newGraph(t, x)
	n := addNode(t, g, safe.MemOpsNode(x, safe.NewWriteOp(h.At(0), 1), safe.NewWaitOp(h.At(0), 1, driver.CU_STREAM_WAIT_VALUE_EQ), safe.NewWriteOp(h.At(1), 2)))
	p, err := n.Params()
	require.NoError(t, err)
	assert.EqualValues(t, 3, p.MemOp().Count)
	e := executable(t, g)
	launch(t, e, s)
	assert.Equal(t, []uint32{1, 2}, h.Data()[:2])
	other := safe.MemOpsNode(x, safe.NewWriteOp(h.At(0), 1), safe.NewWaitOp(h.At(0), 1, driver.CU_STREAM_WAIT_VALUE_EQ), safe.NewWriteOp(h.At(2), 3))
	require.NoError(t, e.Set(n, other))
	require.NoError(t, n.Set(other))
	launch(t, e, s)
	assert.EqualValues(t, 3, h.Data()[2])
	_, err = g.Add(safe.MemOpsNode(x, safe.NewWriteOp(h.At(9), 1)))
	assert.ErrorIs(t, err, safe.ErrRange)
}

// TestNodeParamsStay: parameters do not change with the slices that they were made of.
func TestNodeParamsStay(t *testing.T) {
	x := open(t, 0)
	word, g := host[uint32](t, x, 1), newGraph(t, x)
	ops := []safe.MemOp{safe.NewWriteOp(word.At(0), 1)}
	cfg := one
	cfg.Attributes = []driver.CUlaunchAttribute{{Id: driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE}}
	written, launched := safe.MemOpsNode(x, ops...), safe.KernelNode(kernel(t, x, "nothing"), cfg)
	ops[0] = safe.NewWriteOp(word.At(0), 2)
	cfg.Attributes[0].Id = driver.CU_LAUNCH_ATTRIBUTE_MAX
	addNode(t, g, written)
	addNode(t, g, launched)
	launch(t, executable(t, g), stream(t, x))
	assert.EqualValues(t, 1, word.Data()[0])
}
