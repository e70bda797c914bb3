package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

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

// Arg passes the condition to a kernel, as a cudaGraphConditionalHandle.
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

// AddIfElse is [Graph.AddIf] with a second body, which runs if the condition is 0. It
// requires a driver for CUDA 12.8. Source: cuGraphAddNode.
func (g *Graph) AddIfElse(c Condition, deps ...Node) (n Node, then, otherwise *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddIfElse", driver.CU_GRAPH_COND_TYPE_IF, c, 2, deps)
	if err != nil {
		return n, nil, nil, err
	}
	return n, bodies[0], bodies[1], nil
}

// AddWhile is [Graph.AddIf] with a loop: the body runs repeatedly while the condition is not
// 0. The condition is read before each run, so a kernel in the body must clear it to end
// the loop. Source: cuGraphAddNode.
func (g *Graph) AddWhile(c Condition, deps ...Node) (n Node, body *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddWhile", driver.CU_GRAPH_COND_TYPE_WHILE, c, 1, deps)
	if err != nil {
		return n, nil, err
	}
	return n, bodies[0], nil
}

// AddSwitch is [Graph.AddIf] with any number of bodies: the body whose index equals the
// condition runs, or none if there is no such body. It returns [ErrRange] if bodies is below
// 1 or above 4096. It requires a driver for CUDA 12.8. Source: cuGraphAddNode.
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
