//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Adding and changing many nodes. Runs on any driver; tests named Sim need the simulated one.

package safe_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	within["Graph.AddAll"] = []string{"NewGraph", "Node.Destroy"}
	within["Graph.SetAll"] = []string{"Graph.Nodes"}
	within["GraphExec.SetAll"] = []string{"Graph.Nodes"}
	operations = append(operations,
		operation{"Graph.AddAll", func(w *world) error {
			g, err := safe.NewGraph(w.x)
			if _, err = also(w, g, err); err != nil {
				return err
			}
			_, err = g.AddAll(safe.NodeSpec{Params: w.storing()}, safe.NodeSpec{Params: w.storing(), After: []int{0}},
				safe.NodeSpec{Params: safe.FillNode(w.a, 0), After: []int{1}}, safe.NodeSpec{Params: w.storing(), After: []int{0, 2}})
			return err
		}},
		onNode("Graph.SetAll", func(w *world, n safe.Node) error { return w.g.SetAll(safe.NodeChange{Node: n, Params: w.storing()}) }),
		onNode("GraphExec.SetAll", func(w *world, n safe.Node) error {
			return w.exec.SetAll(safe.NodeChange{Node: n, Params: w.storing()})
		}),
	)
}

// TestGraphAddAll builds a graph of several kinds of nodes, changes them in the graph and in
// an executable, and launches it.
func TestGraphAddAll(t *testing.T) {
	const n, kernels = 50, 40
	x := open(t, 0)
	s, k := stream(t, x), kernel(t, x, "saxpy")
	u, v, out := buffer[float32](t, x, n), buffer[float32](t, x, n), host[float32](t, x, n)
	g := newGraph(t, x)
	first := addNode(t, g, safe.FillNode(u, 1))
	specs := []safe.NodeSpec{{Params: safe.FillNode(v, 0)}}
	for i := range kernels {
		spec := safe.NodeSpec{Params: saxpyWork(k, 1, u, v), After: []int{i}}
		if i == 0 {
			spec.Deps = []safe.Node{first}
		}
		specs = append(specs, spec)
	}
	specs = append(specs, safe.NodeSpec{Params: safe.EmptyNode(), After: []int{kernels}}, safe.NodeSpec{Params: saxpyWork(k, 2, u, v), After: []int{kernels + 1}},
		safe.NodeSpec{Params: safe.CopyNode(out, v), After: []int{kernels + 2, 3}})
	nodes, err := g.AddAll(specs...)
	require.NoError(t, err)
	require.Len(t, nodes, len(specs))
	edges, err := g.Edges()
	require.NoError(t, err)
	assert.Len(t, edges, len(specs)+1)
	for i, node := range nodes[1:] {
		deps, err := node.Dependencies()
		require.NoError(t, err)
		assert.Contains(t, deps, nodes[i], "node %d", i+1)
	}
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	launch(t, exec, s)
	assert.EqualValues(t, kernels+2, out.Data()[n-1])

	var changes []safe.NodeChange
	for _, node := range nodes[1 : kernels+1] {
		changes = append(changes, safe.NodeChange{Node: node, Params: saxpyWork(k, 2, u, v)})
	}
	changes = append(changes, safe.NodeChange{Node: first, Params: safe.FillNode(u, 3)})
	require.NoError(t, exec.SetAll(changes...))
	launch(t, exec, s)
	assert.EqualValues(t, 3*(2*kernels+2), out.Data()[n-1])
	require.NoError(t, g.SetAll(changes[:kernels]...))
	require.NoError(t, exec.Update(g))
	launch(t, exec, s)
	assert.EqualValues(t, 2*kernels+2, out.Data()[n-1], "the graph still fills with 1")
	none, err := g.AddAll()
	require.NoError(t, err)
	assert.Empty(t, none)
	require.NoError(t, errors.Join(g.SetAll(), exec.SetAll()))
}

// TestGraphAddAllEach: each node has its own dependencies and configuration.
func TestGraphAddAllEach(t *testing.T) {
	const n = 150
	x := open(t, 0)
	g, k, m := newGraph(t, x), kernel(t, x, "store"), buffer[int32](t, x, 8)
	first := addNode(t, g, safe.EmptyNode())
	config := func(i int) safe.LaunchConfig {
		n := uint32(i)
		return safe.LaunchConfig{Grid: safe.Dim{X: n + 1, Y: n%7 + 1, Z: n%5 + 1}, Block: safe.Dim{X: n%11 + 1, Y: n%3 + 1, Z: n%4 + 1}, SharedBytes: 4 * n}
	}
	params := func(i int) safe.NodeParams { return safe.KernelNode(k, config(i), m.Arg(), safe.Val(uint64(i))) }
	specs := make([]safe.NodeSpec, n)
	for i := range specs {
		spec := &specs[i]
		spec.Params = params(i)
		switch {
		case i%20 == 9: // more than are added at once
			for before := range i {
				spec.After = append(spec.After, before)
			}
		case i > 6:
			spec.After = []int{i - 3, i / 2, i - 1}[:i%4]
		}
		if i%3 == 0 {
			spec.Deps = []safe.Node{first}
		}
	}
	nodes, err := g.AddAll(specs...)
	require.NoError(t, err)
	check := func(i int, want safe.LaunchConfig) {
		t.Helper()
		p, err := nodes[i].Params()
		require.NoError(t, err)
		got := p.Kernel()
		assert.Equal(t, want.Grid, safe.Dim{X: got.GridDimX, Y: got.GridDimY, Z: got.GridDimZ}, "node %d", i)
		assert.Equal(t, want.Block, safe.Dim{X: got.BlockDimX, Y: got.BlockDimY, Z: got.BlockDimZ}, "node %d", i)
		assert.Equal(t, want.SharedBytes, got.SharedMemBytes, "node %d", i)
	}
	for i, node := range nodes {
		check(i, config(i))
		want := map[driver.CUgraphNode]bool{}
		for _, d := range specs[i].Deps {
			want[d.Raw()] = true
		}
		for _, before := range specs[i].After {
			want[nodes[before].Raw()] = true
		}
		deps, err := node.Dependencies()
		require.NoError(t, err)
		got := map[driver.CUgraphNode]bool{}
		for _, d := range deps {
			got[d.Raw()] = true
		}
		assert.Equal(t, want, got, "node %d", i)
	}
	changes := make([]safe.NodeChange, n)
	for i := range changes {
		changes[i] = safe.NodeChange{Node: nodes[i], Params: params(n - i)}
	}
	require.NoError(t, g.SetAll(changes...))
	for i := range nodes {
		check(i, config(n-i))
	}
}

// TestGraphAddAllRefused tests that AddAll adds all nodes or none.
func TestGraphAddAllRefused(t *testing.T) {
	x := open(t, 0)
	g, other := newGraph(t, x), newGraph(t, x)
	k, m, gone := kernel(t, x, "store"), buffer[int32](t, x, 8), buffer[int32](t, x, 8)
	require.NoError(t, gone.Close())
	store := func(b *safe.Buffer[int32]) safe.NodeParams {
		return safe.KernelNode(k, one, b.Arg(), safe.Val(uint64(1)))
	}
	foreign := addNode(t, other, safe.EmptyNode())
	good := []safe.NodeSpec{{Params: store(m)}, {Params: store(m), After: []int{0}}, {Params: safe.FillNode(m, 0)}, {Params: store(m), After: []int{2}}}
	for _, c := range []struct {
		name string
		bad  safe.NodeSpec
		want error
	}{
		{"no parameters", safe.NodeSpec{}, safe.ErrInvalidArgument},
		{"a closed argument", safe.NodeSpec{Params: store(gone)}, safe.ErrClosed},
		{"a nil kernel", safe.NodeSpec{Params: safe.KernelNode(nil, one)}, safe.ErrClosed},
		{"a Go pointer", safe.NodeSpec{Params: safe.KernelNode(k, one, safe.Val(new(int)), safe.Val(uint64(1)))}, safe.ErrInvalidArgument},
		{"itself", safe.NodeSpec{Params: store(m), After: []int{4}}, safe.ErrRange},
		{"a later node", safe.NodeSpec{Params: store(m), After: []int{5}}, safe.ErrRange},
		{"negative", safe.NodeSpec{Params: store(m), After: []int{-1}}, safe.ErrRange},
		{"negative, of another kind", safe.NodeSpec{Params: safe.EmptyNode(), After: []int{-1}}, safe.ErrRange},
		{"a foreign node", safe.NodeSpec{Params: store(m), Deps: []safe.Node{foreign}}, safe.ErrForeignNode},
		{"no block", safe.NodeSpec{Params: safe.KernelNode(k, safe.LaunchConfig{Grid: safe.Dim{X: 1}}, m.Arg(), safe.Val(uint64(1)))}, driver.CUDA_ERROR_INVALID_VALUE},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := g.AddAll(append(append(good[:4:4], c.bad), good...)...)
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, "Graph.AddAll: ")
			assert.ErrorContains(t, err, ": node 4")
			nodes, err := g.Nodes()
			require.NoError(t, err)
			assert.Empty(t, nodes)
		})
	}
	_, err := (*safe.Graph)(nil).AddAll(good...)
	assert.ErrorIs(t, err, safe.ErrClosed)
	nodes, err := g.AddAll(good...)
	require.NoError(t, err)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	for name, set := range map[string]func(...safe.NodeChange) error{"Graph.SetAll": g.SetAll, "GraphExec.SetAll": exec.SetAll} {
		ok := safe.NodeChange{Node: nodes[0], Params: store(m)}
		for _, c := range []struct {
			name string
			bad  safe.NodeChange
			want error
		}{
			{"a foreign node", safe.NodeChange{Node: foreign, Params: store(m)}, safe.ErrForeignNode},
			{"the zero node", safe.NodeChange{Params: safe.EmptyNode()}, nil},
			{"another type", safe.NodeChange{Node: nodes[2], Params: store(m)}, safe.ErrInvalidArgument},
			{"a closed argument", safe.NodeChange{Node: nodes[1], Params: store(gone)}, safe.ErrClosed},
		} {
			t.Run(name+": "+c.name, func(t *testing.T) {
				err := set(ok, ok, c.bad, ok)
				require.Error(t, err)
				if c.want != nil {
					assert.ErrorIs(t, err, c.want)
				}
				assert.ErrorContains(t, err, ": change 2")
			})
		}
	}
}

// TestGraphAddAllInCapture: the graph cannot be changed while a stream captures into it.
func TestGraphAddAllInCapture(t *testing.T) {
	x := open(t, 0)
	s, g, k := stream(t, x), newGraph(t, x), kernel(t, x, "nothing")
	err := s.CaptureTo(g, safe.CaptureToOptions{}, func() error {
		_, err := g.AddAll(safe.NodeSpec{Params: safe.KernelNode(k, one)})
		assert.ErrorIs(t, err, safe.ErrCapturing)
		return nil
	})
	if errors.Is(err, safe.ErrNotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
}

// TestSimGraphAddAllRetains tests that memory stays as long as one node of the graph or of an
// executable needs it.
func TestSimGraphAddAllRetains(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, g, k := stream(t, x), newGraph(t, x), kernel(t, x, "store")
	a, b := buffer[uint64](t, x, 4), buffer[uint64](t, x, 4)
	store := func(m *safe.Buffer[uint64]) safe.NodeParams {
		return safe.KernelNode(k, one, m.Arg(), safe.Val(uint64(5)))
	}
	nodes, err := g.AddAll(safe.NodeSpec{Params: store(a)}, safe.NodeSpec{Params: store(a)}, safe.NodeSpec{Params: store(a)})
	require.NoError(t, err)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	live := simulated.Live("async")
	require.NoError(t, a.Close())
	settle(t)
	require.Equal(t, live, simulated.Live("async"), "all nodes use it")
	require.NoError(t, g.SetAll(safe.NodeChange{Node: nodes[0], Params: store(b)}, safe.NodeChange{Node: nodes[1], Params: store(b)}))
	require.NoError(t, nodes[2].Set(store(b)))
	settle(t)
	require.Equal(t, live, simulated.Live("async"), "the executable uses it")
	launch(t, exec, s)
	require.NoError(t, exec.SetAll(safe.NodeChange{Node: nodes[0], Params: store(b)}, safe.NodeChange{Node: nodes[1], Params: store(b)}))
	settle(t)
	require.Equal(t, live, simulated.Live("async"), "one node uses it")
	require.NoError(t, exec.Set(nodes[2], store(b)))
	assert.Eventually(t, func() bool { return simulated.Live("async") == live-1 }, atOnce, time.Millisecond, "no node uses it")
	launch(t, exec, s)
}

// TestSimSetAllKeepsUsed: memory that a launch in progress uses stays, also if only one of the changed nodes used it.
func TestSimSetAllKeepsUsed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	gate, s, k := newGate(t, x), stream(t, x), kernel(t, x, "store")
	a, b := buffer[uint64](t, x, 4), buffer[uint64](t, x, 4)
	store := func(m *safe.Buffer[uint64]) safe.NodeParams {
		return safe.KernelNode(k, one, m.Arg(), safe.Val(uint64(5)))
	}
	g := newGraph(t, x)
	first, second := addNode(t, g, store(a)), addNode(t, g, store(b))
	e := executable(t, g)
	require.NoError(t, second.Set(store(a)), "the graph does not use b")
	gate.shut(t, s)
	live := simulated.Live("async")
	require.NoError(t, errors.Join(
		e.Launch(s),
		e.SetAll(safe.NodeChange{Node: first, Params: store(a)}, safe.NodeChange{Node: second, Params: store(a)}),
		b.Close(),
	))
	time.Sleep(20 * time.Millisecond)
	assert.Equal(t, live, simulated.Live("async"))
	gate.open()
	require.NoError(t, s.Synchronize())
	assert.Eventually(t, func() bool { return simulated.Live("async") < live }, atOnce, time.Millisecond)
	noViolation(t)
}

// TestSimGraphAddAllFails has each call fail: no node stays.
func TestSimGraphAddAllFails(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	g, k, m := newGraph(t, x), kernel(t, x, "store"), buffer[uint64](t, x, 4)
	var specs []safe.NodeSpec
	for range 20 {
		specs = append(specs, safe.NodeSpec{Params: safe.KernelNode(k, one, m.Arg(), safe.Val(uint64(5)))})
	}
	for _, fails := range []int{1, 2, 20} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			simulated.Fail("cuGraphAddKernelNode_v2", fails, uint32(driver.CUDA_ERROR_UNKNOWN))
			_, err := g.AddAll(specs...)
			simulated.Reset()
			if errors.Is(err, nil) {
				t.Skip("an older driver adds nodes by another function")
			}
			assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
			assert.ErrorContains(t, err, fmt.Sprintf("node %d: kernel store", fails-1))
			nodes, err := g.Nodes()
			require.NoError(t, err)
			assert.Empty(t, nodes)
		})
	}
}

// TestSetAllRetains tests that a change which fails retains nothing.
func TestSetAllRetains(t *testing.T) {
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	for name, set := range map[string]func(g *safe.Graph, e *safe.GraphExec, changes ...safe.NodeChange) error{
		"Graph":     func(g *safe.Graph, e *safe.GraphExec, changes ...safe.NodeChange) error { return g.SetAll(changes...) },
		"GraphExec": func(g *safe.Graph, e *safe.GraphExec, changes ...safe.NodeChange) error { return e.SetAll(changes...) },
	} {
		t.Run(name, func(t *testing.T) {
			g, other := newGraph(t, x), newGraph(t, x)
			n, err := g.Add(safe.KernelNode(k, one))
			require.NoError(t, err)
			foreign, err := other.Add(safe.KernelNode(k, one))
			require.NoError(t, err)
			e := executable(t, g)
			r, gone := resource(t, x)
			with := one
			with.Uses = []safe.Arg{r.Arg()}
			err = set(g, e, safe.NodeChange{Node: n, Params: safe.KernelNode(k, one)}, safe.NodeChange{Node: foreign, Params: safe.KernelNode(k, with)})
			require.ErrorIs(t, err, safe.ErrForeignNode)
			require.NoError(t, r.Close())
			soon(t, gone, "the graph retains what no node of it uses")
		})
	}
}

// TestCloseBesideMany: a graph that is closed while a call adds or changes many nodes is destroyed after
// the whole call.
func TestCloseBesideMany(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	b := buffer[uint32](t, x, 4)
	fill := func(v uint32) safe.NodeParams { return safe.FillNode(b, v) }
	for _, c := range []struct {
		name, function string
		call           func(g *safe.Graph, n []safe.Node) error
	}{
		{"AddAll", "cuGraphAddMemsetNode", func(g *safe.Graph, _ []safe.Node) error {
			nodes, err := g.AddAll(safe.NodeSpec{Params: fill(1)}, safe.NodeSpec{Params: fill(2)}, safe.NodeSpec{Params: fill(3)})
			assert.Len(t, nodes, 3)
			return err
		}},
		{"SetAll", "cuGraphMemsetNodeSetParams", func(g *safe.Graph, n []safe.Node) error {
			return g.SetAll(safe.NodeChange{Node: n[0], Params: fill(3)}, safe.NodeChange{Node: n[1], Params: fill(4)})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := safe.NewGraph(x)
			require.NoError(t, err)
			nodes := []safe.Node{addNode(t, g, fill(1)), addNode(t, g, fill(2))}
			defer simulated.Reset()
			simulated.Delay(c.function, hang)
			done := inDriver(t, func() error { return c.call(g, nodes) })
			require.NoError(t, g.Close())
			simulated.Reset() // ends the delay
			require.NoError(t, <-done)
			settle(t)
			noViolation(t)
		})
	}
}
