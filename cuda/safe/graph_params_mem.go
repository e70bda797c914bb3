package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Memory is the memory of n values of type T: a [Buffer] of a device or [Pinned] memory of
// the host.
type Memory[T any] interface {
	Len() int
	span() span[T]
}

// A span is the place of a [Memory].
type span[T any] struct {
	memory  *memory
	address driver.CUdeviceptr // of a Buffer
	host    *T                 // of a Pinned; nil for a Buffer
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

// retainedBy has k retain the memory.
func (s span[T]) retainedBy(op string, k *retained) error {
	if s.memory == nil || !k.retain(&s.memory.Handle, s.memory.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return nil
}

// at returns the address that devices use: pinned memory has the same one on the host.
func (s span[T]) at() driver.CUdeviceptr {
	if s.host != nil {
		return driver.CUdeviceptr(uintptr(unsafe.Pointer(s.host)))
	}
	return s.address
}

// some refuses an empty span: CUDA has no nodes for it.
func (s span[T]) some(op string) error {
	if s.n == 0 {
		return refuse(op, ErrRange, "a node for no values: leave it out")
	}
	return nil
}

func (s span[T]) size() uint64 {
	var zero T
	return uint64(s.n) * uint64(unsafe.Sizeof(zero))
}

// CopyNode is a node that copies all of src to the start of dst. Either may be device memory
// or pinned host memory. Using it returns [ErrRange] if src is longer than dst, and
// [ErrOverlap] if they overlap. CUDA changes a copy node of an executable only to memory of
// the same devices. Source: cuGraphAddMemcpyNode, cuGraphMemcpyNodeSetParams,
// cuGraphExecMemcpyNodeSetParams.
func CopyNode[T any](dst, src Memory[T]) NodeParams {
	to, from := spanOf(dst), spanOf(src)
	var ctx driver.CUcontext
	p := driver.CUDA_MEMCPY3D{WidthInBytes: from.size(), Height: 1, Depth: 1}
	p.SrcMemoryType, p.SrcDevice, p.SrcHost = from.end()
	p.DstMemoryType, p.DstDevice, p.DstHost = to.end()
	return NodeParams{other: &funcNode{
		typ: driver.CU_GRAPH_NODE_TYPE_MEMCPY,
		takes: func(op string, k *retained, _ *graphCore) error {
			for _, s := range []span[T]{to, from} {
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
	}}
}

// end returns the span as source or destination of a copy.
func (s span[T]) end() (driver.CUmemorytype, driver.CUdeviceptr, unsafe.Pointer) {
	if s.host != nil {
		return driver.CU_MEMORYTYPE_HOST, 0, unsafe.Pointer(s.host)
	}
	return driver.CU_MEMORYTYPE_DEVICE, s.address, nil
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
	return fillNode(s, zeroing(s.size()), nil)
}

// fillNode is the fill f of s. err, if not nil, is reported when the node is used.
func fillNode[T any](s span[T], f fill, err error) NodeParams {
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
func (s span[T]) fills(w *funcNode, f fill) error {
	b, err := s.memory.acquire("")
	if err != nil {
		return err
	}
	defer b.Release()
	at := s.address
	if s.host != nil {
		if at, err = b.mapped("", unsafe.Pointer(s.host)); err != nil {
			return err
		}
	}
	return f.node(w, b.ctx, at)
}
