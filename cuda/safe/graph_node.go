package safe

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A Node is one piece of work of a graph. It is good as long as the graph, and
// until it is destroyed. Nodes may be compared, and be keys of maps.
type Node struct {
	raw  driver.CUgraphNode
	of   *graphCore
	kind driver.CUgraphNodeType
	life uint32 // how many nodes of this handle were destroyed before
}

// Raw is the node for calls of package driver.
func (n Node) Raw() driver.CUgraphNode { return n.raw }

// Type is what the node does, such as driver.CU_GRAPH_NODE_TYPE_KERNEL. Newer
// drivers may have types that this package does not know.
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

// isGone tells whether the node was destroyed. The graph is locked.
func (n Node) isGone() bool { return n.of.top().gone[n.raw] != n.life }

// nodes makes Nodes of what list lists: it is called for the number, and then for
// the handles.
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

// Dependencies lists the nodes that n waits for. Source: cuGraphNodeGetDependencies.
func (n Node) Dependencies() ([]Node, error) {
	return n.neighbours("Node.Dependencies", func(raw *driver.CUgraphNode, count *uint64) error {
		data := room(raw, count)
		err := driver.CuGraphNodeGetDependencies(n.raw, raw, data, count)
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.3
			err = driver.CuGraphNodeGetDependencies_v1(n.raw, raw, count)
		}
		return err
	})
}

// Dependents lists the nodes that wait for n. Source: cuGraphNodeGetDependentNodes.
func (n Node) Dependents() ([]Node, error) {
	return n.neighbours("Node.Dependents", func(raw *driver.CUgraphNode, count *uint64) error {
		data := room(raw, count)
		err := driver.CuGraphNodeGetDependentNodes(n.raw, raw, data, count)
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.3
			err = driver.CuGraphNodeGetDependentNodes_v1(n.raw, raw, count)
		}
		return err
	})
}

// room is where CUDA puts the data of edges, without which it refuses to list
// nodes behind edges that have some.
func room(raw *driver.CUgraphNode, count *uint64) *driver.CUgraphEdgeData {
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

// Destroy takes the node and its edges out of the graph. Executables of the graph
// keep theirs. A graph that allocates memory cannot lose nodes:
// driver.CUDA_ERROR_NOT_SUPPORTED. Source: cuGraphDestroyNode.
func (n Node) Destroy() error {
	const op = "Node.Destroy"
	return n.do(op, func(g *graphCore) error {
		if err := g.changeable(op); err != nil {
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

// ChildGraph is the graph inside of a child node, a copy of the one that it was
// made of. What is changed in it changes the node. It is a part of the node's
// graph, and goes with that. Source: cuGraphChildGraphNodeGetGraph.
func (n Node) ChildGraph() (*Graph, error) {
	var part *graphCore
	err := n.do("Node.ChildGraph", func(g *graphCore) error {
		var raw driver.CUgraph
		err := driver.CuGraphChildGraphNodeGetGraph(n.raw, &raw)
		if err == nil {
			part = g.part(raw, n.raw)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Graph{core: part}, nil
}

// LocalID is a number that no other node of the graph has. It needs a driver of
// CUDA 13.1. Source: cuGraphNodeGetLocalId.
func (n Node) LocalID() (id uint32, err error) {
	err = n.do("Node.LocalID", func(*graphCore) error { return driver.CuGraphNodeGetLocalId(n.raw, &id) })
	return id, err
}

// ToolsID is the number by which profilers name the node. It needs a driver of
// CUDA 13.1. Source: cuGraphNodeGetToolsId.
func (n Node) ToolsID() (id uint64, err error) {
	err = n.do("Node.ToolsID", func(*graphCore) error { return driver.CuGraphNodeGetToolsId(n.raw, &id) })
	return id, err
}

// Params are what the node was given, as CUDA has them: which member of the union
// counts depends on the type. What they point to is the driver's, and good until
// the node is changed or destroyed. Types that this package or the driver cannot
// tell of are [ErrNotSupported]. Source: cuGraphNodeGetParams from CUDA 13.2 on,
// else cuGraphKernelNodeGetParams and its like.
func (n Node) Params() (driver.CUgraphNodeParams, error) {
	var p driver.CUgraphNodeParams
	err := n.do("Node.Params", func(*graphCore) error {
		err := driver.CuGraphNodeGetParams(n.raw, &p)
		if errors.Is(err, ErrNotSupported) {
			p = driver.CUgraphNodeParams{Type: n.kind}
			return n.params(&p)
		}
		return err
	})
	return p, err
}

// params asks the function for the type. The newer layouts of the structs begin
// with the older ones.
func (n Node) params(p *driver.CUgraphNodeParams) error {
	switch n.kind {
	case driver.CU_GRAPH_NODE_TYPE_KERNEL:
		err := driver.CuGraphKernelNodeGetParams(n.raw, (*driver.CUDA_KERNEL_NODE_PARAMS)(unsafe.Pointer(p.Kernel())))
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.0
			err = driver.CuGraphKernelNodeGetParams_v1(n.raw, (*driver.CUDA_KERNEL_NODE_PARAMS_v1)(unsafe.Pointer(p.Kernel())))
		}
		return err
	case driver.CU_GRAPH_NODE_TYPE_MEMCPY:
		return driver.CuGraphMemcpyNodeGetParams(n.raw, &p.Memcpy().CopyParams)
	case driver.CU_GRAPH_NODE_TYPE_MEMSET:
		return driver.CuGraphMemsetNodeGetParams(n.raw, (*driver.CUDA_MEMSET_NODE_PARAMS)(unsafe.Pointer(p.Memset())))
	case driver.CU_GRAPH_NODE_TYPE_HOST:
		return driver.CuGraphHostNodeGetParams(n.raw, (*driver.CUDA_HOST_NODE_PARAMS)(unsafe.Pointer(p.Host())))
	case driver.CU_GRAPH_NODE_TYPE_GRAPH:
		return driver.CuGraphChildGraphNodeGetGraph(n.raw, &p.Graph().Graph)
	case driver.CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return driver.CuGraphEventWaitNodeGetEvent(n.raw, &p.EventWait().Event)
	case driver.CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return driver.CuGraphEventRecordNodeGetEvent(n.raw, &p.EventRecord().Event)
	case driver.CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return driver.CuGraphMemAllocNodeGetParams(n.raw, (*driver.CUDA_MEM_ALLOC_NODE_PARAMS)(unsafe.Pointer(p.Alloc())))
	case driver.CU_GRAPH_NODE_TYPE_MEM_FREE:
		return driver.CuGraphMemFreeNodeGetParams(n.raw, &p.Free().Dptr)
	case driver.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return driver.CuGraphBatchMemOpNodeGetParams(n.raw, (*driver.CUDA_BATCH_MEM_OP_NODE_PARAMS)(unsafe.Pointer(p.MemOp())))
	case driver.CU_GRAPH_NODE_TYPE_EMPTY:
		return nil
	}
	return refuse("Node.Params", ErrNotSupported, "nodes of type %v", n.kind)
}
