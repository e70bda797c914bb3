package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// innerGraph returns the core of a graph inside a node of g: always the same one, so that
// its nodes can be compared. mu is held.
func (g *graphCore) innerGraph(raw driver.CUgraph, node driver.CUgraphNode) *graphCore {
	top := g.top()
	inner := top.inner[raw]
	if inner == nil {
		inner = &graphCore{ctx: g.ctx, raw: raw, kept: g.kept, parent: g, parentNode: node, mu: g.mu}
		if top.inner == nil {
			top.inner = map[driver.CUgraph]*graphCore{}
		}
		top.inner[raw] = inner
	}
	return inner
}

// within tells whether g is inside a node, at any depth.
func (g *graphCore) within(n Node) bool {
	for ; g.parent != nil; g = g.parent {
		if g.parent == n.of && g.parentNode == n.raw {
			return true
		}
	}
	return false
}

// nodesWithin lists the nodes of the known graphs inside a node.
func (n Node) nodesWithin() (all []driver.CUgraphNode, err error) {
	for _, g := range n.of.top().inner {
		if !g.within(n) {
			continue
		}
		nodes, err := g.nodes(func(raw *driver.CUgraphNode, n *uint64) error { return driver.CuGraphGetNodes(g.raw, raw, n) })
		if err != nil {
			return nil, err
		}
		for _, inner := range nodes {
			all = append(all, inner.raw)
		}
	}
	return all, nil
}

// forget releases what a destroyed node used, and the nodes within it.
func (n Node) forget(within []driver.CUgraphNode) {
	g, top := n.of, n.of.top()
	if top.gone == nil {
		top.gone = map[driver.CUgraphNode]uint32{}
	}
	top.gone[n.raw]++
	for raw, inner := range top.inner {
		if inner.within(n) {
			inner.destroyed = true
			delete(top.inner, raw)
		}
	}
	for _, raw := range append(within, n.raw) {
		g.kept.set(raw, nil).release()
	}
}
