//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// chain is a graph whose nodes run the acts one after another.
func (o *own) chain(acts []act) (*ownGraph, error) {
	graph, err := safe.NewGraph(o.dev.x)
	if err != nil {
		return nil, err
	}
	g := &ownGraph{graph: graph, acts: acts}
	if g.nodes, err = o.addChain(graph, acts); err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return g, nil
}

// addChain adds a chain of nodes to a graph, after given nodes.
func (o *own) addChain(g *safe.Graph, acts []act, deps ...safe.Node) (nodes []safe.Node, err error) {
	if o.yes(50) {
		return o.addAll(g, acts, deps)
	}
	for _, a := range acts {
		w, err := a.work(o)
		if err != nil {
			return nil, err
		}
		n, err := g.Add(w, deps...)
		if err != nil {
			return nil, err
		}
		deps, nodes = []safe.Node{n}, append(nodes, n)
	}
	return nodes, nil
}

// addAll is addChain by one call.
func (o *own) addAll(g *safe.Graph, acts []act, deps []safe.Node) ([]safe.Node, error) {
	specs := make([]safe.NodeSpec, len(acts))
	for i, a := range acts {
		w, err := a.work(o)
		if err != nil {
			return nil, err
		}
		specs[i] = safe.NodeSpec{Params: w, Deps: deps}
		if i > 0 {
			specs[i] = safe.NodeSpec{Params: w, After: []int{i - 1}}
		}
	}
	return g.AddAll(specs...)
}

// build creates a graph node by node.
func (o *own) build() error {
	g, err := o.chain(o.acts(6))
	if err != nil {
		return o.strict(err)
	}
	return o.adopt(g)
}

// withNodes returns an executable whose nodes are known, or nil if there is none.
func (o *own) withNodes() *ownGraph {
	for _, g := range o.graphs {
		if len(g.nodes) > 0 && len(g.nodes) == len(g.acts) {
			return g
		}
	}
	return nil
}

// set sets a node in an executable to other work of the same type.
func (o *own) set() error {
	g := o.withNodes()
	if g == nil {
		return nil
	}
	i := o.n(len(g.nodes))
	a := o.act()
	old := g.acts[i]
	a.what = old.what
	if a.what != "kernel" && a.what != "add" && a.what != "saxpy" { // sizes and kinds of copies have to stay
		a = old
		a.v = float32(o.n(100))
	}
	if a.what == "saxpy" {
		a.v = 1
	}
	w, err := a.work(o)
	if errors.Is(err, safe.ErrClosed) {
		return nil // its buffers were replaced
	}
	if err == nil {
		err = o.setNode(g, i, w)
	}
	if errors.Is(err, safe.ErrClosed) {
		return nil
	}
	if err != nil {
		return o.strict(err)
	}
	g.acts = append([]act(nil), g.acts...)
	g.acts[i] = a
	return nil
}

// setNode sets a node in an executable.
func (o *own) setNode(g *ownGraph, i int, w safe.NodeParams) error {
	if o.yes(50) {
		return g.exec.Set(g.nodes[i], w)
	}
	return g.exec.SetAll(safe.NodeChange{Node: g.nodes[i], Params: w}, safe.NodeChange{Node: g.nodes[i], Params: w})
}

// enable enables or disables a node.
func (o *own) enable() error {
	g := o.withNodes()
	if g == nil {
		return nil
	}
	i := o.n(len(g.nodes))
	switch g.acts[i].what {
	case "host", "fill", "zero", "fillhost":
		return nil // CUDA cannot, and package safe refuses
	}
	if g.off == nil {
		g.off = make([]bool, len(g.acts))
	}
	off := o.yes(50)
	if err := g.exec.SetEnabled(g.nodes[i], !off); err != nil {
		return o.strict(err)
	}
	g.off[i] = off
	var on uint32
	err := g.exec.Context().WithCurrent(func() error {
		return driver.CuGraphNodeGetEnabled(g.exec.Raw(), g.nodes[i].Raw(), &on)
	})
	if err == nil && (on != 0) == off {
		return failf(mismatch, "the node's state is %d", on)
	}
	return o.strict(err)
}

// update updates an executable with a new graph that has other values.
func (o *own) update() error {
	g := o.withNodes()
	if g == nil || g.off != nil {
		return nil
	}
	acts := append([]act(nil), g.acts...)
	for i := range acts {
		if acts[i].what != "saxpy" {
			acts[i].v = float32(o.n(100))
		}
	}
	fresh, err := o.chain(acts)
	if errors.Is(err, safe.ErrClosed) {
		return nil // its buffers were replaced
	}
	if err != nil {
		return o.strict(err)
	}
	if err := g.exec.Update(fresh.graph); err != nil {
		return o.strict(errors.Join(err, fresh.graph.Close()))
	}
	err = g.graph.Close()
	g.graph, g.nodes, g.acts = fresh.graph, nil, acts
	return o.strict(err)
}

// child creates a graph with a child graph, and a clone of that graph.
func (o *own) child() error {
	inner, err := o.chain(o.acts(3))
	if err != nil {
		return o.strict(err)
	}
	outer, err := o.chain(o.acts(2))
	if err != nil {
		return o.strict(errors.Join(err, inner.close()))
	}
	_, err = outer.graph.Add(safe.ChildGraphNode(inner.graph), outer.nodes[len(outer.nodes)-1])
	if err = errors.Join(err, inner.close()); err != nil {
		return o.strict(errors.Join(err, outer.close()))
	}
	outer.acts, outer.nodes = append(outer.acts, inner.acts...), nil
	if o.yes(50) {
		clone, err := outer.graph.Clone()
		if err = errors.Join(err, outer.graph.Close()); err != nil {
			return o.strict(err)
		}
		outer.graph = clone
	}
	return o.adopt(outer)
}

// conditional creates a graph whose body runs once, or as often as a counter says.
func (o *own) conditional(loop bool) error {
	if o.dev.condition == nil {
		return nil
	}
	g, err := safe.NewGraph(o.dev.x)
	if err != nil {
		return o.strict(err)
	}
	times, body := 1, o.deviceActs(3)
	if loop {
		times, err = o.loop(g, body)
	} else {
		times, err = o.branch(g, body)
	}
	if err != nil {
		return o.strict(errors.Join(err, g.Close()))
	}
	all := []act{}
	for range times {
		all = append(all, body...)
	}
	return o.adopt(&ownGraph{graph: g, acts: all})
}

func (o *own) branch(g *safe.Graph, body []act) (times int, err error) {
	times = o.n(2)
	c, err := g.NewCondition(safe.ConditionOptions{Assign: true, Default: uint32(times)})
	if err != nil {
		return 0, err
	}
	_, then, err := g.AddIf(c)
	if err != nil {
		return 0, err
	}
	_, err = o.addChain(then, body)
	return times, err
}

// loop adds a body that runs once more than the counter says.
func (o *own) loop(g *safe.Graph, body []act) (times int, err error) {
	counter, err := safe.NewBuffer[uint32](o.dev.x, 1)
	if err != nil {
		return 0, err
	}
	defer counter.Close() // the graph keeps it
	times = o.n(4)
	first, err := g.Add(safe.FillNode(counter, uint32(times)))
	if err != nil {
		return 0, err
	}
	c, err := g.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
	if err != nil {
		return 0, err
	}
	_, inside, err := g.AddWhile(c, first)
	if err != nil {
		return 0, err
	}
	nodes, err := o.addChain(inside, body)
	if err != nil {
		return 0, err
	}
	_, err = inside.Add(safe.KernelNode(o.dev.condition, one, c.Arg(), counter.Arg()), nodes[len(nodes)-1])
	return times + 1, err
}

// graphMemory creates a graph that computes in memory that it allocates.
func (o *own) graphMemory() error {
	g, err := safe.NewGraph(o.dev.x)
	if err != nil {
		return o.strict(err)
	}
	a := act{what: "fill", to: o.buffers[o.n(len(o.buffers))], hi: length, v: float32(o.n(100))}
	room, n, err := safe.AddAlloc[float32](g, length)
	if err == nil {
		n, err = g.Add(safe.FillNode(room, a.v), n)
	}
	if err == nil {
		n, err = g.Add(safe.CopyNode[float32](a.to.buffer, room), n)
	}
	if err == nil {
		_, err = g.Add(safe.FreeNode(room), n)
	}
	if err != nil {
		return o.strict(errors.Join(err, g.Close()))
	}
	return o.adopt(&ownGraph{graph: g, acts: []act{a}})
}
