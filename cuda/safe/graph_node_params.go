package safe

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// KernelParams are the parameters of a kernel node: see [Node.KernelParams].
type KernelParams struct {
	Function    driver.CUfunction // as from [Kernel.Raw]
	Grid        Dim               // in blocks
	Block       Dim               // in threads
	SharedBytes uint32            // dynamic shared memory per block, in bytes
}

// KernelParams returns the parameters of a kernel node, other than the kernel's arguments
// and the launch attributes. It returns [ErrInvalidArgument] if n is not a kernel node.
// Source: cuGraphKernelNodeGetParams.
func (n Node) KernelParams() (k KernelParams, err error) {
	const op = "Node.KernelParams"
	err = n.do(op, func(*graphCore) (err error) {
		if err = n.must(op, driver.CU_GRAPH_NODE_TYPE_KERNEL); err == nil {
			k, err = n.kernelParams()
		}
		return err
	})
	return k, err
}

// kernelParams returns the parameters of a kernel node. The graph is locked, and its context current.
func (n Node) kernelParams() (KernelParams, error) {
	var p driver.CUgraphNodeParams
	if err := n.params(&p); err != nil {
		return KernelParams{}, err
	}
	k := p.Kernel()
	if k.Func == 0 { // the node was made of a CUkernel
		if err := driver.CuKernelGetFunction(&k.Func, k.Kern); err != nil {
			return KernelParams{}, err
		}
	}
	return KernelParams{
		Function:    k.Func,
		Grid:        Dim{k.GridDimX, k.GridDimY, k.GridDimZ},
		Block:       Dim{k.BlockDimX, k.BlockDimY, k.BlockDimZ},
		SharedBytes: k.SharedMemBytes,
	}, nil
}

// must refuses a node that is of none of the types.
func (n Node) must(op string, types ...driver.CUgraphNodeType) error {
	if !slices.Contains(types, n.kind) {
		return refuse(op, ErrInvalidArgument, "node %v is not of type %v", n, types[0])
	}
	return nil
}

// Params returns the node's parameters in CUDA's own form, a union: p.Type selects the
// valid member, as p.Memcpy() of a copy, which CUDA describes in three dimensions, or p.Memset() of a
// fill. For the function of a kernel node prefer [Node.KernelParams]. Pointers in the result point
// to memory of the driver, which is valid until the node is changed or destroyed. Params returns
// [ErrNotSupported] for types that neither this package nor the driver can read.
// Source: cuGraphNodeGetParams; before CUDA 13.2 cuGraphKernelNodeGetParams and similar.
func (n Node) Params() (driver.CUgraphNodeParams, error) {
	var p driver.CUgraphNodeParams
	err := n.do("Node.Params", func(*graphCore) error {
		err := driver.CuGraphNodeGetParams(n.raw, &p)
		if errors.Is(err, ErrNotSupported) {
			p = driver.CUgraphNodeParams{Type: n.kind}
			return n.params(&p)
		}
		return err
	})
	return p, err
}

// params calls the getter for the node's type. The structs of the union begin with those of
// the getters.
func (n Node) params(p *driver.CUgraphNodeParams) error {
	switch n.kind {
	case driver.CU_GRAPH_NODE_TYPE_KERNEL:
		err := driver.CuGraphKernelNodeGetParams(n.raw, (*driver.CUDA_KERNEL_NODE_PARAMS)(unsafe.Pointer(p.Kernel())))
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.0
			err = driver.CuGraphKernelNodeGetParams_v1(n.raw, (*driver.CUDA_KERNEL_NODE_PARAMS_v1)(unsafe.Pointer(p.Kernel())))
		}
		return err
	case driver.CU_GRAPH_NODE_TYPE_MEMCPY:
		return driver.CuGraphMemcpyNodeGetParams(n.raw, &p.Memcpy().CopyParams)
	case driver.CU_GRAPH_NODE_TYPE_MEMSET:
		return driver.CuGraphMemsetNodeGetParams(n.raw, (*driver.CUDA_MEMSET_NODE_PARAMS)(unsafe.Pointer(p.Memset())))
	case driver.CU_GRAPH_NODE_TYPE_HOST:
		return driver.CuGraphHostNodeGetParams(n.raw, (*driver.CUDA_HOST_NODE_PARAMS)(unsafe.Pointer(p.Host())))
	case driver.CU_GRAPH_NODE_TYPE_GRAPH:
		return driver.CuGraphChildGraphNodeGetGraph(n.raw, &p.Graph().Graph)
	case driver.CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return driver.CuGraphEventWaitNodeGetEvent(n.raw, &p.EventWait().Event)
	case driver.CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return driver.CuGraphEventRecordNodeGetEvent(n.raw, &p.EventRecord().Event)
	case driver.CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return driver.CuGraphMemAllocNodeGetParams(n.raw, (*driver.CUDA_MEM_ALLOC_NODE_PARAMS)(unsafe.Pointer(p.Alloc())))
	case driver.CU_GRAPH_NODE_TYPE_MEM_FREE:
		return driver.CuGraphMemFreeNodeGetParams(n.raw, &p.Free().Dptr)
	case driver.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return driver.CuGraphBatchMemOpNodeGetParams(n.raw, (*driver.CUDA_BATCH_MEM_OP_NODE_PARAMS)(unsafe.Pointer(p.MemOp())))
	case driver.CU_GRAPH_NODE_TYPE_EMPTY:
		return nil
	}
	return refuse("Node.Params", ErrNotSupported, "reading nodes of type %v requires a driver for CUDA 13.2", n.kind)
}
