package safe

import (
	"errors"
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
)

// Add adds a node with the given parameters, such as [KernelNode] or [CopyNode]. It runs
// once the nodes in deps have completed; without deps, as soon as the graph is launched.
// The graph retains the objects that the node uses.
//
// It returns [ErrForeignNode] if a node in deps belongs to another graph or was destroyed,
// [ErrCapturing] while a stream captures into the graph, and the errors that w documents.
func (g *Graph) Add(w NodeParams, deps ...Node) (Node, error) {
	const op = "Graph.Add"
	if g == nil || g.core == nil {
		return Node{}, &Error{Op: op, Err: ErrClosed}
	}
	defer runtime.KeepAlive(g) // as it is not acquired
	return g.core.addNode(op, &w, deps, (*graphCore).enter)
}

// addNode adds a node with the graph locked by enter.
func (g *graphCore) addNode(op string, w *NodeParams, deps []Node, enter graphEnter) (Node, error) {
	u, err := taken(op, w, g)
	if err != nil {
		return Node{}, err
	}
	defer u.finish()
	if err := enter(g, op); err != nil {
		u.kept.release()
		return Node{}, err
	}
	defer g.mu.Unlock()
	n, err := g.add(op, w, &u, deps)
	if n.raw == 0 {
		u.kept.release()
	} else {
		g.kept.add(n.raw, u.kept)
	}
	if err != nil {
		return Node{}, wrap(op, err)
	}
	return n, nil
}

func (g *graphCore) add(op string, w *NodeParams, u *nodeUse, deps []Node) (n Node, err error) {
	if err := g.changeable(op); err != nil {
		return n, err
	}
	if g.deps, err = g.appendNodes(op, g.deps[:0], deps); err != nil {
		return n, err
	}
	added, err := w.add(u, g, g.deps)
	return g.named(added, w.kind()), err
}

// Set changes the node's parameters. Existing executables of the graph do not change: see
// [GraphExec.Set] and [GraphExec.Update]. It returns [ErrInvalidArgument] if w is for
// another type of node, or if CUDA cannot change nodes of this type.
func (n Node) Set(w NodeParams) error {
	const op = "Node.Set"
	if n.of == nil {
		return &Error{Op: op, Err: ErrClosed}
	}
	return n.set(op, &w, (*graphCore).enter)
}

// set changes the parameters with the graph locked by enter.
func (n Node) set(op string, w *NodeParams, enter graphEnter) error {
	if w.other == nil {
		return n.setKernel(op, w, enter)
	}
	return n.setOther(op, w, enter)
}

// setOther gives a node that is no kernel the parameters w in its graph, which then retains what w uses.
func (n Node) setOther(op string, w *NodeParams, enter graphEnter) error {
	g := n.of
	u, err := taken(op, w, g)
	if err != nil {
		return err
	}
	defer u.finish()
	if err := enter(g, op); err != nil {
		u.kept.release()
		return err
	}
	defer g.mu.Unlock()
	if err = errors.Join(g.changeable(op), n.fits(op, w.kind())); err == nil {
		err = u.set(n)
	}
	if err != nil {
		u.kept.release()
		return wrap(op, err)
	}
	g.kept.set(n.raw, u.kept).release()
	return nil
}

// setKernel gives a kernel node the parameters w in its graph, which then retains what w uses.
func (n Node) setKernel(op string, w *NodeParams, enter graphEnter) error {
	var listed objectList
	if err := w.kernel.each(op, listed.add); err != nil {
		return err
	}
	if err := enter(n.of, op); err != nil {
		return err
	}
	defer n.of.mu.Unlock()
	err := errors.Join(n.of.changeable(op), n.fits(op, w.kind()))
	if err == nil {
		err = w.changeKernel(op, n, n.of.kept, &listed, func() error { return w.kernel.set(n) }, (*retained).release)
	}
	return wrap(op, err)
}

// fits refuses parameters of another type than the node's, and any for a destroyed node.
func (n Node) fits(op string, kind driver.CUgraphNodeType) error {
	if n.isGone() {
		return refuse(op, ErrClosed, "the node was destroyed")
	}
	if kind != n.kind {
		return refuse(op, ErrInvalidArgument, "parameters of type %v for node %v", kind, n)
	}
	return nil
}

// AddEdges adds dependencies: each edge's To waits for its From. Edges with Data require a
// driver for CUDA 12.3. It returns [ErrForeignNode] if a node belongs to another graph or
// was destroyed, and driver.CUDA_ERROR_INVALID_VALUE if an edge exists already: the edges
// before that one have then been added. Source: cuGraphAddDependencies.
func (g *Graph) AddEdges(edges ...Edge) error {
	return g.connect("Graph.AddEdges", edges, driver.CuGraphAddDependencies, driver.CuGraphAddDependencies_v1)
}

// RemoveEdges removes dependencies. Each edge must exist, with the same Data. It returns [ErrForeignNode] if a node
// belongs to another graph or was destroyed, and [ErrNotSupported] for graphs that allocate or free memory. Source:
// cuGraphRemoveDependencies.
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

// OnRelease calls f once nothing can use the graph any more: after the release of the
// graph, its executables and their launches, its clones, and the graphs that contain it as
// a child. Use it to release resources that the graph's nodes use, as CUDA's user objects
// do.
//
// f runs on a new goroutine. It may call CUDA and may block; functions registered later
// with the same graph run after it. A panic of f is reported to [OnError].
func (g *Graph) OnRelease(f func()) error {
	const op = "Graph.OnRelease"
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if f == nil {
		return noFunction(op)
	}
	if err := lock(op, c.mu); err != nil {
		return err
	}
	defer c.mu.Unlock()
	k := c.kept.user
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.extra()
	x.onRelease = append(x.onRelease, f)
	return nil
}

// ChildGraphNode returns the parameters of a node that runs another graph. [Graph.Add] and [GraphExec.Set] copy child:
// later changes of child do not affect the node. [Node.ChildGraph] returns the copy. [GraphExec.Set] requires a graph
// with the same nodes and edges, as [GraphExec.Update] does. [Node.Set] cannot change such a node: change the graph
// that [Node.ChildGraph] returns.
//
// Calls with these parameters return [ErrConditional] if child has conditional nodes, and [ErrInvalidArgument] if the
// node would be inside child itself. Source: cuGraphAddChildGraphNode, cuGraphExecChildGraphNodeSetParams.
func ChildGraphNode(child *Graph) NodeParams {
	take := func(op string, k *retained, into *graphCore) (nodeCalls, error) {
		g, err := child.acquire(op)
		if err != nil {
			return nodeCalls{}, err
		}
		u := &childUse{child: g}
		switch first := admit.Order(g.mu, into.mu); {
		case first == 0:
			err = refuse(op, ErrInvalidArgument, "a graph cannot be its own child")
		case first < 0:
			err = u.lock(op)
		}
		if err != nil {
			u.over()
			return nodeCalls{}, err
		}
		return u.calls(op, k), nil
	}
	return NodeParams{other: &funcNode{driver.CU_GRAPH_NODE_TYPE_GRAPH, take}}
}

// A childUse keeps a graph locked while CUDA copies it into another one. As admit.Order says, it is locked before that
// one, by take, or after it, by ready.
type childUse struct {
	child  *graphCore
	locked bool
}

func (u *childUse) lock(op string) error {
	err := u.child.lock(op)
	u.locked = err == nil
	return err
}

func (u *childUse) over() {
	if u.locked {
		u.child.mu.Unlock()
	}
	u.child.Release()
}

// calls makes the calls for the node. k will retain what the child does.
func (u *childUse) calls(op string, k *retained) nodeCalls {
	c := u.child
	return nodeCalls{
		ready: func() error {
			if !u.locked {
				if err := u.lock(op); err != nil {
					return err
				}
			}
			if c.top().conditional {
				return refuse(op, ErrConditional, "such a graph cannot be a child")
			}
			k.extra().inner = c.kept.share()
			return c.settled(op)
		},
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return executables.Serialize(func() error { return driver.CuGraphAddChildGraphNode(n, g, deps, count, c.raw) })
		},
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return executables.Serialize(func() error { return driver.CuGraphExecChildGraphNodeSetParams(e, n, c.raw) })
		},
		over: u.over,
	}
}
