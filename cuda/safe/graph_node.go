package safe

import (
	"errors"
	"fmt"
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

// ownNodes returns the graph's nodes, without those of graphs inside them.
func (g *graphCore) ownNodes() ([]Node, error) {
	return g.nodes(func(raw *driver.CUgraphNode, n *uint64) error { return driver.CuGraphGetNodes(g.raw, raw, n) })
}

// find returns the node with a handle, of the graph or of one inside its nodes. It returns the zero Node if there is none.
// The graph is locked and its context current.
func (g *graphCore) find(raw driver.CUgraphNode) Node {
	if raw == 0 {
		return Node{}
	}
	nodes, _ := g.ownNodes()
	for _, n := range nodes {
		if n.raw == raw {
			return n
		}
	}
	for _, n := range nodes {
		if n.kind == driver.CU_GRAPH_NODE_TYPE_GRAPH {
			_, _ = n.childGraph() // makes it one of inner
		}
	}
	for _, inner := range g.top().inner {
		if inner.parent != g {
			continue
		}
		if n := inner.find(raw); n != (Node{}) {
			return n
		}
	}
	return Node{}
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
		if err := executables.Serialize(func() error { return driver.CuGraphDestroyNode(n.raw) }); err != nil {
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
	err := n.do("Node.ChildGraph", func(*graphCore) (err error) {
		child, err = n.childGraph()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Graph{core: child}, nil
}

// childGraph returns the graph inside a child node. The graph is locked and its context current.
func (n Node) childGraph() (*graphCore, error) {
	var raw driver.CUgraph
	if err := driver.CuGraphChildGraphNodeGetGraph(n.raw, &raw); err != nil {
		return nil, err
	}
	return n.of.innerGraph(raw, n.raw), nil
}

// String names the node by its type and its handle.
func (n Node) String() string {
	if n == (Node{}) {
		return neverOpened("Node")
	}
	return fmt.Sprintf("%v %#x", n.kind, uintptr(n.raw))
}

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
		nodes, err := g.ownNodes()
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

// Params returns the node's parameters in CUDA's own form, a union: p.Type selects the
// valid member, as p.Memcpy() of a copy, which CUDA describes in three dimensions, or p.Memset() of a
// fill. Pointers in the result point
// to memory of the driver, which is valid until the node is changed or destroyed. Params returns
// [ErrNotSupported] for types that neither this package nor the driver can read.
// Source: cuGraphNodeGetParams; before CUDA 13.2 cuGraphKernelNodeGetParams and similar.
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

// params calls the getter for the node's type. The structs of the union begin with those of
// the getters.
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
	return refuse("Node.Params", ErrNotSupported, "reading nodes of type %v requires a driver for CUDA 13.2", n.kind)
}

// Condition is the value that controls a conditional node. Kernels of the graph set it on
// the device, with cudaGraphSetConditional of CUDA's device runtime: pass it to them with
// [Condition.Arg].
type Condition struct {
	of  *graphCore
	raw driver.CUgraphConditionalHandle
}

// ConditionOptions are the options of [Graph.NewCondition].
type ConditionOptions struct {
	// Assign sets the condition to Default at the start of each launch. Otherwise it keeps
	// its value between launches, and is undefined before a kernel sets it.
	Assign  bool
	Default uint32
}

// NewCondition creates a condition for one conditional node of the graph. It returns
// [ErrNotSupported] if the driver is older than CUDA 12.3.
// Source: cuGraphConditionalHandleCreate.
func (g *Graph) NewCondition(o ConditionOptions) (Condition, error) {
	var c Condition
	err := g.change("Graph.NewCondition", func(g *graphCore) (err error) {
		c, err = g.newCondition(o)
		return err
	})
	return c, err
}

// newCondition creates a condition in the graph, which is locked.
func (g *graphCore) newCondition(o ConditionOptions) (Condition, error) {
	var flags uint32
	if o.Assign {
		flags = uint32(driver.CU_GRAPH_COND_ASSIGN_DEFAULT)
	}
	c := Condition{of: g}
	err := g.ctx.withCurrent(func() error {
		return driver.CuGraphConditionalHandleCreate(&c.raw, g.raw, g.ctx.raw, o.Default, flags)
	})
	if err != nil {
		return Condition{}, err
	}
	return c, nil
}

// Raw returns the condition's handle for calls to package driver.
func (c Condition) Raw() driver.CUgraphConditionalHandle { return c.raw }

// Arg returns the condition as a kernel argument, a cudaGraphConditionalHandle.
func (c Condition) Arg() Arg { return Val(uint64(c.raw)) }

// AddIf adds a conditional node that runs its body once if the condition is not 0. The body
// is an empty graph inside the node. Fill it with [Graph.Add] or [Stream.CaptureTo] before
// you instantiate the outer graph. It may contain kernel, copy, fill, empty, child and
// conditional nodes of the graph's context.
//
// A graph with conditional nodes can be instantiated once, and can neither be cloned nor
// become a child of another graph: these calls return [ErrConditional].
//
// AddIf returns [ErrForeignNode] if c belongs to another graph or a node in deps does, and
// [ErrNotSupported] if the driver is older than CUDA 12.3. Source: cuGraphAddNode.
func (g *Graph) AddIf(c Condition, deps ...Node) (n Node, body *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddIf", driver.CU_GRAPH_COND_TYPE_IF, c, 1, deps)
	if err != nil {
		return n, nil, err
	}
	return n, bodies[0], nil
}

// AddIfElse adds a conditional node with two bodies: the graph then runs once if the condition is not 0, and the graph
// otherwise if it is 0. The rules for bodies are those of [Graph.AddIf]. It returns [ErrNotSupported] if the driver is
// older than CUDA 12.8. Source: cuGraphAddNode.
func (g *Graph) AddIfElse(c Condition, deps ...Node) (n Node, then, otherwise *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddIfElse", driver.CU_GRAPH_COND_TYPE_IF, c, 2, deps)
	if err != nil {
		return n, nil, nil, err
	}
	return n, bodies[0], bodies[1], nil
}

// AddWhile adds a conditional node whose body runs repeatedly while the condition is not 0. CUDA reads the condition
// before each run, so a kernel in the body must clear it to end the loop. The rules and errors are those of
// [Graph.AddIf]. Source: cuGraphAddNode.
func (g *Graph) AddWhile(c Condition, deps ...Node) (n Node, body *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddWhile", driver.CU_GRAPH_COND_TYPE_WHILE, c, 1, deps)
	if err != nil {
		return n, nil, err
	}
	return n, bodies[0], nil
}

// AddSwitch adds a conditional node with any number of bodies: the one whose index equals the condition runs once, or
// none if there is no such body. The rules for bodies are those of [Graph.AddIf]. It returns [ErrRange] if bodies is
// below 1 or above 4096, and [ErrNotSupported] if the driver is older than CUDA 12.8. Source: cuGraphAddNode.
func (g *Graph) AddSwitch(c Condition, bodies int, deps ...Node) (Node, []*Graph, error) {
	return g.addConditional("Graph.AddSwitch", driver.CU_GRAPH_COND_TYPE_SWITCH, c, bodies, deps)
}

func (g *Graph) addConditional(op string, kind driver.CUgraphConditionalNodeType, c Condition, bodies int, deps []Node) (n Node, graphs []*Graph, err error) {
	err = g.change(op, func(g *graphCore) error {
		before, _, err := g.dependencies(op, deps, nil)
		if err != nil {
			return err
		}
		raw, inside, err := g.addConditional(op, kind, c, bodies, before)
		if err == nil {
			n, graphs = g.named(raw, driver.CU_GRAPH_NODE_TYPE_CONDITIONAL), inside
		}
		return err
	})
	return n, graphs, err
}

// mostBodies is how many bodies a conditional node has at most: CUDA makes a graph for each.
const mostBodies = 4096

// addConditional adds a conditional node. The graph is locked and its context current.
func (g *graphCore) addConditional(op string, kind driver.CUgraphConditionalNodeType, c Condition, bodies int, before []driver.CUgraphNode) (n driver.CUgraphNode, graphs []*Graph, err error) {
	if c.of == nil || c.of.top() != g.top() {
		return 0, nil, refuse(op, ErrForeignNode, "the condition belongs to another graph, or is a zero Condition")
	}
	if bodies < 1 || bodies > mostBodies {
		return 0, nil, refuse(op, ErrRange, "%d bodies, but there may be 1 to %d", bodies, mostBodies)
	}
	p := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_CONDITIONAL}
	*p.Conditional() = driver.CUDA_CONDITIONAL_NODE_PARAMS{Handle: c.raw, Type: kind, Size: uint32(bodies), Ctx: g.ctx.raw}
	if err := driver.CuGraphAddNode(&n, g.raw, unsafe.SliceData(before), nil, uint64(len(before)), &p); err != nil {
		return 0, nil, err
	}
	g.top().conditional = true
	for _, raw := range unsafe.Slice(p.Conditional().PhGraph_out, bodies) {
		graphs = append(graphs, &Graph{core: g.innerGraph(raw, n)})
	}
	return n, graphs, nil
}
