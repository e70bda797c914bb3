package safe

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// NodeParams are the parameters of a graph node: what it does, and with which arguments.
// Functions such as [KernelNode] and [CopyNode] make them; pass them to [Graph.Add],
// [Node.Set] or [GraphExec.Set], for any number of nodes. Graphs and executables retain the
// objects that their nodes use. To read the parameters of a node, see [Node.Params].
// Calls with the zero NodeParams return [ErrInvalidArgument].
type NodeParams struct {
	kernel kernelNode // a value: programs make NodeParams for each node and each change
	other  *funcNode  // instead, for all other types
}

func (w *NodeParams) kind() driver.CUgraphNodeType {
	if w.other != nil {
		return w.other.typ
	}
	return driver.CU_GRAPH_NODE_TYPE_KERNEL
}

// funcNode is a node of any type but kernels. take makes CUDA's calls for one use of the parameters, and has k, which
// is not shared yet, retain the objects that the node will use.
type funcNode struct {
	typ  driver.CUgraphNodeType
	take func(op string, k *retained, into *graphCore) (nodeCalls, error)
}

// nodeCalls make CUDA's calls for one use of a node's parameters, with the graph locked and its context current.
type nodeCalls struct {
	adds     func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error
	sets     func(n driver.CUgraphNode) error                       // nil: CUDA cannot change it
	setsExec func(e driver.CUgraphExec, n driver.CUgraphNode) error // nil: CUDA cannot change it
	ready    func() error                                           // before adds or setsExec, with no executable locked; may be nil
	over     func()                                                 // may be nil
}

// A nodeUse is one use of the parameters of a node, from taken to finish.
type nodeUse struct {
	kept      *retained // the objects that the node will use
	nodeCalls           // none for a kernel
}

// taken takes w to add a node to a graph or to change one, before the graph is locked. finish follows, unless taken
// fails.
func taken(op string, w *NodeParams, into *graphCore) (u nodeUse, err error) {
	u.kept = newRetained()
	if w.other != nil {
		u.nodeCalls, err = w.other.take(op, u.kept, into)
	} else {
		err = w.kernel.take(op, u.kept)
	}
	if err != nil {
		u.kept.release()
	}
	return u, err
}

func (c *nodeCalls) finish() {
	if c.over != nil {
		c.over()
	}
}

// add returns a node together with an error if it added the node, failed to complete it, and
// cannot destroy it.
func (w *NodeParams) add(u *nodeUse, g *graphCore, deps []driver.CUgraphNode) (driver.CUgraphNode, error) {
	if w.other != nil {
		return u.add(g, deps)
	}
	return w.kernel.add(g, deps)
}

func (c *nodeCalls) add(g *graphCore, deps []driver.CUgraphNode) (n driver.CUgraphNode, err error) {
	if err := c.prepare(); err != nil {
		return 0, err
	}
	err = g.ctx.withCurrent(func() error { return c.adds(&n, g.raw, unsafe.SliceData(deps), uint64(len(deps))) })
	return n, err
}

// prepare calls ready, once.
func (c *nodeCalls) prepare() error {
	ready := c.ready
	if c.ready = nil; ready == nil {
		return nil
	}
	return ready()
}

func (c nodeCalls) set(n Node) error {
	if c.sets == nil {
		return refuse("", ErrInvalidArgument, "CUDA cannot change nodes of type %v in a graph", n.kind)
	}
	return n.of.ctx.withCurrent(func() error { return c.sets(n.raw) })
}

func (c nodeCalls) setExec(e driver.CUgraphExec, n Node) error {
	if c.setsExec == nil {
		return refuse("", ErrInvalidArgument, "CUDA cannot change nodes of type %v in an executable", n.kind)
	}
	return n.of.ctx.withCurrent(func() error { return c.setsExec(e, n.raw) })
}

// always returns a take for calls that are the same for each use, of a node that uses what retain has k retain.
func always(calls nodeCalls, retain func(op string, k *retained) error) func(string, *retained, *graphCore) (nodeCalls, error) {
	return func(op string, k *retained, _ *graphCore) (nodeCalls, error) { return calls, retain(op, k) }
}

// EmptyNode returns the parameters of a node that does nothing. Use it as a join point, to make one set of nodes wait
// for another. Source: cuGraphAddEmptyNode.
func EmptyNode() NodeParams {
	calls := nodeCalls{adds: driver.CuGraphAddEmptyNode}
	return NodeParams{other: &funcNode{driver.CU_GRAPH_NODE_TYPE_EMPTY, always(calls, func(string, *retained) error { return nil })}}
}

// HostFuncNode returns the parameters of a node that calls f on a thread of the driver, once per launch of the graph.
// The rules of [Stream.LaunchHostFunc] apply: f must not call CUDA.
//
// Source: cuGraphAddHostNode, cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams.
func HostFuncNode(f func()) NodeParams {
	take := func(op string, k *retained, _ *graphCore) (c nodeCalls, err error) {
		if f == nil {
			return c, noFunction(op)
		}
		token := (&closure{host: f, repeat: true}).keep()
		k.token(token)
		return hostNode(token), nil
	}
	return NodeParams{other: &funcNode{driver.CU_GRAPH_NODE_TYPE_HOST, take}}
}

// hostNode makes the calls for a node that calls the function of a token.
func hostNode(token uintptr) nodeCalls {
	p := &driver.CUDA_HOST_NODE_PARAMS{Fn: driver.CUhostFn(rt.HostFunction()), UserData: token}
	return nodeCalls{
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddHostNode(n, g, deps, count, p)
		},
		sets: func(n driver.CUgraphNode) error { return driver.CuGraphHostNodeSetParams(n, p) },
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return driver.CuGraphExecHostNodeSetParams(e, n, p)
		},
	}
}

// RecordNode returns the parameters of a node that records an event: the event completes when the nodes that this one
// depends on have completed. After the launch, [Stream.WaitEvent] makes other streams wait for it. Source:
// cuGraphAddEventRecordNode, cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent.
func RecordNode(e *Event) NodeParams {
	return eventNode(driver.CU_GRAPH_NODE_TYPE_EVENT_RECORD, e, driver.CuGraphAddEventRecordNode,
		driver.CuGraphEventRecordNodeSetEvent, driver.CuGraphExecEventRecordNodeSetEvent)
}

// WaitEventNode returns the parameters of a node that waits for the record of an event that is the latest when the
// graph is launched. Source: cuGraphAddEventWaitNode, cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent.
func WaitEventNode(e *Event) NodeParams {
	return eventNode(driver.CU_GRAPH_NODE_TYPE_WAIT_EVENT, e, driver.CuGraphAddEventWaitNode,
		driver.CuGraphEventWaitNodeSetEvent, driver.CuGraphExecEventWaitNodeSetEvent)
}

func eventNode(typ driver.CUgraphNodeType, e *Event,
	add func(*driver.CUgraphNode, driver.CUgraph, *driver.CUgraphNode, uint64, driver.CUevent) error,
	set func(driver.CUgraphNode, driver.CUevent) error,
	setExec func(driver.CUgraphExec, driver.CUgraphNode, driver.CUevent) error,
) NodeParams {
	calls := nodeCalls{
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return add(n, g, deps, count, e.core.raw)
		},
		sets:     func(n driver.CUgraphNode) error { return set(n, e.core.raw) },
		setsExec: func(x driver.CUgraphExec, n driver.CUgraphNode) error { return setExec(x, n, e.core.raw) },
	}
	return NodeParams{other: &funcNode{typ, always(calls, e.retainedBy)}}
}

// retainedBy has k retain the event.
func (e *Event) retainedBy(op string, k *retained) error {
	if e == nil || e.core == nil || !k.retain(&e.core.Handle, e.core.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	e.core.recorded.Store(true)
	return nil
}

// MemOpsNode returns the parameters of a node with 1 to 255 memory operations in the context x: see [Stream.MemOps].
// Source: cuGraphAddBatchMemOpNode, cuGraphBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams.
func MemOpsNode(x *Context, ops ...MemOp) NodeParams {
	ops = slices.Clone(ops) // the program may change its slice
	take := func(op string, k *retained, _ *graphCore) (calls nodeCalls, err error) {
		c, err := x.acquire(op)
		if err != nil {
			return calls, err
		}
		defer c.Release()
		if len(ops) == 0 || len(ops) > mostMemOps {
			return calls, refuse(op, ErrRange, "%d operations; a batch has 1 to %d", len(ops), mostMemOps)
		}
		if err := c.can(op, ops); err != nil {
			return calls, err
		}
		for i := range ops {
			if err := ops[i].keptBy(op, c, k); err != nil {
				return calls, numbered(err, i, len(ops))
			}
		}
		return memOpsNode(c, ops), nil
	}
	return NodeParams{other: &funcNode{driver.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, take}}
}

func memOpsNode(c *contextCore, ops []MemOp) nodeCalls {
	batch := make([]driver.CUstreamBatchMemOpParams, len(ops))
	for i := range ops {
		ops[i].fill(&batch[i])
	}
	p := driver.CUDA_BATCH_MEM_OP_NODE_PARAMS{Ctx: c.raw, Count: uint32(len(ops)), ParamArray: &batch[0]}
	return nodeCalls{
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return explainPooled(pinned(batch, func() error { return driver.CuGraphAddBatchMemOpNode(n, g, deps, count, &p) }), ops)
		},
		sets: func(n driver.CUgraphNode) error {
			return explainPooled(pinned(batch, func() error { return driver.CuGraphBatchMemOpNodeSetParams(n, &p) }), ops)
		},
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return explainPooled(pinned(batch, func() error { return driver.CuGraphExecBatchMemOpNodeSetParams(e, n, &p) }), ops)
		},
	}
}

// pinned calls f with batch pinned, as its address is inside a struct that C reads.
func pinned(batch []driver.CUstreamBatchMemOpParams, f func() error) error {
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(batch))
	defer pin.Unpin()
	return f()
}

// CopyNode returns the parameters of a node that copies all of src to the start of dst. Either may be device memory or
// pinned host memory. Calls with these parameters return [ErrRange] if src is longer than dst, and [ErrOverlap] if they
// overlap. CUDA changes a copy node of an executable only to memory of the same devices. Source: cuGraphAddMemcpyNode,
// cuGraphMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams.
func CopyNode[T any](dst, src Memory[T]) NodeParams {
	to, from := spanOf(dst), spanOf(src)
	take := func(op string, k *retained, _ *graphCore) (calls nodeCalls, err error) {
		for _, s := range []*span{&to, &from} {
			if err := s.retainedBy(op, k); err != nil {
				return calls, err
			}
		}
		if err := from.some(op); err != nil {
			return calls, err
		}
		if _, _, err := to.copyFrom(op, &from); err != nil {
			return calls, err
		}
		return to.copyNode(&from), nil
	}
	return NodeParams{other: &funcNode{driver.CU_GRAPH_NODE_TYPE_MEMCPY, take}}
}

// copyNode makes the calls for a node that copies all of from to the start of s.
func (s *span) copyNode(from *span) nodeCalls {
	ctx := s.memory.ctx.raw
	if s.host != nil {
		ctx = from.memory.ctx.raw
	}
	p := driver.CUDA_MEMCPY3D{WidthInBytes: from.size, Height: 1, Depth: 1}
	p.SrcMemoryType, p.SrcDevice, p.SrcHost = from.side()
	p.DstMemoryType, p.DstDevice, p.DstHost = s.side()
	return nodeCalls{
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddMemcpyNode(n, g, deps, count, &p, ctx)
		},
		sets: func(n driver.CUgraphNode) error { return driver.CuGraphMemcpyNodeSetParams(n, &p) },
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return driver.CuGraphExecMemcpyNodeSetParams(e, n, &p, ctx)
		},
	}
}

// side returns the span as the source or the destination of a copy in CUDA's form.
func (s *span) side() (driver.CUmemorytype, driver.CUdeviceptr, unsafe.Pointer) {
	if s.host != nil {
		return driver.CU_MEMORYTYPE_HOST, 0, s.host
	}
	return driver.CU_MEMORYTYPE_DEVICE, s.at, nil
}

// FillNode returns the parameters of a node that sets every value of m to v. If T has 1 byte, or 2 or 4 and is aligned
// to its size, that is a fill node of CUDA (a memset), which it changes in an executable only to memory of the same
// device; for other types it is a kernel node: see [Buffer.Fill]. Calls with these parameters return
// [ErrInvalidArgument] if T has more than 4,000 bytes that are not all 0. Source: cuGraphAddMemsetNode,
// cuGraphMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, cuGraphAddKernelNode, cuGraphKernelNodeSetParams,
// cuGraphExecKernelNodeSetParams.
func FillNode[T any](m Memory[T], v T) NodeParams {
	s := spanOf(m)
	f, err := valued("", v, s.n)
	if err != nil {
		f, err = filling("", v, s.n)
	}
	return fillNode(s, f, err)
}

// fillNode is the fill f of s. err, if not nil, is reported when the node is used.
func fillNode(s span, f fill, err error) NodeParams {
	var calls nodeCalls
	if err == nil && s.n > 0 {
		calls, err = s.fillCalls(f)
	}
	return NodeParams{other: &funcNode{f.nodeType(), always(calls, func(op string, k *retained) error {
		if err := s.retainedBy(op, k); err != nil {
			return err
		}
		if err != nil {
			return wrap(op, err)
		}
		return s.some(op)
	})}}
}

// fillCalls makes the calls for a node that fills s.
func (s *span) fillCalls(f fill) (calls nodeCalls, err error) {
	b, err := s.memory.acquire("")
	if err != nil {
		return calls, err
	}
	defer b.Release()
	at, err := s.onDevice("")
	if err != nil {
		return calls, err
	}
	return f.node(b.ctx, at)
}
