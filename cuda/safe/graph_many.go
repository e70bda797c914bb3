package safe

import (
	"fmt"
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A NodeSpec is a node for [Graph.AddAll].
type NodeSpec struct {
	Params NodeParams
	Deps   []Node // nodes of the graph that it depends on
	After  []int  // indices of earlier nodes of the same call that it depends on
}

// AddAll adds many nodes and returns them in order: see [Graph.Add] for each. It is faster
// than single calls: successive kernel nodes without launch attributes take one call into C.
//
// If a node cannot be added, AddAll destroys those that it has added and returns the error, whose
// Detail has the node's index. In a graph with nodes that allocate or free memory, CUDA cannot
// destroy them: they then stay. It returns [ErrRange] if an index in After does not name an
// earlier node. Source: as for the single nodes.
func (g *Graph) AddAll(specs ...NodeSpec) ([]Node, error) {
	const op = "Graph.AddAll"
	c, err := g.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	nodes := make([]Node, 0, len(specs))
	for len(nodes) < len(specs) {
		nodes, err = c.addSome(op, specs, nodes)
		if err != nil {
			err = placed(op, fmt.Sprint("node ", len(nodes)), err)
			for i := len(nodes) - 1; i >= 0; i-- {
				nodes[i].Destroy() // a node that cannot be destroyed stays
			}
			return nil, err
		}
	}
	return nodes, nil
}

// addSome adds as many nodes as it can at once, or one.
func (g *graphCore) addSome(op string, specs []NodeSpec, nodes []Node) ([]Node, error) {
	from := len(nodes)
	r, err := takeNodes(op, len(specs)-from, func(i int) *NodeParams { return &specs[from+i].Params }, g)
	if err != nil {
		return nodes, err
	}
	defer r.over()
	if len(r.works) == 0 {
		r.kept.release()
		return g.addSingle(op, &specs[from], nodes)
	}
	if err := lock(op, g.mu); err != nil {
		r.kept.release()
		return nodes, err
	}
	defer g.mu.Unlock()
	err = g.changeable(op)
	for i := 0; err == nil && i < len(r.works); i++ {
		if err = r.resolve(op, g, &specs[from+i], nodes, from+i); err != nil && i > 0 {
			r.works, err = r.works[:i], nil // the next call returns the error
			break
		}
		r.add(r.works[i])
	}
	if err != nil {
		r.kept.release()
		return nodes, err
	}
	r.raw = slices.Grow(r.raw, len(r.works))[:len(r.works)]
	done, err := r.do(op, uintptr(g.raw), rt.AddNode)
	g.kept.addAll(r.raw[:done], r.keptBy(done))
	for _, raw := range r.raw[:done] {
		nodes = append(nodes, g.named(raw, driver.CU_GRAPH_NODE_TYPE_KERNEL))
	}
	return nodes, err
}

// addSingle adds one node of any kind.
func (g *graphCore) addSingle(op string, spec *NodeSpec, nodes []Node) ([]Node, error) {
	deps := append([]Node(nil), spec.Deps...)
	for _, i := range spec.After {
		if i < 0 || i >= len(nodes) {
			return nodes, refuse(op, ErrRange, "After has %d", i)
		}
		deps = append(deps, nodes[i])
	}
	n, err := g.addNode(op, &spec.Params, deps, (*graphCore).lock)
	if err != nil {
		return nodes, err
	}
	return append(nodes, n), nil
}

// resolve finds the dependencies of node n, of which nodes exist already, and those among the
// following nodes, counted from there.
func (r *nodeRun) resolve(op string, g *graphCore, spec *NodeSpec, nodes []Node, n int) (err error) {
	r.after = r.after[:0]
	if r.deps, err = g.appendNodes(op, r.deps[:0], spec.Deps); err != nil {
		return err
	}
	for _, i := range spec.After {
		switch {
		case i < 0 || i >= n:
			return refuse(op, ErrRange, "After has %d", i)
		case i >= len(nodes):
			r.after = append(r.after, i-len(nodes))
		case !g.has(nodes[i]):
			return refuse(op, ErrForeignNode, "node %d was destroyed", i)
		default:
			r.deps = append(r.deps, nodes[i].raw)
		}
	}
	return nil
}

// A NodeChange is new parameters for a node, for [Graph.SetAll] and [GraphExec.SetAll].
type NodeChange struct {
	Node   Node
	Params NodeParams
}

// SetAll changes the parameters of many nodes: see [Node.Set] for each. Successive changes of
// kernel nodes without launch attributes take one call into C. If a change fails, the ones
// before it stay, and the error's Detail has its index. It returns [ErrForeignNode] for a node
// of another graph. Source: as for the single nodes.
func (g *Graph) SetAll(changes ...NodeChange) error {
	const op = "Graph.SetAll"
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return eachChange(op, changes, func(changes []NodeChange) (int, error) { return c.setSome(op, changes) })
}

// eachChange calls set until all changes are done. set returns how many of the first it has
// done.
func eachChange(op string, changes []NodeChange, set func([]NodeChange) (int, error)) error {
	for at := 0; at < len(changes); {
		done, err := set(changes[at:])
		if at += done; err != nil {
			return placed(op, fmt.Sprint("change ", at), err)
		}
	}
	return nil
}

func (g *graphCore) setSome(op string, changes []NodeChange) (done int, err error) {
	if changes[0].Node.of != g {
		return 0, &Error{Op: op, Err: ErrForeignNode}
	}
	r, err := takeNodes(op, len(changes), func(i int) *NodeParams { return &changes[i].Params }, g)
	if err != nil {
		return 0, err
	}
	defer r.over()
	if len(r.works) == 0 {
		r.kept.release()
		if err := changes[0].Node.set(op, &changes[0].Params, (*graphCore).lock); err != nil {
			return 0, err
		}
		return 1, nil
	}
	if err := lock(op, g.mu); err != nil {
		r.kept.release()
		return 0, err
	}
	defer g.mu.Unlock()
	if err = g.changeable(op); err == nil {
		err = r.addChanges(op, changes)
	}
	if err != nil {
		r.kept.release()
		return 0, err
	}
	done, err = r.do(op, 0, rt.SetNode)
	g.kept.setAll(r.raw[:done], r.keptBy(done), (*retained).release)
	return done, err
}

// SetAll changes the parameters of many nodes in the executable: see [GraphExec.Set] for
// each. Successive changes of kernel nodes take one call into C. If a change fails, the ones
// before it stay, and the error's Detail has its index. Source: as for the single nodes.
func (e *GraphExec) SetAll(changes ...NodeChange) error {
	const op = "GraphExec.SetAll"
	c, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return eachChange(op, changes, func(changes []NodeChange) (int, error) { return e.setSome(op, changes) })
}

func (e *GraphExec) setSome(op string, changes []NodeChange) (done int, err error) {
	n := changes[0].Node
	if n.of == nil {
		return 0, &Error{Op: op, Err: ErrClosed}
	}
	r, err := takeNodes(op, len(changes), func(i int) *NodeParams { return &changes[i].Params }, n.of)
	if err != nil {
		return 0, err
	}
	defer r.over()
	if len(r.works) == 0 {
		r.kept.release()
		if err := e.set(op, n, &changes[0].Params); err != nil {
			return 0, err
		}
		return 1, nil
	}
	refused := e.node(op, n, func(c *execCore) error {
		if err := r.addChanges(op, changes); err != nil {
			return err
		}
		done, err = r.do(op, uintptr(c.raw), rt.SetExecNode)
		c.kept.setAll(r.raw[:done], r.keptBy(done), c.replaced)
		return nil
	})
	if refused != nil {
		r.kept.release()
		return 0, refused
	}
	return done, err
}

// nodeRuns are for reuse of their memory.
var nodeRuns = sync.Pool{New: func() any { return new(nodeRun) }}

// over gives the memory back.
func (r *nodeRun) over() {
	clear(r.works[:min(r.taken, cap(r.works))]) // some may have been left out since
	r.works, r.kept, r.taken, r.words, r.raw = r.works[:0], nil, 0, r.words[:0], r.raw[:0]
	nodeRuns.Put(r)
}

// A nodeRun is a list of kernel nodes that one crossing adds or changes.
type nodeRun struct {
	works []*kernelNode
	kept  *retained // what all of them use, and those of taken that are none of them
	taken int
	words []uint64
	raw   []driver.CUgraphNode

	node  rt.KernelNode        // of the latest add
	deps  []driver.CUgraphNode // of the next add
	after []int                // nodes of the run that it depends on, too
}

// takeNodes retains what the first of n nodes use, as far as one crossing can add or change them:
// kernel nodes of one context without launch attributes.
func takeNodes(op string, n int, params func(i int) *NodeParams, into *graphCore) (*nodeRun, error) {
	r := nodeRuns.Get().(*nodeRun)
	r.kept = newRetained()
	for i := range n {
		p := params(i)
		w := &p.kernel
		if p.other != nil || w.attributed() {
			break
		}
		r.taken++
		if err := w.take(op, r.kept); err != nil {
			if len(r.works) > 0 {
				break // the next call returns the error
			}
			r.kept.release()
			r.over()
			return nil, err
		}
		if len(r.works) > 0 && w.context().raw != r.context().raw {
			break
		}
		r.works = append(r.works, w)
	}
	return r, nil
}

// keptBy returns what the first nodes use, in the place of kept. They must be the only ones
// that were added or changed.
func (r *nodeRun) keptBy(done int) *retained {
	if done == r.taken {
		return r.kept
	}
	k := newRetained()
	for _, w := range r.works[:done] {
		w.keep(k)
	}
	r.kept.release()
	return k
}

func (r *nodeRun) context() *contextCore { return r.works[0].context() }

// add adds a node to the list.
func (r *nodeRun) add(w *kernelNode) {
	args := w.fill(&r.node)
	r.words = r.node.Append(r.words, args, r.deps, r.after)
}

// addChanges adds the first changes to the list, up to one that is refused or is of another
// graph.
func (r *nodeRun) addChanges(op string, changes []NodeChange) error {
	r.raw, r.deps, r.after = slices.Grow(r.raw, len(r.works)), r.deps[:0], r.after[:0]
	for i, w := range r.works {
		n := changes[i].Node
		var err error
		if n.of == changes[0].Node.of {
			err = n.fits(op, driver.CU_GRAPH_NODE_TYPE_KERNEL)
		} else if i > 0 {
			err = ErrForeignNode
		}
		if err != nil && i == 0 {
			return err
		} else if err != nil {
			r.works = r.works[:i]
			break
		}
		r.raw = append(r.raw, n.raw)
		r.add(w)
	}
	return nil
}

// do adds or changes the nodes, and returns how many.
func (r *nodeRun) do(op string, of uintptr, call rt.NodeCall) (done int, err error) {
	c := r.context()
	code, done := rt.KernelNodes(c.raw, of, call, r.words, r.raw)
	if code != 0 {
		err = r.works[done].refused(op, code)
	}
	return done, err
}
