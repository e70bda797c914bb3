package safe

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Work is what a node of a graph does: see [Graph.Add], [Node.Set] and
// [GraphExec.Set]. What it uses is kept as long as a graph or an executable has it.
// Work may be used for any number of nodes.
type NodeParams interface {
	kind() driver.CUgraphNodeType
	// take has k keep what the work uses, for a node of a graph. release follows, unless
	// it fails.
	take(op string, k *retained, into *graphCore) error
	release()
	// add returns a node also with an error, if there is one and it cannot be
	// destroyed.
	add(g *graphCore, deps []driver.CUgraphNode) (driver.CUgraphNode, error)
	set(n Node) error
	setExec(e driver.CUgraphExec, n Node) error
}

// kernelWork is made often: it takes one crossing into C.
type kernelNode struct {
	kernel *Kernel
	cfg    LaunchConfig
	args   []Arg
	room   [4]Arg
}

// KernelNode is a launch of a kernel, with the arguments as they are now: see
// [Kernel.Launch]. An argument made by [Ref] is read when the node is added or
// set. Cluster, Cooperative and Attributes can be given when a node is added or set
// in a graph, not in an executable; what a node was given once it keeps. Source: cuGraphAddKernelNode,
// cuGraphKernelNodeSetParams, cuGraphKernelNodeSetAttribute,
// cuGraphExecKernelNodeSetParams.
func KernelNode(k *Kernel, cfg LaunchConfig, args ...Arg) NodeParams {
	w := &kernelNode{kernel: k, cfg: cfg}
	w.cfg.Uses = slices.Clone(cfg.Uses)
	w.args = append(w.room[:0], args...)
	return w
}

func (w *kernelNode) kind() driver.CUgraphNodeType { return driver.CU_GRAPH_NODE_TYPE_KERNEL }

func (w *kernelNode) release() {}

func (w *kernelNode) take(op string, k *retained, _ *graphCore) error {
	m, err := w.kernel.acquire(op)
	if err != nil {
		return err
	}
	k.retain(&m.Handle, func() bool { return true }) // k gets the mark
	if bad := w.kernel.check(w.args); bad >= 0 {
		return w.kernel.badArgument(op, w.args, bad)
	}
	keep := func(a *Arg) bool {
		b := a.block()
		return k.retain(&b.Handle, b.Acquire) && m.ctx.mayUse(b)
	}
	for i := range w.args {
		if a := &w.args[i]; a.raw.Kind() == rt.NearOfBlock && !keep(a) {
			return w.kernel.badArgument(op, w.args, i)
		}
	}
	for i := range w.cfg.Uses {
		if a := &w.cfg.Uses[i]; a.raw.Kind() != rt.NearOfBlock || !keep(a) {
			return w.kernel.badUse(op, nil, w.cfg.Uses, i)
		}
	}
	return nil
}

// call adds the node, or changes it.
func (w *kernelNode) call(n *rt.KernelNode, deps []driver.CUgraphNode) error {
	m := w.kernel.module.core
	n.Context, n.Function = m.ctx.raw, w.kernel.function // without a context, adding crashes the driver
	n.Grid, n.Block, n.SharedBytes = w.cfg.Grid.full(), w.cfg.Block.full(), w.cfg.SharedBytes
	n.Deps, n.Args = uint32(len(deps)), uint32(len(w.args))
	var args *rt.Arg
	if len(w.args) > 0 {
		args = &w.args[0].raw
	}
	if code := n.Do(unsafe.SliceData(deps), args); code != 0 {
		return w.kernel.refused(failed("", code), &w.cfg)
	}
	return nil
}

func (w *kernelNode) add(g *graphCore, deps []driver.CUgraphNode) (driver.CUgraphNode, error) {
	n := rt.KernelNode{Graph: g.raw, Call: rt.AddNode}
	err := w.call(&n, deps)
	if err == nil && w.cfg.attributed() {
		if err = g.ctx.withCurrent(func() error { return w.setAttributes(n.Node) }); err != nil && driver.CuGraphDestroyNode(n.Node) == nil {
			n.Node = 0
		}
	}
	return n.Node, err
}

// set sets the attributes first: once the node has the kernel, nothing may fail.
func (w *kernelNode) set(n Node) error {
	if w.cfg.attributed() {
		if err := n.of.ctx.withCurrent(func() error { return w.setAttributes(n.raw) }); err != nil {
			return err
		}
	}
	return w.call(&rt.KernelNode{Node: n.raw, Call: rt.SetNode}, nil)
}

func (w *kernelNode) setExec(e driver.CUgraphExec, n Node) error {
	if w.cfg.attributed() {
		return refuse("", ErrInvalidArgument, "attributes of a kernel in an executable cannot be changed")
	}
	return w.call(&rt.KernelNode{Exec: e, Node: n.raw, Call: rt.SetExecNode}, nil)
}

func (w *kernelNode) setAttributes(n driver.CUgraphNode) error {
	for _, a := range w.cfg.attributes(nil) {
		if err := driver.CuGraphKernelNodeSetAttribute(n, driver.CUkernelNodeAttrID(a.Id), &a.Value); err != nil {
			return err
		}
	}
	return nil
}

// coldWork is all other work: functions that make CUDA's calls, with the graph's
// context current.
type funcNode struct {
	mutex[nodeRank] // from take to release
	typ             driver.CUgraphNodeType
	takes           func(op string, k *retained, into *graphCore) error // nil: nothing
	adds            func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error
	sets            func(n driver.CUgraphNode) error                       // nil: it cannot be changed
	setsExec        func(e driver.CUgraphExec, n driver.CUgraphNode) error // nil: it cannot be changed
	releasing       func()                                                 // nil: nothing
}

func (w *funcNode) kind() driver.CUgraphNodeType { return w.typ }

func (w *funcNode) take(op string, k *retained, into *graphCore) error {
	if err := lock(op, &w.mutex); err != nil || w.takes == nil {
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
		return refuse("", ErrInvalidArgument, "nodes of type %v cannot be changed in a graph", w.typ)
	}
	return n.of.ctx.withCurrent(func() error { return w.sets(n.raw) })
}

func (w *funcNode) setExec(e driver.CUgraphExec, n Node) error {
	if w.setsExec == nil {
		return refuse("", ErrInvalidArgument, "nodes of type %v cannot be changed in an executable", w.typ)
	}
	return n.of.ctx.withCurrent(func() error { return w.setsExec(e, n.raw) })
}

// EmptyNode is no work, but a place to wait for others. Source: cuGraphAddEmptyNode.
func EmptyNode() NodeParams {
	return &funcNode{typ: driver.CU_GRAPH_NODE_TYPE_EMPTY, adds: driver.CuGraphAddEmptyNode}
}

// HostFuncNode is a call of f, at each launch, on a thread of the driver: what is said
// of f and of o at [Stream.LaunchHostFunc] counts here as well.
// Source: cuGraphAddHostNode, cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams;
// with Spin cuGraphAddNode, cuGraphNodeSetParams, cuGraphExecNodeSetParams.
func HostFuncNode(f func(), o HostFuncOptions) NodeParams {
	p := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_HOST}
	old := (*driver.CUDA_HOST_NODE_PARAMS)(unsafe.Pointer(p.Host())) // the newer layout begins with the older
	w := &funcNode{typ: p.Type}
	w.takes = func(op string, k *retained, _ *graphCore) error {
		if f == nil {
			return refuse(op, ErrInvalidArgument, "no function")
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
		return w
	}
	w.adds = func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
		return driver.CuGraphAddHostNode(n, g, deps, count, old)
	}
	w.sets = func(n driver.CUgraphNode) error { return driver.CuGraphHostNodeSetParams(n, old) }
	w.setsExec = func(e driver.CUgraphExec, n driver.CUgraphNode) error {
		return driver.CuGraphExecHostNodeSetParams(e, n, old)
	}
	return w
}

// RecordNode records an event, which [Stream.WaitEvent] of other streams may wait
// for once the graph is launched. Source: cuGraphAddEventRecordNode,
// cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent.
func RecordNode(e *Event) NodeParams {
	return eventWork(driver.CU_GRAPH_NODE_TYPE_EVENT_RECORD, e, driver.CuGraphAddEventRecordNode,
		driver.CuGraphEventRecordNodeSetEvent, driver.CuGraphExecEventRecordNodeSetEvent)
}

// WaitEventNode waits for an event, as it is recorded when the graph is launched.
// Source: cuGraphAddEventWaitNode, cuGraphEventWaitNodeSetEvent,
// cuGraphExecEventWaitNodeSetEvent.
func WaitEventNode(e *Event) NodeParams {
	return eventWork(driver.CU_GRAPH_NODE_TYPE_WAIT_EVENT, e, driver.CuGraphAddEventWaitNode,
		driver.CuGraphEventWaitNodeSetEvent, driver.CuGraphExecEventWaitNodeSetEvent)
}

func eventWork(typ driver.CUgraphNodeType, e *Event,
	add func(*driver.CUgraphNode, driver.CUgraph, *driver.CUgraphNode, uint64, driver.CUevent) error,
	set func(driver.CUgraphNode, driver.CUevent) error,
	setExec func(driver.CUgraphExec, driver.CUgraphNode, driver.CUevent) error,
) NodeParams {
	return &funcNode{
		typ:   typ,
		takes: func(op string, k *retained, _ *graphCore) error { return e.keptBy(op, k) },
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return add(n, g, deps, count, e.core.raw)
		},
		sets:     func(n driver.CUgraphNode) error { return set(n, e.core.raw) },
		setsExec: func(x driver.CUgraphExec, n driver.CUgraphNode) error { return setExec(x, n, e.core.raw) },
	}
}

// keptBy has k keep the event.
func (e *Event) keptBy(op string, k *retained) error {
	if e == nil || e.core == nil || !k.retain(&e.core.Handle, e.core.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	e.core.recorded.Store(true)
	return nil
}

// MemOpsNode does up to 255 memory operations: see [Stream.BatchMemOps].
// Source: cuGraphAddBatchMemOpNode, cuGraphBatchMemOpNodeSetParams,
// cuGraphExecBatchMemOpNodeSetParams.
func MemOpsNode(x *Context, ops ...MemOp) NodeParams {
	batch := make([]driver.CUstreamBatchMemOpParams, len(ops))
	p := driver.CUDA_BATCH_MEM_OP_NODE_PARAMS{Ctx: x.Raw(), Count: uint32(len(ops)), ParamArray: unsafe.SliceData(batch)}
	return &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
		takes: func(op string, k *retained, _ *graphCore) error {
			c, err := x.acquire(op)
			if err != nil {
				return err
			}
			defer c.Release()
			if len(ops) == 0 || len(ops) > mostMemOps {
				return refuse(op, ErrRange, "%d operations, and a batch has 1 to %d", len(ops), mostMemOps)
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
			return pinned(batch, func() error { return driver.CuGraphAddBatchMemOpNode(n, g, deps, count, &p) })
		},
		sets: func(n driver.CUgraphNode) error {
			return pinned(batch, func() error { return driver.CuGraphBatchMemOpNodeSetParams(n, &p) })
		},
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return pinned(batch, func() error { return driver.CuGraphExecBatchMemOpNodeSetParams(e, n, &p) })
		},
	}
}

// pinned calls f, which has C read a batch by an address that lies in memory.
func pinned(batch []driver.CUstreamBatchMemOpParams, f func() error) error {
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(batch))
	defer pin.Unpin()
	return f()
}
