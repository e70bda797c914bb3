package safe

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Node is an operation of a graph, such as a kernel or a copy. Methods return [ErrClosed]
// once the node is destroyed or its graph is closed. Nodes are comparable: equal values
// are the same node, and nodes may be keys of maps.
type Node struct {
	raw  driver.CUgraphNode
	of   *graphCore
	kind driver.CUgraphNodeType
	life uint32 // the number of nodes destroyed before with the same handle
}

// Raw returns the node's handle for calls to package driver.
func (n Node) Raw() driver.CUgraphNode { return n.raw }

// Type returns the node's type, such as driver.CU_GRAPH_NODE_TYPE_KERNEL. Newer drivers may
// have types that package driver does not name.
func (n Node) Type() driver.CUgraphNodeType { return n.kind }

// node makes a Node of a handle.
func (g *graphCore) node(raw driver.CUgraphNode) (Node, error) {
	n := g.named(raw, 0)
	return n, driver.CuGraphNodeGetType(raw, &n.kind)
}

// named makes a Node of a handle whose type is known.
func (g *graphCore) named(raw driver.CUgraphNode, kind driver.CUgraphNodeType) Node {
	return Node{raw: raw, of: g, kind: kind, life: g.top().gone[raw]}
}

// isGone tells whether the node was destroyed. mu is held.
func (n Node) isGone() bool { return n.of.top().gone[n.raw] != n.life }

// nodes makes Nodes of handles. It calls list for their number, and again for the handles.
func (g *graphCore) nodes(list func(*driver.CUgraphNode, *uint64) error) ([]Node, error) {
	var n uint64
	if err := list(nil, &n); err != nil || n == 0 {
		return nil, err
	}
	raw := make([]driver.CUgraphNode, n)
	if err := list(&raw[0], &n); err != nil {
		return nil, err
	}
	nodes := make([]Node, 0, n)
	for _, r := range raw[:n] {
		node, err := g.node(r)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// do calls f with the node's graph locked and the context current.
func (n Node) do(op string, f func(*graphCore) error) error {
	if n.of == nil || !n.of.Acquire() {
		return &Error{Op: op, Err: ErrClosed}
	}
	defer n.of.Release()
	return n.of.do(op, func(g *graphCore) error {
		if n.isGone() {
			return &Error{Op: op, Err: ErrClosed}
		}
		return f(g)
	})
}

// Dependencies returns the nodes that n waits for. Source: cuGraphNodeGetDependencies.
func (n Node) Dependencies() ([]Node, error) {
	return n.neighbours("Node.Dependencies", func(raw *driver.CUgraphNode, count *uint64) error {
		data := edgeData(raw, count)
		err := driver.CuGraphNodeGetDependencies(n.raw, raw, data, count)
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.3
			err = driver.CuGraphNodeGetDependencies_v1(n.raw, raw, count)
		}
		return err
	})
}

// Dependents returns the nodes that wait for n. Source: cuGraphNodeGetDependentNodes.
func (n Node) Dependents() ([]Node, error) {
	return n.neighbours("Node.Dependents", func(raw *driver.CUgraphNode, count *uint64) error {
		data := edgeData(raw, count)
		err := driver.CuGraphNodeGetDependentNodes(n.raw, raw, data, count)
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.3
			err = driver.CuGraphNodeGetDependentNodes_v1(n.raw, raw, count)
		}
		return err
	})
}

// edgeData allocates memory for edge data: without it CUDA refuses to list neighbours if an
// edge has data.
func edgeData(raw *driver.CUgraphNode, count *uint64) *driver.CUgraphEdgeData {
	if raw == nil {
		return nil
	}
	return unsafe.SliceData(make([]driver.CUgraphEdgeData, *count))
}

func (n Node) neighbours(op string, list func(*driver.CUgraphNode, *uint64) error) (nodes []Node, err error) {
	err = n.do(op, func(g *graphCore) (err error) {
		nodes, err = g.nodes(list)
		return err
	})
	return nodes, err
}

// Destroy removes the node and its edges from the graph. Existing executables of the graph
// do not change. It returns driver.CUDA_ERROR_NOT_SUPPORTED if the graph has nodes that
// allocate or free memory, and [ErrCapturing] while a stream captures into the graph.
// Source: cuGraphDestroyNode.
func (n Node) Destroy() error {
	const op = "Node.Destroy"
	return n.do(op, func(g *graphCore) error {
		if err := g.settled(op); err != nil {
			return err
		}
		within, err := n.nodesWithin()
		if err != nil {
			return err
		}
		if err := driver.CuGraphDestroyNode(n.raw); err != nil {
			return err
		}
		n.forget(within)
		return nil
	})
}

// ChildGraph returns the graph inside a child node: the node's own copy of the graph that
// [ChildGraphNode] was made with. Changing it changes the node. It is destroyed with the
// node, and need not be closed. Source: cuGraphChildGraphNodeGetGraph.
func (n Node) ChildGraph() (*Graph, error) {
	var child *graphCore
	err := n.do("Node.ChildGraph", func(g *graphCore) error {
		var raw driver.CUgraph
		err := driver.CuGraphChildGraphNodeGetGraph(n.raw, &raw)
		if err == nil {
			child = g.innerGraph(raw, n.raw)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Graph{core: child}, nil
}

// LocalID returns a number that is unique among the nodes of the graph. It returns
// [ErrNotSupported] if the driver is older than CUDA 13.1. Source: cuGraphNodeGetLocalId.
func (n Node) LocalID() (id uint32, err error) {
	err = n.do("Node.LocalID", func(*graphCore) error { return driver.CuGraphNodeGetLocalId(n.raw, &id) })
	return id, err
}

// ToolsID returns the number that profilers show for the node. It returns [ErrNotSupported]
// if the driver is older than CUDA 13.1. Source: cuGraphNodeGetToolsId.
func (n Node) ToolsID() (id uint64, err error) {
	err = n.do("Node.ToolsID", func(*graphCore) error { return driver.CuGraphNodeGetToolsId(n.raw, &id) })
	return id, err
}
