package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// AddAlloc adds a node that allocates memory for n values at each launch, always at
// the same address. Nodes behind it use the buffer, and so does what comes behind the launch
// on a stream, until the memory is freed: by a node that does [FreeNode], by
// [Buffer.FreeAsync], or by the next launch, if the executable was made with
// driver.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH; without that flag a launch
// while it is still allocated is driver.CUDA_ERROR_INVALID_VALUE. Using it while it is not
// allocated is a fault of the program, which CUDA may not survive: [IsFatal]. Close of the buffer frees
// nothing; it is closed with the graph and its executables.
//
// A graph with such a node has one executable at a time, cannot be cloned or be part of
// another, and cannot lose nodes or edges. Source: cuGraphAddMemAllocNode.
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

// FreeNode frees memory that a node of the same or of another graph allocates. Nodes that use it
// must come before. Source: cuGraphAddMemFreeNode.
func FreeNode[T any](b *Buffer[T]) NodeParams {
	return &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_MEM_FREE,
		takes: func(op string, k *retained, _ *graphCore) error {
			if err := b.span().keptBy(op, k); err != nil {
				return err
			}
			return b.ofGraph(op)
		},
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddMemFreeNode(n, g, deps, count, b.address)
		},
	}
}

// ofGraph refuses memory that no graph allocates, and parts of it.
func (b *Buffer[T]) ofGraph(op string) error {
	if !b.memory.graph || b.part {
		return refuse(op, ErrInvalidArgument, "the buffer is not one of AddAlloc")
	}
	return nil
}

// FreeAsync frees memory that a launch of a graph has allocated, see [AddAlloc], in
// the order of a stream, behind all work that uses it. The buffer can be used again when the
// graph is launched again. A capturing stream is [ErrCapturing]. Source: cuMemFreeAsync.
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
	points, err := m.markers()
	defer endAll(points)
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
	for _, p := range points {
		if code := p.orders(sc.callContext, sc.raw); code != 0 {
			return check(op, code)
		}
	}
	m.note(sc)
	return check(op, sc.home().FreeAsync(m.address, sc.raw))
}

// GraphMemory is how much memory the allocations of graphs take on a device, in
// bytes, now and at most so far.
type GraphMemory struct {
	Used, UsedPeak         uint64 // by allocations
	Reserved, ReservedPeak uint64 // by the driver for them
}

// GraphMemory asks for that. Source: cuDeviceGetGraphMemAttribute.
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

// ResetGraphMemoryPeaks has the peaks begin anew. Source: cuDeviceSetGraphMemAttribute.
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

// TrimGraphMemory gives memory of the device back to the system that allocations of graphs have
// used and do not use now. Source: cuDeviceGraphMemTrim.
func (x *Context) TrimGraphMemory() error {
	return x.do("Context.TrimGraphMemory", func() error { return driver.CuDeviceGraphMemTrim(x.core.device.raw) })
}
