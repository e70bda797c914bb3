package safe

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// NodeParams are the parameters of a graph node: what it does, and with which arguments.
// Functions such as [KernelNode] and [CopyNode] make them; pass them to [Graph.Add],
// [Node.Set] or [GraphExec.Set], for any number of nodes. Graphs and executables retain the
// objects that their nodes use. To read the parameters of a node, see [Node.KernelParams]
// and [Node.Params]. Calls with the zero NodeParams return [ErrInvalidArgument].
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

// take has k, which is not shared yet, retain the objects that a node of a graph will use.
// release follows, unless take fails.
func (w *NodeParams) take(op string, k *retained, into *graphCore) error {
	if w.other != nil {
		return w.other.take(op, k, into)
	}
	return w.kernel.take(op, k)
}

func (w *NodeParams) release() {
	if w.other != nil {
		w.other.release()
	}
}

// add returns a node together with an error if it added the node, failed to complete it, and
// cannot destroy it.
func (w *NodeParams) add(g *graphCore, deps []driver.CUgraphNode) (driver.CUgraphNode, error) {
	if w.other != nil {
		return w.other.add(g, deps)
	}
	return w.kernel.add(g, deps)
}

// funcNode is a node of any type but kernels: functions that make CUDA's calls, with the graph's
// context current.
type funcNode struct {
	admit.Mutex[admit.NodeRank] // from take to release
	typ                         driver.CUgraphNodeType
	takes                       func(op string, k *retained, into *graphCore) error // nil: uses no objects
	adds                        func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error
	sets                        func(n driver.CUgraphNode) error                       // nil: CUDA cannot change it
	setsExec                    func(e driver.CUgraphExec, n driver.CUgraphNode) error // nil: CUDA cannot change it
	releasing                   func()                                                 // may be nil
}

func (w *funcNode) take(op string, k *retained, into *graphCore) error {
	if err := lock(op, &w.Mutex); err != nil || w.takes == nil {
		return err
	}
	err := w.takes(op, k, into)
	if err != nil {
		w.release()
	}
	return err
}

func (w *funcNode) release() {
	if w.releasing != nil {
		w.releasing()
	}
	w.Unlock()
}

func (w *funcNode) add(g *graphCore, deps []driver.CUgraphNode) (n driver.CUgraphNode, err error) {
	err = g.ctx.withCurrent(func() error { return w.adds(&n, g.raw, unsafe.SliceData(deps), uint64(len(deps))) })
	return n, err
}

func (w *funcNode) set(n Node) error {
	if w.sets == nil {
		return refuse("", ErrInvalidArgument, "CUDA cannot change nodes of type %v in a graph", w.typ)
	}
	return n.of.ctx.withCurrent(func() error { return w.sets(n.raw) })
}

func (w *funcNode) setExec(e driver.CUgraphExec, n Node) error {
	if w.setsExec == nil {
		return refuse("", ErrInvalidArgument, "CUDA cannot change nodes of type %v in an executable", w.typ)
	}
	return n.of.ctx.withCurrent(func() error { return w.setsExec(e, n.raw) })
}

// EmptyNode is a node that does nothing. Use it as a join point, to make one set of nodes
// wait for another. Source: cuGraphAddEmptyNode.
func EmptyNode() NodeParams {
	return NodeParams{other: &funcNode{typ: driver.CU_GRAPH_NODE_TYPE_EMPTY, adds: driver.CuGraphAddEmptyNode}}
}

// HostFuncNode is a node that calls f on a thread of the driver, once per launch of the
// graph. The rules of [Stream.LaunchHostFunc] apply: f must not call CUDA.
//
// Source: cuGraphAddHostNode, cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams.
func HostFuncNode(f func()) NodeParams { return HostFuncNodeWith(f, HostFuncOptions{}) }

// HostFuncNodeWith is [HostFuncNode] with options. Source: as there, with Spin cuGraphAddNode, cuGraphNodeSetParams,
// cuGraphExecNodeSetParams.
func HostFuncNodeWith(f func(), o HostFuncOptions) NodeParams {
	p := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_HOST}
	old := (*driver.CUDA_HOST_NODE_PARAMS)(unsafe.Pointer(p.Host())) // the newer layout begins with the older
	w := &funcNode{typ: p.Type}
	w.takes = func(op string, k *retained, _ *graphCore) error {
		if f == nil {
			return noFunction(op)
		}
		if _, err := o.mode(op); err != nil {
			return err
		}
		p.Host().Fn, p.Host().UserData = driver.CUhostFn(rt.HostFunction()), (&closure{host: f, repeat: true}).keep()
		k.token(p.Host().UserData)
		return nil
	}
	if o.Spin {
		p.Host().SyncMode = uint32(driver.CU_HOST_TASK_SPINWAIT)
		w.adds = func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddNode(n, g, deps, nil, count, &p)
		}
		w.sets = func(n driver.CUgraphNode) error { return driver.CuGraphNodeSetParams(n, &p) }
		w.setsExec = func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return driver.CuGraphExecNodeSetParams(e, n, &p)
		}
		return NodeParams{other: w}
	}
	w.adds = func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
		return driver.CuGraphAddHostNode(n, g, deps, count, old)
	}
	w.sets = func(n driver.CUgraphNode) error { return driver.CuGraphHostNodeSetParams(n, old) }
	w.setsExec = func(e driver.CUgraphExec, n driver.CUgraphNode) error {
		return driver.CuGraphExecHostNodeSetParams(e, n, old)
	}
	return NodeParams{other: w}
}

// RecordNode is a node that records an event: the event completes when the nodes that this
// one depends on have completed. After the launch, [Stream.WaitEvent] makes other streams
// wait for it. Source: cuGraphAddEventRecordNode, cuGraphEventRecordNodeSetEvent,
// cuGraphExecEventRecordNodeSetEvent.
func RecordNode(e *Event) NodeParams {
	return eventNode(driver.CU_GRAPH_NODE_TYPE_EVENT_RECORD, e, driver.CuGraphAddEventRecordNode,
		driver.CuGraphEventRecordNodeSetEvent, driver.CuGraphExecEventRecordNodeSetEvent)
}

// WaitEventNode is a node that waits for an event: for its latest record at the launch of
// the graph. Source: cuGraphAddEventWaitNode, cuGraphEventWaitNodeSetEvent,
// cuGraphExecEventWaitNodeSetEvent.
func WaitEventNode(e *Event) NodeParams {
	return eventNode(driver.CU_GRAPH_NODE_TYPE_WAIT_EVENT, e, driver.CuGraphAddEventWaitNode,
		driver.CuGraphEventWaitNodeSetEvent, driver.CuGraphExecEventWaitNodeSetEvent)
}

func eventNode(typ driver.CUgraphNodeType, e *Event,
	add func(*driver.CUgraphNode, driver.CUgraph, *driver.CUgraphNode, uint64, driver.CUevent) error,
	set func(driver.CUgraphNode, driver.CUevent) error,
	setExec func(driver.CUgraphExec, driver.CUgraphNode, driver.CUevent) error,
) NodeParams {
	return NodeParams{other: &funcNode{
		typ:   typ,
		takes: func(op string, k *retained, _ *graphCore) error { return e.retainedBy(op, k) },
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return add(n, g, deps, count, e.core.raw)
		},
		sets: func(n driver.CUgraphNode) error {
			return set(n, e.core.raw)
		},
		setsExec: func(x driver.CUgraphExec, n driver.CUgraphNode) error {
			return setExec(x, n, e.core.raw)
		},
	}}
}

// retainedBy has k retain the event.
func (e *Event) retainedBy(op string, k *retained) error {
	if e == nil || e.core == nil || !k.retain(&e.core.Handle, e.core.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	e.core.recorded.Store(true)
	return nil
}

// MemOpsNode is a node of 1 to 255 memory operations in the context x: see
// [Stream.MemOps]. Source: cuGraphAddBatchMemOpNode, cuGraphBatchMemOpNodeSetParams,
// cuGraphExecBatchMemOpNodeSetParams.
func MemOpsNode(x *Context, ops ...MemOp) NodeParams {
	batch := make([]driver.CUstreamBatchMemOpParams, len(ops))
	p := driver.CUDA_BATCH_MEM_OP_NODE_PARAMS{Ctx: x.Raw(), Count: uint32(len(ops)), ParamArray: unsafe.SliceData(batch)}
	return NodeParams{other: &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
		takes: func(op string, k *retained, _ *graphCore) error {
			c, err := x.acquire(op)
			if err != nil {
				return err
			}
			defer c.Release()
			if len(ops) == 0 || len(ops) > mostMemOps {
				return refuse(op, ErrRange, "%d operations; a batch has 1 to %d", len(ops), mostMemOps)
			}
			if err := c.can(op, ops); err != nil {
				return err
			}
			for i := range ops {
				if err := ops[i].keptBy(op, c, k); err != nil {
					return numbered(err, i, len(ops))
				}
				ops[i].fill(&batch[i])
			}
			return nil
		},
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return explainPooled(pinned(batch, func() error { return driver.CuGraphAddBatchMemOpNode(n, g, deps, count, &p) }), ops)
		},
		sets: func(n driver.CUgraphNode) error {
			return explainPooled(pinned(batch, func() error { return driver.CuGraphBatchMemOpNodeSetParams(n, &p) }), ops)
		},
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return explainPooled(pinned(batch, func() error { return driver.CuGraphExecBatchMemOpNodeSetParams(e, n, &p) }), ops)
		},
	}}
}

// pinned calls f with batch pinned, as its address is inside a struct that C reads.
func pinned(batch []driver.CUstreamBatchMemOpParams, f func() error) error {
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(batch))
	defer pin.Unpin()
	return f()
}

// String names the type of the nodes.
func (w NodeParams) String() string {
	if w.other == nil && !w.kernel.made {
		return neverOpened("NodeParams")
	}
	return fmt.Sprint("NodeParams: ", w.kind())
}

// CopyNode is a node that copies all of src to the start of dst. Either may be device memory
// or pinned host memory. Using it returns [ErrRange] if src is longer than dst, and
// [ErrOverlap] if they overlap. CUDA changes a copy node of an executable only to memory of
// the same devices. Source: cuGraphAddMemcpyNode, cuGraphMemcpyNodeSetParams,
// cuGraphExecMemcpyNodeSetParams.
func CopyNode[T any](dst, src Memory[T]) NodeParams {
	to, from := spanOf(dst), spanOf(src)
	var ctx driver.CUcontext
	p := driver.CUDA_MEMCPY3D{WidthInBytes: from.size, Height: 1, Depth: 1}
	p.SrcMemoryType, p.SrcDevice, p.SrcHost = from.side()
	p.DstMemoryType, p.DstDevice, p.DstHost = to.side()
	return NodeParams{other: &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_MEMCPY,
		takes: func(op string, k *retained, _ *graphCore) error {
			for _, s := range []*span{&to, &from} {
				if err := s.retainedBy(op, k); err != nil {
					return err
				}
			}
			ctx = to.memory.ctx.raw
			if to.host != nil {
				ctx = from.memory.ctx.raw
			}
			if err := from.some(op); err != nil {
				return err
			}
			_, _, err := to.copyFrom(op, &from)
			return err
		},
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddMemcpyNode(n, g, deps, count, &p, ctx)
		},
		sets: func(n driver.CUgraphNode) error { return driver.CuGraphMemcpyNodeSetParams(n, &p) },
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return driver.CuGraphExecMemcpyNodeSetParams(e, n, &p, ctx)
		},
	}}
}

// side returns the span as the source or the destination of a copy in CUDA's form.
func (s *span) side() (driver.CUmemorytype, driver.CUdeviceptr, unsafe.Pointer) {
	if s.host != nil {
		return driver.CU_MEMORYTYPE_HOST, 0, s.host
	}
	return driver.CU_MEMORYTYPE_DEVICE, s.at, nil
}

// FillNode is a node that sets every value of m to v. If T has 1, 2 or 4 bytes, that is a fill
// node of CUDA (a memset), which it changes in an executable only to memory of the same device;
// for other types it is a kernel node: see [Buffer.Fill]. Using it returns [ErrInvalidArgument]
// if T has more than 4,000 bytes. Source: cuGraphAddMemsetNode, cuGraphMemsetNodeSetParams,
// cuGraphExecMemsetNodeSetParams, cuGraphAddKernelNode, cuGraphKernelNodeSetParams,
// cuGraphExecKernelNodeSetParams.
func FillNode[T any](m Memory[T], v T) NodeParams {
	s := spanOf(m)
	f, err := filling("", v, s.n)
	return fillNode(s, f, err)
}

// ZeroNode is a node that sets every byte of m to 0, for any type T: a fill node of CUDA.
// Source: cuGraphAddMemsetNode, cuGraphMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams.
func ZeroNode[T any](m Memory[T]) NodeParams {
	s := spanOf(m)
	return fillNode(s, zeroing(s.size), nil)
}

// fillNode is the fill f of s. err, if not nil, is reported when the node is used.
func fillNode(s span, f fill, err error) NodeParams {
	w := &funcNode{typ: f.nodeType()}
	if err == nil && s.n > 0 {
		err = s.fills(w, f)
	}
	w.takes = func(op string, k *retained, _ *graphCore) error {
		if err := s.retainedBy(op, k); err != nil {
			return err
		}
		if err != nil {
			return wrap(op, err)
		}
		return s.some(op)
	}
	return NodeParams{other: w}
}

// fills makes w the node of a fill of s.
func (s *span) fills(w *funcNode, f fill) error {
	b, err := s.memory.acquire("")
	if err != nil {
		return err
	}
	defer b.Release()
	at, err := s.onDevice("")
	if err != nil {
		return err
	}
	return f.node(w, b.ctx, at)
}

// taken retains what w uses, before the graph is locked. Unless it fails, w must be released.
func taken(op string, w *NodeParams, into *graphCore) (*retained, error) {
	k := newRetained()
	if err := w.take(op, k, into); err != nil {
		k.release()
		return nil, err
	}
	return k, nil
}
