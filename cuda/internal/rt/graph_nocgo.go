//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Do counts the graph's nodes and is cuGraphInstantiateWithParams in i.Context, before CUDA
// 12.0 cuGraphInstantiateWithFlags.
func (i *Instantiation) Do() driver.CUresult {
	var s Scope
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r := Enter(&s, i.CallContext, i.ID, Relaxed, 0); r != 0 {
		return r
	}
	defer Leave(&s)
	if err := i.count(); err != nil {
		return code(err)
	}
	p := driver.CUDA_GRAPH_INSTANTIATE_PARAMS{Flags: i.Flags}
	r := code(driver.CuGraphInstantiateWithParams(&i.Exec, i.Graph, &p))
	if r == driver.CUDA_ERROR_NOT_SUPPORTED {
		r = code(driver.CuGraphInstantiateWithFlags(&i.Exec, i.Graph, driver.CUgraphInstantiate_flags(i.Flags)))
	}
	i.Failed, i.Result = p.HErrNode_out, p.Result_out
	return r
}

// count counts the nodes of the graph.
func (i *Instantiation) count() error {
	var n uint64
	if err := driver.CuGraphGetNodes(i.Graph, nil, &n); err != nil || n == 0 {
		return err
	}
	nodes := make([]driver.CUgraphNode, n)
	if err := driver.CuGraphGetNodes(i.Graph, &nodes[0], &n); err != nil {
		return err
	}
	i.Nodes = uint32(n)
	for _, node := range nodes {
		var kind driver.CUgraphNodeType
		if err := driver.CuGraphNodeGetType(node, &kind); err != nil {
			return err
		}
		switch kind {
		case driver.CU_GRAPH_NODE_TYPE_KERNEL:
			i.Kernels++
		case driver.CU_GRAPH_NODE_TYPE_GRAPH, driver.CU_GRAPH_NODE_TYPE_CONDITIONAL:
			i.Graphs++
		}
	}
	return nil
}
