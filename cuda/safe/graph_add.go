package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Add adds a node that does w when the nodes it depends on are done.
func (g *Graph) Add(w NodeParams, deps ...Node) (Node, error) {
	const op = "Graph.Add"
	c, err := g.acquire(op)
	if err != nil {
		return Node{}, err
	}
	defer c.Release()
	k, err := taken(op, w, c)
	if err != nil {
		return Node{}, err
	}
	defer w.release()
	if err := lock(op, c.mu); err != nil {
		k.release()
		return Node{}, err
	}
	defer c.mu.Unlock()
	n, err := c.add(op, w, deps)
	if n.raw == 0 {
		k.release()
	} else {
		c.kept.set(n.raw, k)
	}
	if err != nil {
		return Node{}, wrap(op, err)
	}
	return n, nil
}

// taken is what w uses, for a graph that will not be locked before. Without an
// error, w is to be released.
func taken(op string, w NodeParams, into *graphCore) (*retained, error) {
	if w == nil {
		return nil, refuse(op, ErrInvalidArgument, "no work")
	}
	k := newRetained()
	if err := w.take(op, k, into); err != nil {
		k.release()
		return nil, err
	}
	return k, nil
}

func (g *graphCore) add(op string, w NodeParams, deps []Node) (n Node, err error) {
	if err := g.changeable(op); err != nil {
		return n, err
	}
	raw, _, err := g.dependencies(op, deps, nil)
	if err != nil {
		return n, err
	}
	added, err := w.add(g, raw)
	return g.named(added, w.kind()), err
}

// Set changes what the node does: w must be of the node's type. Executables of the
// graph stay as they are.
func (n Node) Set(w NodeParams) error {
	const op = "Node.Set"
	g := n.of
	if g == nil || !g.Acquire() {
		return &Error{Op: op, Err: ErrClosed}
	}
	defer g.Release()
	k, err := taken(op, w, g)
	if err != nil {
		return err
	}
	defer w.release()
	if err := lock(op, g.mu); err != nil {
		k.release()
		return err
	}
	defer g.mu.Unlock()
	if err = errors.Join(g.changeable(op), n.fits(op, w)); err == nil {
		err = w.set(n)
	}
	if err != nil {
		k.release()
		return wrap(op, err)
	}
	g.kept.set(n.raw, k).release()
	return nil
}

// fits refuses work of another type than the node's, and for a node that is destroyed.
func (n Node) fits(op string, w NodeParams) error {
	if n.isGone() {
		return &Error{Op: op, Err: ErrClosed}
	}
	if w.kind() != n.kind {
		return refuse(op, ErrInvalidArgument, "work of type %v for %v", w.kind(), n)
	}
	return nil
}

// AddEdges has each edge's To wait for its From, with the edge's data unless that is
// zero, which needs a driver of CUDA 12.3. An edge that is there already is
// driver.CUDA_ERROR_INVALID_VALUE, and those before it have been added.
// Source: cuGraphAddDependencies.
func (g *Graph) AddEdges(edges ...Edge) error {
	return g.connect("Graph.AddEdges", edges, driver.CuGraphAddDependencies, driver.CuGraphAddDependencies_v1)
}

// RemoveEdges takes edges out of the graph, which must be there with this data. Graphs that
// allocate memory cannot lose edges. Source: cuGraphRemoveDependencies.
func (g *Graph) RemoveEdges(edges ...Edge) error {
	return g.connect("Graph.RemoveEdges", edges, driver.CuGraphRemoveDependencies, driver.CuGraphRemoveDependencies_v1)
}

func (g *Graph) connect(op string, edges []Edge,
	call func(driver.CUgraph, *driver.CUgraphNode, *driver.CUgraphNode, *driver.CUgraphEdgeData, uint64) error,
	older func(driver.CUgraph, *driver.CUgraphNode, *driver.CUgraphNode, uint64) error,
) error {
	return g.change(op, func(c *graphCore) error {
		if len(edges) == 0 {
			return nil
		}
		var from, to []driver.CUgraphNode
		var data []driver.CUgraphEdgeData
		plain := true
		for i, e := range edges {
			if !c.has(e.From) || !c.has(e.To) {
				return refuse(op, ErrForeignNode, "edge %d", i)
			}
			from, to, data = append(from, e.From.raw), append(to, e.To.raw), append(data, e.Data)
			plain = plain && e.Data == driver.CUgraphEdgeData{}
		}
		err := call(c.raw, &from[0], &to[0], &data[0], uint64(len(edges)))
		if plain && errors.Is(err, ErrNotSupported) { // before CUDA 12.3
			err = older(c.raw, &from[0], &to[0], uint64(len(edges)))
		}
		return err
	})
}

// Roots lists the nodes that wait for no other. Source: cuGraphGetRootNodes.
func (g *Graph) Roots() (nodes []Node, err error) {
	err = g.do("Graph.Roots", func(c *graphCore) (err error) {
		nodes, err = c.nodes(func(raw *driver.CUgraphNode, n *uint64) error { return driver.CuGraphGetRootNodes(c.raw, raw, n) })
		return err
	})
	return nodes, err
}

// ID is a number that no other graph of the process has. It needs a driver of CUDA
// 13.1. Source: cuGraphGetId.
func (g *Graph) ID() (id uint32, err error) {
	err = g.do("Graph.ID", func(c *graphCore) error { return driver.CuGraphGetId(c.raw, &id) })
	return id, err
}

// OnRelease has f called, on a goroutine of its own, once the graph and all that have
// come of it are gone: executables, their launches, clones, graphs that it is part of.
// f may use CUDA and may block; only the functions given to the same graph later wait for it. A
// panic of f is reported to [OnError]. It is what CUDA's user objects are for.
func (g *Graph) OnRelease(f func()) error {
	const op = "Graph.OnRelease"
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if f == nil {
		return refuse(op, ErrInvalidArgument, "no function")
	}
	if err := lock(op, c.mu); err != nil {
		return err
	}
	defer c.mu.Unlock()
	k := c.kept.user
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onRelease = append(k.onRelease, f)
	return nil
}

// behind is a keepsake to which others may be added, and which keeps k. It takes over
// the caller's share of k.
func (k *retained) behind() *retained {
	own := newRetained()
	own.next = k
	return own
}

// pairs is locked by who locks two graphs.
var pairs mutex[pairRank]

// lockPair locks pairs and one graph.
func lockPair(op string, g *graphCore) error {
	if err := lock(op, &pairs); err != nil {
		return err
	}
	err := lock(op, g.mu)
	if err != nil {
		pairs.Unlock()
	}
	return err
}

// ChildGraphNode does all of another graph, as it is when the node is added or set: a copy
// of it becomes part of the node, see [Node.ChildGraph]. A graph with conditional
// nodes is [ErrConditional]. In an executable the copy can be changed to one that
// has the same nodes and edges, as by [GraphExec.Update].
// Source: cuGraphAddChildGraphNode, cuGraphExecChildGraphNodeSetParams.
func ChildGraphNode(child *Graph) NodeParams {
	var c *graphCore
	w := &funcNode{typ: driver.CU_GRAPH_NODE_TYPE_GRAPH}
	w.takes = func(op string, k *retained, into *graphCore) error {
		c = nil
		g, err := child.acquire(op)
		if err != nil {
			return err
		}
		if g.top() == into.top() {
			g.Release()
			return refuse(op, ErrInvalidArgument, "a graph cannot be part of itself")
		}
		if err := lockPair(op, g); err != nil {
			g.Release()
			return err
		}
		c = g
		if g.top().conditional {
			return refuse(op, ErrConditional, "it cannot be part of another")
		}
		k.inner = g.kept.share()
		return g.changeable(op)
	}
	w.releasing = func() {
		if c != nil {
			c.mu.Unlock()
			pairs.Unlock()
			c.Release()
		}
	}
	w.adds = func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
		return driver.CuGraphAddChildGraphNode(n, g, deps, count, c.raw)
	}
	w.setsExec = func(e driver.CUgraphExec, n driver.CUgraphNode) error {
		return driver.CuGraphExecChildGraphNodeSetParams(e, n, c.raw)
	}
	return w
}
