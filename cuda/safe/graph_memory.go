package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// AddAlloc adds a node that allocates memory for n values at each launch of the graph,
// always at the same address. The buffer may be used by nodes that depend on this one and
// by work enqueued after the launch, until the memory is freed by one of these:
//
//   - a [FreeNode] in this or another graph
//   - [Buffer.FreeAsync]
//   - the next launch, if the graph was instantiated with
//     [InstantiateOptions].AutoFreeOnLaunch
//
// Without AutoFreeOnLaunch, a launch returns driver.CUDA_ERROR_INVALID_VALUE while the
// memory is still allocated. Do not use the buffer while the memory is not allocated: the
// resulting fault may be fatal, see [IsFatal]. Closing the buffer does not free the memory.
// The buffer is closed with the graph and its executables.
//
// A graph with such a node can have one executable at a time. It can neither be cloned nor
// become a child of another graph, and its nodes and edges cannot be removed.
// AddAlloc returns [ErrInvalidArgument] if T holds Go pointers.
// Source: cuGraphAddMemAllocNode.
func AddAlloc[T any](g *Graph, n int, deps ...Node) (*Buffer[T], Node, error) {
	const op = "AddAlloc"
	size, err := sizeOf[T](n)
	if err != nil {
		return nil, Node{}, wrap(op, err)
	}
	b := &block{size: size, graph: true}
	node := Node{kind: driver.CU_GRAPH_NODE_TYPE_MEM_ALLOC}
	err = g.change(op, func(g *graphCore) error {
		before, _, err := g.dependencies(op, deps, nil)
		if err != nil {
			return err
		}
		if err := b.Open(b, &g.ctx.Handle); err != nil {
			return err
		}
		p := driver.CUDA_MEM_ALLOC_NODE_PARAMS{Bytesize: size}
		p.PoolProps.AllocType = driver.CU_MEM_ALLOCATION_TYPE_PINNED
		p.PoolProps.Location = g.ctx.device.location()
		if err := driver.CuGraphAddMemAllocNode(&node.raw, g.raw, unsafe.SliceData(before), uint64(len(before)), &p); err != nil {
			b.Close()
			return err
		}
		b.ctx, b.address, node = g.ctx, p.Dptr, g.named(node.raw, node.kind)
		k := newRetained()
		k.onRelease = append(k.onRelease, func() { b.Close() })
		g.kept.set(node.raw, k)
		return nil
	})
	if err != nil {
		return nil, Node{}, err
	}
	return &Buffer[T]{memory: &memory{block: b}, address: b.address, n: n}, node, nil
}

// FreeNode is a node that frees the memory of b, a buffer of [AddAlloc] in the same or
// another graph. It must depend on the nodes that use the memory. Using it returns
// [ErrInvalidArgument] if b is any other buffer. Source: cuGraphAddMemFreeNode.
func FreeNode[T any](b *Buffer[T]) NodeParams {
	return &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_MEM_FREE,
		takes: func(op string, k *retained, _ *graphCore) error {
			if err := b.span().retainedBy(op, k); err != nil {
				return err
			}
			return b.ofGraph(op)
		},
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddMemFreeNode(n, g, deps, count, b.address)
		},
	}
}

// ofGraph refuses memory that no graph allocates, and slices of buffers.
func (b *Buffer[T]) ofGraph(op string) error {
	if !b.memory.graph || b.part {
		return refuse(op, ErrInvalidArgument, "the buffer was not made by AddAlloc, or is a slice of one")
	}
	return nil
}

// FreeAsync enqueues on s the release of memory that a launch of a graph has allocated, see
// [AddAlloc]. It is ordered after all enqueued work that uses the memory. The buffer can be
// used again after the next launch of the graph. FreeAsync returns [ErrInvalidArgument] if b
// was not made by [AddAlloc], and [ErrCapturing] if s captures. Source: cuMemFreeAsync.
func (b *Buffer[T]) FreeAsync(s *Stream) error {
	const op = "Buffer.FreeAsync"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := b.ofGraph(op); err != nil {
		return err
	}
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	markers, err := m.markers()
	defer endAll(markers)
	if err != nil {
		return wrap(op, err)
	}
	if err := sc.enterAsk(op); err != nil {
		return err
	}
	defer sc.leave(nil)
	if sc.capturing() {
		return check(op, rt.CodeCapturing)
	}
	for _, marker := range markers {
		if code := marker.orders(sc.callContext, sc.raw); code != 0 {
			return check(op, code)
		}
	}
	m.note(sc)
	return check(op, sc.home().FreeAsync(m.address, sc.raw))
}

// GraphMemory is the memory on a device that graphs allocate (see [AddAlloc]), in bytes:
// the present amounts and the peaks since the process began or
// [Context.ResetGraphMemoryPeaks].
type GraphMemory struct {
	Used, UsedPeak         uint64 // allocated
	Reserved, ReservedPeak uint64 // reserved by the driver for allocations
}

// GraphMemory returns the amounts of graph memory on the context's device.
// Source: cuDeviceGetGraphMemAttribute.
func (x *Context) GraphMemory() (m GraphMemory, err error) {
	err = x.do("Context.GraphMemory", func() error {
		for _, a := range []struct {
			id    driver.CUgraphMem_attribute
			value *uint64
		}{
			{driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &m.Used},
			{driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &m.UsedPeak},
			{driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &m.Reserved},
			{driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &m.ReservedPeak},
		} {
			if err := driver.CuDeviceGetGraphMemAttribute(x.core.device.raw, a.id, unsafe.Pointer(a.value)); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

// ResetGraphMemoryPeaks resets the peaks of [Context.GraphMemory] to the present amounts.
// Source: cuDeviceSetGraphMemAttribute.
func (x *Context) ResetGraphMemoryPeaks() error {
	return x.do("Context.ResetGraphMemoryPeaks", func() error {
		for _, id := range []driver.CUgraphMem_attribute{driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH} {
			var zero uint64
			if err := driver.CuDeviceSetGraphMemAttribute(x.core.device.raw, id, unsafe.Pointer(&zero)); err != nil {
				return err
			}
		}
		return nil
	})
}

// TrimGraphMemory releases memory of the context's device that the driver has reserved for
// graphs and that is not allocated. Source: cuDeviceGraphMemTrim.
func (x *Context) TrimGraphMemory() error {
	return x.do("Context.TrimGraphMemory", func() error { return driver.CuDeviceGraphMemTrim(x.core.device.raw) })
}
