package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A Condition is a number that decides what a conditional node of a graph does.
// Kernels of the graph set it, by cudaGraphSetConditional of CUDA's device runtime.
type Condition struct {
	of  *graphCore
	raw driver.CUgraphConditionalHandle
}

// ConditionOptions are the choices at [Graph.NewCondition].
type ConditionOptions struct {
	// Assign has every launch begin with the number Default. Else a number lasts from
	// launch to launch, and is not defined at first.
	Assign  bool
	Default uint32
}

// NewCondition makes a condition for one conditional node of the graph. It needs a driver of
// CUDA 12.3. Source: cuGraphConditionalHandleCreate.
func (g *Graph) NewCondition(o ConditionOptions) (Condition, error) {
	var flags uint32
	if o.Assign {
		flags = uint32(driver.CU_GRAPH_COND_ASSIGN_DEFAULT)
	}
	var c Condition
	const op = "Graph.NewCondition"
	err := g.change(op, func(g *graphCore) error {
		c.of = g
		return driver.CuGraphConditionalHandleCreate(&c.raw, g.raw, g.ctx.raw, o.Default, flags)
	})
	if err != nil {
		return Condition{}, err
	}
	return c, nil
}

// Raw is the condition for calls of package driver.
func (c Condition) Raw() driver.CUgraphConditionalHandle { return c.raw }

// Arg is the condition as an argument of a kernel, a cudaGraphConditionalHandle there.
func (c Condition) Arg() Arg { return Val(uint64(c.raw)) }

// AddIf adds a node that runs its body once if the condition is not 0. The body is
// an empty graph, a part of this one, to be filled by [Graph.Add] or [Stream.CaptureTo] before the
// graph is instantiated, with kernels, copies, memsets, empty, child and
// conditional nodes of this context.
//
// A graph with conditional nodes has one executable, and no clone, and cannot be a
// part of another graph: [ErrConditional]. It needs a driver of CUDA 12.3.
// Source: cuGraphAddNode.
func (g *Graph) AddIf(c Condition, deps ...Node) (n Node, body *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddIf", driver.CU_GRAPH_COND_TYPE_IF, c, 1, deps)
	if err != nil {
		return n, nil, err
	}
	return n, bodies[0], nil
}

// AddIfElse is [Graph.AddIf] with a second body, for the condition 0. It needs a
// driver of CUDA 12.8.
func (g *Graph) AddIfElse(c Condition, deps ...Node) (n Node, then, otherwise *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddIfElse", driver.CU_GRAPH_COND_TYPE_IF, c, 2, deps)
	if err != nil {
		return n, nil, nil, err
	}
	return n, bodies[0], bodies[1], nil
}

// AddWhile is [Graph.AddIf] for a body that runs again and again, as long as the
// condition is not 0.
func (g *Graph) AddWhile(c Condition, deps ...Node) (n Node, body *Graph, err error) {
	n, bodies, err := g.addConditional("Graph.AddWhile", driver.CU_GRAPH_COND_TYPE_WHILE, c, 1, deps)
	if err != nil {
		return n, nil, err
	}
	return n, bodies[0], nil
}

// AddSwitch is [Graph.AddIf] with some bodies, of which the one runs whose index is
// the condition, or none. It needs a driver of CUDA 12.8.
func (g *Graph) AddSwitch(c Condition, bodies int, deps ...Node) (Node, []*Graph, error) {
	return g.addConditional("Graph.AddSwitch", driver.CU_GRAPH_COND_TYPE_SWITCH, c, bodies, deps)
}

func (g *Graph) addConditional(op string, kind driver.CUgraphConditionalNodeType, c Condition, bodies int, deps []Node) (Node, []*Graph, error) {
	n := Node{kind: driver.CU_GRAPH_NODE_TYPE_CONDITIONAL}
	var parts []*Graph
	err := g.change(op, func(g *graphCore) error {
		if c.of == nil || c.of.top() != g.top() {
			return refuse(op, ErrForeignNode, "the condition is of another graph, or none")
		}
		if bodies < 1 || int(uint32(bodies)) != bodies {
			return refuse(op, ErrRange, "%d bodies", bodies)
		}
		before, _, err := g.dependencies(op, deps, nil)
		if err != nil {
			return err
		}
		p := driver.CUgraphNodeParams{Type: n.kind}
		*p.Conditional() = driver.CUDA_CONDITIONAL_NODE_PARAMS{Handle: c.raw, Type: kind, Size: uint32(bodies), Ctx: g.ctx.raw}
		if err := driver.CuGraphAddNode(&n.raw, g.raw, unsafe.SliceData(before), nil, uint64(len(before)), &p); err != nil {
			return err
		}
		n, g.top().conditional = g.named(n.raw, n.kind), true
		for _, raw := range unsafe.Slice(p.Conditional().PhGraph_out, bodies) {
			parts = append(parts, &Graph{core: g.part(raw, n.raw)})
		}
		return nil
	})
	if err != nil {
		return Node{}, nil, err
	}
	return n, parts, nil
}
