package main

import "github.com/cudabind/cudabind/cuda/safe"

// safeChain is two graphs of as many kernels, each after the one before, and
// executables.
type safeChain struct {
	kernels int
	graphs  [2]*safe.Graph
	exec    *safe.GraphExec // to change
	fresh   *safe.GraphExec // to launch
	nodes   []safe.Node     // of the first graph

	specs   []safe.NodeSpec   // of a chain
	changes []safe.NodeChange // of its nodes
}

func (p *safely) params() safe.NodeParams {
	return safe.KernelNode(p.three, one, p.memory.Arg(), safe.Val(uint32(1)), safe.Val(float32(2)))
}

// chained is an item that works on a chain of as many kernels as its argument says.
func (p *safely) chained(f func(c *safeChain)) item {
	return item{prepare: func(kernels int) func() {
		p.prepare(kernels)
		return func() { f(&p.chain) }
	}}
}

// graphItems make one call for each node.
func (p *safely) graphItems() map[string]item {
	launch := p.chained(func(c *safeChain) { check(c.fresh.Launch(p.stream)) })
	launch.queue = graphQueue
	return map[string]item{
		"graph_empty":   always(func() { check(must(safe.NewGraph(p.ctx)).Close()) }),
		"graph_build":   p.chained(func(c *safeChain) { check(p.build(c.kernels, nil).Close()) }),
		"graph_inst":    p.chained(func(c *safeChain) { check(must(c.graphs[0].Instantiate()).Close()) }),
		"graph_capture": {prepare: p.capture},
		"graph_update":  p.chained(func(c *safeChain) { check(c.exec.Update(c.graphs[1])) }),
		"graph_set": p.chained(func(c *safeChain) {
			for _, n := range c.nodes {
				check(c.exec.Set(n, p.params()))
			}
		}),
		"graph_node_set": p.chained(func(c *safeChain) {
			for _, n := range c.nodes {
				check(n.Set(p.params()))
			}
		}),
		"graph_launch": launch,
		"graph_wait": p.chained(func(c *safeChain) {
			check(c.fresh.Launch(p.stream))
			check(p.stream.Synchronize())
		}),
	}
}

// graphItemsInBulk make one call for all nodes.
func (p *safely) graphItemsInBulk() map[string]item {
	return map[string]item{
		"graph_build": p.chained(func(c *safeChain) {
			g := must(safe.NewGraph(p.ctx))
			for i := range c.specs {
				c.specs[i].Params = p.params()
			}
			must(g.AddAll(c.specs...))
			check(g.Close())
		}),
		"graph_set":      p.chained(func(c *safeChain) { check(c.exec.SetAll(p.changes(c)...)) }),
		"graph_node_set": p.chained(func(c *safeChain) { check(c.graphs[0].SetAll(p.changes(c)...)) }),
	}
}

func (p *safely) changes(c *safeChain) []safe.NodeChange {
	for i := range c.changes {
		c.changes[i].Params = p.params()
	}
	return c.changes
}

func (p *safely) prepare(kernels int) {
	c := &p.chain
	if c.kernels == kernels {
		return
	}
	if c.kernels > 0 {
		check(c.exec.Close())
		check(c.fresh.Close())
		check(c.graphs[0].Close())
		check(c.graphs[1].Close())
	}
	*c = safeChain{kernels: kernels, nodes: make([]safe.Node, kernels)}
	c.graphs[0], c.graphs[1] = p.build(kernels, c.nodes), p.build(kernels, nil)
	c.exec, c.fresh = must(c.graphs[0].Instantiate()), must(c.graphs[0].Instantiate())
	for i, n := range c.nodes {
		spec := safe.NodeSpec{}
		if i > 0 {
			spec.After = []int{i - 1}
		}
		c.specs = append(c.specs, spec)
		c.changes = append(c.changes, safe.NodeChange{Node: n})
	}
}

// build fills out with the nodes, unless it is nil.
func (p *safely) build(kernels int, out []safe.Node) *safe.Graph {
	g := must(safe.NewGraph(p.ctx))
	var last [1]safe.Node
	for i := range kernels {
		last[0] = must(g.Add(p.params(), last[:min(i, 1)]...))
		if out != nil {
			out[i] = last[0]
		}
	}
	return g
}

func (p *safely) capture(kernels int) func() {
	return func() {
		x := must(p.stream.CaptureExecutable(func() error {
			for range kernels {
				p.launch3()
			}
			return nil
		}))
		check(x.Close())
	}
}
