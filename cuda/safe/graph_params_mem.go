package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Memory is memory for values of type T: a [Buffer] or a [Pinned].
type Memory[T any] interface {
	Len() int
	span() span[T]
}

// A span is where a [Memory] lies.
type span[T any] struct {
	memory  *memory
	address driver.CUdeviceptr // of a device
	host    *T
	n       int
}

func (b *Buffer[T]) span() span[T] {
	if b == nil {
		return span[T]{}
	}
	return span[T]{memory: b.memory, address: b.address, n: b.n}
}

func (h *Pinned[T]) span() span[T] {
	if h == nil {
		return span[T]{}
	}
	return span[T]{memory: h.memory, host: (*T)(h.data), n: h.n}
}

func spanOf[T any](m Memory[T]) span[T] {
	if m == nil {
		return span[T]{}
	}
	return m.span()
}

// keptBy has k keep the memory.
func (s span[T]) keptBy(op string, k *retained) error {
	if s.memory == nil || !k.retain(&s.memory.Handle, s.memory.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return nil
}

// at is where it begins, for devices: the host's memory has the same address there.
func (s span[T]) at() driver.CUdeviceptr {
	if s.host != nil {
		return driver.CUdeviceptr(uintptr(unsafe.Pointer(s.host)))
	}
	return s.address
}

func (s span[T]) size() uint64 {
	var zero T
	return uint64(s.n) * uint64(unsafe.Sizeof(zero))
}

// CopyNode copies all of src to the beginning of dst, which must have room for it.
// Either may be of a device or pinned memory of the host. In an executable it can be changed to
// memory of the same devices. Source: cuGraphAddMemcpyNode, cuGraphMemcpyNodeSetParams,
// cuGraphExecMemcpyNodeSetParams.
func CopyNode[T any](dst, src Memory[T]) NodeParams {
	to, from := spanOf(dst), spanOf(src)
	var ctx driver.CUcontext
	p := driver.CUDA_MEMCPY3D{WidthInBytes: from.size(), Height: 1, Depth: 1}
	p.SrcMemoryType, p.SrcDevice, p.SrcHost = from.end()
	p.DstMemoryType, p.DstDevice, p.DstHost = to.end()
	return &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_MEMCPY,
		takes: func(op string, k *retained, _ *graphCore) error {
			for _, s := range []span[T]{to, from} {
				if err := s.keptBy(op, k); err != nil {
					return err
				}
			}
			ctx = to.memory.ctx.raw
			if to.host != nil {
				ctx = from.memory.ctx.raw
			}
			if err := fits(op, from.n, to.n); err != nil {
				return err
			}
			return apart(op, to.at(), from.at(), from.size())
		},
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddMemcpyNode(n, g, deps, count, &p, ctx)
		},
		sets: func(n driver.CUgraphNode) error { return driver.CuGraphMemcpyNodeSetParams(n, &p) },
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return driver.CuGraphExecMemcpyNodeSetParams(e, n, &p, ctx)
		},
	}
}

// end is the span as an end of a copy.
func (s span[T]) end() (driver.CUmemorytype, driver.CUdeviceptr, unsafe.Pointer) {
	if s.host != nil {
		return driver.CU_MEMORYTYPE_HOST, 0, unsafe.Pointer(s.host)
	}
	return driver.CU_MEMORYTYPE_DEVICE, s.address, nil
}

// FillNode sets every value of a buffer: see [Buffer.FillAsync]. In an executable it
// can be changed to memory of the same device. Source: cuGraphAddMemsetNode,
// cuGraphMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams.
func FillNode[T any](b *Buffer[T], v T) NodeParams {
	c, err := filling("", v, b.Len())
	return setWork(b.span(), c, err)
}

// ZeroNode clears a buffer, as [FillNode] fills one.
func ZeroNode[T any](b *Buffer[T]) NodeParams {
	return setWork(b.span(), rt.Copy{Kind: rt.Set8, Size: b.Size()}, nil)
}

// setWork is the memset c of s, unless there is err.
func setWork[T any](s span[T], c rt.Copy, err error) NodeParams {
	var ctx driver.CUcontext
	p := driver.CUDA_MEMSET_NODE_PARAMS{Dst: s.address, Value: uint32(c.Src), ElementSize: 1 << (c.Kind - rt.Set8), Width: c.Size, Height: 1}
	return &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_MEMSET,
		takes: func(op string, k *retained, _ *graphCore) error {
			if err := s.keptBy(op, k); err != nil {
				return err
			}
			ctx = s.memory.ctx.raw
			return wrap(op, err)
		},
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddMemsetNode(n, g, deps, count, &p, ctx)
		},
		sets: func(n driver.CUgraphNode) error { return driver.CuGraphMemsetNodeSetParams(n, &p) },
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return driver.CuGraphExecMemsetNodeSetParams(e, n, &p, ctx)
		},
	}
}
