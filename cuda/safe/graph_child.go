package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// part is the graph inside of a node of g: always the same core, so that nodes of it
// can be compared. mu is held.
func (g *graphCore) part(raw driver.CUgraph, inside driver.CUgraphNode) *graphCore {
	top := g.top()
	p := top.parts[raw]
	if p == nil {
		p = &graphCore{ctx: g.ctx, raw: raw, kept: g.kept, of: g, inside: inside, mu: g.mu}
		if top.parts == nil {
			top.parts = map[driver.CUgraph]*graphCore{}
		}
		top.parts[raw] = p
	}
	return p
}

// within tells whether g is in a node, at any depth.
func (g *graphCore) within(n Node) bool {
	for ; g.of != nil; g = g.of {
		if g.of == n.of && g.inside == n.raw {
			return true
		}
	}
	return false
}

// nodesWithin are the nodes of the parts that are in a node, as far as anybody knows
// those.
func (n Node) nodesWithin() (all []driver.CUgraphNode, err error) {
	for _, p := range n.of.top().parts {
		if !p.within(n) {
			continue
		}
		nodes, err := p.nodes(func(raw *driver.CUgraphNode, n *uint64) error { return driver.CuGraphGetNodes(p.raw, raw, n) })
		if err != nil {
			return nil, err
		}
		for _, inner := range nodes {
			all = append(all, inner.raw)
		}
	}
	return all, nil
}

// forget forgets a node that is destroyed, and all within.
func (n Node) forget(within []driver.CUgraphNode) {
	g, top := n.of, n.of.top()
	if top.gone == nil {
		top.gone = map[driver.CUgraphNode]uint32{}
	}
	top.gone[n.raw]++
	for raw, p := range top.parts {
		if p.within(n) {
			p.destroyed = true
			delete(top.parts, raw)
		}
	}
	for _, raw := range append(within, n.raw) {
		g.kept.set(raw, nil).release()
	}
}
