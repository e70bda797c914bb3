package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

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
