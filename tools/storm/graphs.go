//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// graphy are the errors allowed for graphs that other goroutines change.
var graphy = []error{
	safe.ErrForeignNode, safe.ErrGraphLost, safe.ErrConditional, safe.ErrInvalidArgument, safe.ErrContextMismatch, safe.ErrRange, safe.ErrOverlap,
	driver.CUDA_ERROR_INVALID_VALUE, driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, driver.CUDA_ERROR_NOT_SUPPORTED,
}

func init() {
	add("graph", []kind{
		{name: "graph.new", weight: 6, run: buildShared, allow: graphy},
		{name: "graph.add", weight: 10, run: func(t *task) error { return addNode(t, t.graphs.get(t.rng)) }, allow: graphy},
		{name: "graph.addall", weight: 5, run: addAllShared, allow: graphy},
		{name: "graph.setall", weight: 4, run: func(t *task) error { return t.graphs.get(t.rng).SetAll(changes(t)...) }, allow: graphy},
		{name: "graph.child", weight: 3, run: childShared, allow: graphy},
		{name: "graph.edges", weight: 4, run: edges, allow: graphy},
		{name: "graph.ask", weight: 6, run: askGraph, allow: graphy},
		{name: "graph.nodes", weight: 4, run: askNodes, allow: graphy},
		{name: "graph.set", weight: 5, run: setNode, allow: graphy},
		{name: "graph.destroy", weight: 3, run: destroyNode, allow: graphy},
		{name: "graph.clone", weight: 3, run: func(t *task) error {
			g, err := t.graphs.get(t.rng).Clone()
			return put(t, &t.graphs, g, err)
		}, allow: graphy},
		{name: "graph.release", weight: 2, run: func(t *task) error { return t.graphs.get(t.rng).OnRelease(func() {}) }},
		{name: "graph.close", weight: 2, run: func(t *task) error { return t.graphs.get(t.rng).Close() }},
		{name: "graph.trim", weight: 1, run: graphMemory},
	})
	add("exec", []kind{
		{name: "exec.new", weight: 6, run: func(t *task) error {
			e, err := t.graphs.get(t.rng).InstantiateWith(instantiate[t.n(len(instantiate))])
			return put(t, &t.execs, e, err)
		}, allow: graphy},
		{name: "exec.launch", weight: 14, run: func(t *task) error { return t.execs.get(t.rng).Launch(t.stream()) }, allow: contexts},
		{name: "exec.launches", weight: 3, run: func(t *task) error {
			e, s := t.execs.get(t.rng), t.stream()
			for range 20 {
				if err := e.Launch(s); err != nil {
					return err
				}
			}
			return nil
		}, allow: contexts},
		{name: "exec.upload", weight: 2, run: func(t *task) error { return t.execs.get(t.rng).Upload(t.stream()) }, allow: contexts},
		{name: "exec.update", weight: 5, run: func(t *task) error { return t.execs.get(t.rng).Update(t.graphs.get(t.rng)) }, allow: graphy},
		{name: "exec.set", weight: 4, run: setExec, allow: graphy},
		{name: "exec.setall", weight: 4, run: func(t *task) error { return t.execs.get(t.rng).SetAll(changes(t)...) }, allow: graphy},
		{name: "exec.enable", weight: 3, run: enableShared, allow: graphy},
		{name: "exec.loop", weight: 2, run: loopShared, allow: graphy},
		{name: "exec.launchloop", weight: 4, run: func(t *task) error { return t.loops.get(t.rng).Launch(t.stream()) }, allow: contexts},
		{name: "exec.close", weight: 3, run: func(t *task) error { return t.execs.get(t.rng).Close() }},
	})
}

var instantiate = []safe.InstantiateOptions{{}, {UseNodePriority: true}, {AutoFreeOnLaunch: true}}

func buildShared(t *task) error {
	g, err := safe.NewGraph(t.device().x)
	if err != nil {
		return err
	}
	for range t.n(5) {
		if err := addNode(t, g); !explained(err, graphy) {
			return err
		}
	}
	return put(t, &t.graphs, g, nil)
}

// work returns parameters of a random node that cannot fault, whatever memory it uses.
func (t *task) work() safe.NodeParams {
	a, b, d := t.buffers.get(t.rng), t.buffers.get(t.rng), t.device()
	switch t.n(9) {
	case 0:
		return safe.EmptyNode()
	case 1:
		return safe.HostFuncNode(func() {})
	case 2:
		return safe.CopyNode[float32](a, b)
	case 3:
		return safe.CopyNode[float32](a, t.hosts.get(t.rng))
	case 4:
		return safe.FillNode(a, 0)
	case 5:
		return safe.RecordNode(t.events.get(t.rng))
	case 6:
		return safe.WaitEventNode(t.events.get(t.rng))
	case 7:
		return safe.MemOpsNode(d.x, safe.NewWriteOp(t.words.get(t.rng).At(0), uint32(1)))
	}
	return safe.KernelNode(d.fill, perValue(size), safe.Val(uint32(a.Len())), safe.Val(float32(1)), a.Arg())
}

// addNode adds a node that depends on some of the present nodes.
func addNode(t *task, g *safe.Graph) error {
	nodes, err := g.Nodes()
	if err != nil {
		return err
	}
	var deps []safe.Node
	if len(nodes) > 0 && t.yes(70) {
		deps = append(deps, nodes[t.n(len(nodes))])
	}
	_, err = g.Add(t.work(), deps...)
	return err
}

// addAllShared adds several nodes, which depend on each other and on one of the present nodes.
func addAllShared(t *task) error {
	g := t.graphs.get(t.rng)
	present, err := g.Nodes()
	if err != nil {
		return err
	}
	specs := make([]safe.NodeSpec, 1+t.n(6))
	for i := range specs {
		specs[i].Params = t.work()
		if len(present) > 0 && t.yes(30) {
			specs[i].Deps = []safe.Node{present[t.n(len(present))]}
		}
		if i > 0 && t.yes(60) {
			specs[i].After = []int{t.n(i)}
		}
	}
	_, err = g.AddAll(specs...)
	return err
}

// changes returns new parameters for nodes of a shared graph, and sometimes of others.
func changes(t *task) []safe.NodeChange {
	nodes, _ := t.graphs.get(t.rng).Nodes()
	var all []safe.NodeChange
	for _, n := range nodes {
		if other, err := t.node(); err == nil && t.yes(5) {
			n = other
		}
		w := t.work()
		if n.Type() == driver.CU_GRAPH_NODE_TYPE_KERNEL && t.yes(90) {
			a := t.buffers.get(t.rng)
			w = safe.KernelNode(t.device().fill, perValue(size), safe.Val(uint32(a.Len())), safe.Val(float32(2)), a.Arg())
		}
		all = append(all, safe.NodeChange{Node: n, Params: w})
	}
	return all
}

func childShared(t *task) error {
	n, err := t.graphs.get(t.rng).Add(safe.ChildGraphNode(t.graphs.get(t.rng)))
	if err != nil {
		return err
	}
	inner, err := n.ChildGraph()
	if err != nil {
		return err
	}
	_, err = inner.Nodes()
	return err
}

func edges(t *task) error {
	g := t.graphs.get(t.rng)
	all, err := g.Edges()
	if err != nil {
		return err
	}
	nodes, err := g.Nodes()
	if err != nil || len(nodes) < 2 {
		return err
	}
	if len(all) > 0 && t.yes(50) {
		return g.RemoveEdges(all[t.n(len(all))])
	}
	i := t.n(len(nodes) - 1) // forward, so that there is no circle
	return g.AddEdges(safe.Edge{From: nodes[i], To: nodes[i+1+t.n(len(nodes)-i-1)]})
}

func askGraph(t *task) error {
	g := t.graphs.get(t.rng)
	var err error
	switch t.n(2) {
	case 0:
		_, err = g.Edges()
	default:
		_, err = g.DOT(0)
	}
	return err
}

// node returns a node of a shared graph.
func (t *task) node() (safe.Node, error) {
	nodes, err := t.graphs.get(t.rng).Nodes()
	if err != nil || len(nodes) == 0 {
		return safe.Node{}, errors.Join(err, safe.ErrClosed)
	}
	return nodes[t.n(len(nodes))], nil
}

func askNodes(t *task) error {
	n, err := t.node()
	if err != nil {
		return err
	}
	switch t.n(2) {
	case 0:
		_, err = n.Dependencies()
	default:
		_, err = n.Params()
	}
	return err
}

func setNode(t *task) error {
	n, err := t.node()
	if err != nil {
		return err
	}
	return n.Set(t.work())
}

func destroyNode(t *task) error {
	n, err := t.node()
	if err != nil {
		return err
	}
	return n.Destroy()
}

func graphMemory(t *task) error {
	return t.device().x.TrimGraphMemory()
}

func setExec(t *task) error {
	n, err := t.node()
	if err != nil {
		return err
	}
	return t.execs.get(t.rng).Set(n, t.work())
}

func enableShared(t *task) error {
	n, err := t.node()
	if err != nil {
		return err
	}
	return t.execs.get(t.rng).SetEnabled(n, t.yes(50))
}

// loopShared instantiates a graph with a loop that a counter ends.
func loopShared(t *task) error {
	d := t.device()
	if d.condition == nil {
		return nil
	}
	o := &own{task: t, dev: d}
	for i := range o.buffers {
		o.buffers[i] = &values{buffer: t.buffers.get(t.rng)}
	}
	g, err := safe.NewGraph(d.x)
	if err != nil {
		return err
	}
	to := &values{buffer: o.buffers[0].buffer}
	if _, err := o.loop(g, []act{{what: "zero", to: to, hi: min(8, to.buffer.Len())}}); err != nil {
		return errors.Join(err, g.Close())
	}
	e, err := g.Instantiate()
	return errors.Join(put(t, &t.loops, e, err), g.Close())
}
