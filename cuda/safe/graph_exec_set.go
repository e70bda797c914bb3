package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// node calls f for a node of the graph that e was instantiated from, with both locked.
func (e *GraphExec) node(op string, n Node, f func(*execCore) error) error {
	return e.nodeOnce(op, n, nil, f)
}

// nodeOnce calls f for a node as node does, and before it ready, with the graph locked and the executable not.
func (e *GraphExec) nodeOnce(op string, n Node, ready func() error, f func(*execCore) error) error {
	c, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if n.of == nil || n.of.top() != c.source {
		return refuse(op, ErrForeignNode, "the executable was instantiated from another graph than the node's")
	}
	return c.node(op, n, ready, f)
}

// node calls f with the graph of n and the executable locked, if n is still there, and before it ready with the
// graph locked, if that is not nil. The executable is acquired.
func (e *execCore) node(op string, n Node, ready func() error, f func(*execCore) error) error {
	if err := lock(op, n.of.mu); err != nil {
		return err
	}
	defer n.of.mu.Unlock()
	if n.of.top().Closed() { // see graphCore.enter
		return refuse(op, ErrClosed, "the node's graph is closed")
	}
	if err := n.of.usable(op); err != nil {
		return err
	}
	if n.isGone() {
		return refuse(op, ErrClosed, "the node was destroyed")
	}
	if ready != nil {
		if err := ready(); err != nil {
			return err
		}
	}
	if err := e.enter(op, executables.Slot(0)); err != nil {
		return err
	}
	defer e.leave(executables.Slot(0))
	return wrap(op, f(e))
}

// Set changes the parameters of one node in the executable. n is the node of the graph that the executable was
// instantiated from; that graph must be open, and does not change. Set affects later launches; the objects that
// launches in progress use stay retained until they have completed.
//
// It returns [ErrForeignNode] for a node of another graph, and [ErrInvalidArgument] if w is for another type of node or
// CUDA cannot change nodes of this type in an executable. CUDA refuses to change a kernel node that was captured on a
// stream of a green context, with driver.CUDA_ERROR_INVALID_VALUE: capture again, and use [GraphExec.Update]. Source:
// functions such as cuGraphExecKernelNodeSetParams.
func (e *GraphExec) Set(n Node, w NodeParams) error { return e.set("GraphExec.Set", n, &w) }

func (e *GraphExec) set(op string, n Node, w *NodeParams) error {
	if n.of == nil {
		return &Error{Op: op, Err: ErrClosed}
	}
	if w.other == nil {
		return e.setKernel(op, n, w)
	}
	return e.setOther(op, n, w)
}

// setOther gives a node that is no kernel the parameters w in the executable, which then retains what w uses.
func (e *GraphExec) setOther(op string, n Node, w *NodeParams) error {
	u, err := taken(op, w, n.of)
	if err != nil {
		return err
	}
	defer u.finish()
	err = e.nodeOnce(op, n, u.ready, func(c *execCore) error {
		if err := n.fits(op, w.kind()); err != nil {
			return err
		}
		if err := u.setExec(c.raw, n); err != nil {
			return err
		}
		if before := c.kept.set(n.raw, u.kept); before != nil && u.kept.sameObjects(before) {
			before.release()
		} else {
			c.replaced(before)
		}
		return nil
	})
	if err != nil {
		u.kept.release()
	}
	return err
}

// setKernel gives a kernel node the parameters w in the executable, which then retains what w uses.
func (e *GraphExec) setKernel(op string, n Node, w *NodeParams) error {
	var listed objectList
	if err := w.kernel.each(op, listed.add); err != nil {
		return err
	}
	return e.node(op, n, func(c *execCore) error {
		if err := n.fits(op, w.kind()); err != nil {
			return err
		}
		return w.changeKernel(op, n, c.kept, &listed, func() error { return w.kernel.setExec(c.raw, n) }, c.replaced)
	})
}

// SetEnabled enables or disables one node in later launches of the executable. A disabled node
// does nothing, but nodes that depend on it still wait for its dependencies. n is a kernel or
// copy node of the graph that the executable was instantiated from, which must be open. It
// returns [ErrNotSupported] if it would disable a fill node of CUDA (a memset), because drivers then
// lose the order of the nodes before and after it. A [FillNode] that is a kernel node can be disabled.
// Source: cuGraphNodeSetEnabled.
func (e *GraphExec) SetEnabled(n Node, on bool) error {
	const op = "GraphExec.SetEnabled"
	return e.node(op, n, func(c *execCore) error {
		if n.kind == driver.CU_GRAPH_NODE_TYPE_MEMSET && !on {
			return refuse(op, ErrNotSupported, "the driver loses the order of the nodes around a disabled fill node; use a kernel or a copy to fill")
		}
		var enabled uint32
		if on {
			enabled = 1
		}
		return c.ctx.withCurrent(func() error { return driver.CuGraphNodeSetEnabled(c.raw, n.raw, enabled) })
	})
}
