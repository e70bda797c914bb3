//go:build cgo && linux

package sim_test

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const unsupported = driver.CUDA_ERROR_NOT_SUPPORTED

// add adds a node of any type.
func add(g driver.CUgraph, p *driver.CUgraphNodeParams, after ...driver.CUgraphNode) (n driver.CUgraphNode, err error) {
	err = driver.CuGraphAddNode(&n, g, first(after), nil, uint64(len(after)), p)
	return n, err
}

func launched(t *testing.T, g driver.CUgraph) {
	t.Helper()
	s := stream(t)
	require.NoError(t, driver.CuGraphLaunch(instantiate(t, g), s))
	require.NoError(t, driver.CuStreamSynchronize(s))
}

func kernelParams(f driver.CUfunction, argument *unsafe.Pointer) driver.CUDA_KERNEL_NODE_PARAMS {
	return driver.CUDA_KERNEL_NODE_PARAMS{
		Func: f, GridDimX: 2, GridDimY: 1, GridDimZ: 1, BlockDimX: 32, BlockDimY: 1, BlockDimZ: 1, KernelParams: argument,
	}
}

// TestAnyNode: the one function that adds nodes does for every type what the one
// for that type does, and reading their parameters gives back what was set.
func TestAnyNode(t *testing.T) {
	c := primary(t, 0)
	p, e, count, g, child := memory(t, 16), event(t), newCounter(t), newGraph(t), newGraph(t)
	memset(t, child, p+12, 9)
	argument := uint64(1)
	arguments := [...]unsafe.Pointer{unsafe.Pointer(&argument)}
	ops := make([]driver.CUstreamBatchMemOpParams, 1)
	*ops[0].WriteValue() = driver.CUstreamBatchMemOpParams_writeValue{Operation: driver.CU_STREAM_MEM_OP_WRITE_VALUE_32, Address: p + 8}
	*ops[0].WriteValue().Value() = 5
	var allocated driver.CUdeviceptr
	var last []driver.CUgraphNode
	for _, test := range []struct {
		kind driver.CUgraphNodeType
		set  func(p *driver.CUgraphNodeParams)
		like func(p *driver.CUgraphNodeParams)
	}{
		{driver.CU_GRAPH_NODE_TYPE_KERNEL, func(p *driver.CUgraphNodeParams) {
			*p.Kernel() = driver.CUDA_KERNEL_NODE_PARAMS_v3(kernelParams(kernel(t, "spin"), &arguments[0]))
		}, func(p *driver.CUgraphNodeParams) {
			assert.EqualValues(t, 2, p.Kernel().GridDimX)
			assert.Equal(t, argument, *(*uint64)(*p.Kernel().KernelParams))
			assert.Equal(t, c, p.Kernel().Ctx)
		}},
		{driver.CU_GRAPH_NODE_TYPE_MEMSET, func(q *driver.CUgraphNodeParams) {
			*q.Memset() = driver.CUDA_MEMSET_NODE_PARAMS_v2{Dst: p, Value: 7, ElementSize: 4, Width: 1, Height: 1, Ctx: c}
		}, func(q *driver.CUgraphNodeParams) { assert.EqualValues(t, 7, q.Memset().Value) }},
		{driver.CU_GRAPH_NODE_TYPE_MEMCPY, func(q *driver.CUgraphNodeParams) {
			q.Memcpy().CopyCtx = c
			q.Memcpy().CopyParams = driver.CUDA_MEMCPY3D{
				SrcMemoryType: driver.CU_MEMORYTYPE_DEVICE, SrcDevice: p, DstMemoryType: driver.CU_MEMORYTYPE_DEVICE, DstDevice: p + 4,
				WidthInBytes: 4, Height: 1, Depth: 1,
			}
		}, func(q *driver.CUgraphNodeParams) { assert.Equal(t, p+4, q.Memcpy().CopyParams.DstDevice) }},
		{driver.CU_GRAPH_NODE_TYPE_HOST, func(p *driver.CUgraphNodeParams) {
			*p.Host() = driver.CUDA_HOST_NODE_PARAMS_v2{Fn: count.fn, UserData: count.data()}
		}, func(p *driver.CUgraphNodeParams) { assert.Equal(t, count.data(), p.Host().UserData) }},
		{driver.CU_GRAPH_NODE_TYPE_GRAPH, func(p *driver.CUgraphNodeParams) { p.Graph().Graph = child },
			func(p *driver.CUgraphNodeParams) {
				assert.NotEqual(t, child, p.Graph().Graph)
				assert.Equal(t, driver.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID, p.Graph().Ownership)
			}},
		{driver.CU_GRAPH_NODE_TYPE_EMPTY, func(*driver.CUgraphNodeParams) {}, func(*driver.CUgraphNodeParams) {}},
		{driver.CU_GRAPH_NODE_TYPE_EVENT_RECORD, func(p *driver.CUgraphNodeParams) { p.EventRecord().Event = e },
			func(p *driver.CUgraphNodeParams) { assert.Equal(t, e, p.EventRecord().Event) }},
		{driver.CU_GRAPH_NODE_TYPE_WAIT_EVENT, func(p *driver.CUgraphNodeParams) { p.EventWait().Event = e },
			func(p *driver.CUgraphNodeParams) { assert.Equal(t, e, p.EventWait().Event) }},
		{driver.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, func(p *driver.CUgraphNodeParams) {
			*p.MemOp() = driver.CUDA_BATCH_MEM_OP_NODE_PARAMS_v2{Ctx: c, Count: 1, ParamArray: &ops[0]}
		}, func(p *driver.CUgraphNodeParams) { assert.Equal(t, ops[0], *p.MemOp().ParamArray) }},
		{driver.CU_GRAPH_NODE_TYPE_MEM_ALLOC, func(p *driver.CUgraphNodeParams) { *p.Alloc() = driver.CUDA_MEM_ALLOC_NODE_PARAMS_v2(allocation(8)) },
			func(p *driver.CUgraphNodeParams) { allocated = p.Alloc().Dptr }},
		{driver.CU_GRAPH_NODE_TYPE_MEM_FREE, func(p *driver.CUgraphNodeParams) { p.Free().Dptr = allocated },
			func(p *driver.CUgraphNodeParams) { assert.Equal(t, allocated, p.Free().Dptr) }},
	} {
		params := driver.CUgraphNodeParams{Type: test.kind}
		test.set(&params)
		n, err := add(g, &params, last...)
		require.NoError(t, err, test.kind)
		last = []driver.CUgraphNode{n}
		var kind driver.CUgraphNodeType
		require.NoError(t, driver.CuGraphNodeGetType(n, &kind))
		assert.Equal(t, test.kind, kind)
		var now driver.CUgraphNodeParams
		require.NoError(t, driver.CuGraphNodeGetParams(n, &now))
		assert.Equal(t, test.kind, now.Type)
		test.like(&now)

		params.Reserved2 = 1
		_, err = add(g, &params)
		assert.ErrorIs(t, err, invalid, "%v with bytes that are not 0", test.kind)
	}
	launched(t, g)
	assert.Equal(t, []uint32{7, 7, 5, 9}, words(t, p, 4))
	assert.Equal(t, 1, count.calls())
	assert.NoError(t, driver.CuEventQuery(e))

	_, err := add(g, &driver.CUgraphNodeParams{Type: 99})
	assert.ErrorIs(t, err, invalid)
	_, err = add(g, &driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT})
	assert.ErrorIs(t, err, unsupported, "not simulated")
	programmatic := driver.CUgraphEdgeData{From_port: 1, Type: 1}
	var n driver.CUgraphNode
	assert.ErrorIs(t, driver.CuGraphAddNode(&n, g, &last[0], &programmatic, 1, &driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_EMPTY}), invalid)
	assert.NoError(t, driver.CuGraphAddNode_v1(&n, g, nil, 0, &driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_EMPTY}))
}

func TestKernelNodeOfOtherContext(t *testing.T) {
	other := primary(t, 1)
	primary(t, 0)
	g, argument := newGraph(t), uint64(1)
	arguments := [...]unsafe.Pointer{unsafe.Pointer(&argument)}
	p := driver.CUgraphNodeParams{}
	*p.Kernel() = driver.CUDA_KERNEL_NODE_PARAMS_v3(kernelParams(kernel(t, "spin"), &arguments[0]))
	p.Kernel().Ctx = other
	var n driver.CUgraphNode
	assert.NoError(t, driver.CuGraphAddNode(&n, g, nil, nil, 0, &p), "the older forms do not look")
	assert.ErrorIs(t, driver.CuGraphAddNode_v3(&n, g, nil, nil, 0, &p), driver.CUDA_ERROR_INVALID_CONTEXT)
	assert.ErrorIs(t, driver.CuGraphNodeSetParams_v2(n, &p), driver.CUDA_ERROR_INVALID_CONTEXT)
	p.Kernel().Ctx = 0
	assert.NoError(t, driver.CuGraphAddNode_v3(&n, g, nil, nil, 0, &p))
	assert.NoError(t, driver.CuGraphNodeSetParams_v2(n, &p))
}

func TestRowsAndSlices(t *testing.T) {
	primary(t, 0)
	p, g := memory(t, 64), newGraph(t)
	zero := driver.CUDA_MEMSET_NODE_PARAMS{Dst: p, ElementSize: 4, Width: 16, Height: 1}
	var cleared, set, copied driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddMemsetNode(&cleared, g, nil, 0, &zero, 0))
	rows := driver.CUDA_MEMSET_NODE_PARAMS{Dst: p + 4, Pitch: 16, Value: 3, ElementSize: 4, Width: 2, Height: 2}
	require.NoError(t, driver.CuGraphAddMemsetNode(&set, g, &cleared, 1, &rows, 0))
	box := driver.CUDA_MEMCPY3D{
		SrcMemoryType: driver.CU_MEMORYTYPE_DEVICE, SrcDevice: p, SrcXInBytes: 4, SrcPitch: 16, SrcHeight: 1,
		DstMemoryType: driver.CU_MEMORYTYPE_DEVICE, DstDevice: p + 32, DstPitch: 8, DstHeight: 2,
		WidthInBytes: 8, Height: 1, Depth: 2,
	}
	require.NoError(t, driver.CuGraphAddMemcpyNode(&copied, g, &set, 1, &box, 0))
	launched(t, g)
	assert.Equal(t, []uint32{0, 3, 3, 0, 0, 3, 3, 0, 3, 3, 0, 0, 3, 3, 0, 0}, words(t, p, 16))

	for name, wrong := range map[string]func(*driver.CUDA_MEMCPY3D){
		"no depth":          func(p *driver.CUDA_MEMCPY3D) { p.Depth = 0 },
		"a narrow pitch":    func(p *driver.CUDA_MEMCPY3D) { p.SrcPitch = 11 },
		"a low slice":       func(p *driver.CUDA_MEMCPY3D) { p.Height, p.SrcHeight, p.DstHeight = 2, 2, 1 },
		"behind the memory": func(p *driver.CUDA_MEMCPY3D) { p.DstPitch = 16 },
		"a level of detail": func(p *driver.CUDA_MEMCPY3D) { p.SrcLOD = 1 },
	} {
		p := box
		wrong(&p)
		assert.ErrorIs(t, driver.CuGraphAddMemcpyNode(&copied, g, nil, 0, &p, 0), invalid, name)
	}
	rows.Pitch = 4
	assert.ErrorIs(t, driver.CuGraphAddMemsetNode(&set, g, nil, 0, &rows, 0), invalid)
	rows.Pitch = 64
	assert.ErrorIs(t, driver.CuGraphAddMemsetNode(&set, g, nil, 0, &rows, 0), invalid)
}

func TestRemoveDependencies(t *testing.T) {
	primary(t, 0)
	g := newGraph(t)
	a := empty(t, g)
	b, c := empty(t, g, a), empty(t, g, a)
	from, to := []driver.CUgraphNode{a, b}, []driver.CUgraphNode{b, c}
	assert.ErrorIs(t, driver.CuGraphRemoveDependencies(g, &from[0], &to[0], nil, 2), invalid, "the second is not there")
	programmatic := driver.CUgraphEdgeData{From_port: 1, Type: 1}
	assert.ErrorIs(t, driver.CuGraphRemoveDependencies(g, &from[0], &to[0], &programmatic, 1), invalid, "other data")
	var n uint64
	require.NoError(t, driver.CuGraphNodeGetDependencies(b, nil, nil, &n))
	assert.EqualValues(t, 1, n)
	require.NoError(t, driver.CuGraphRemoveDependencies(g, &from[0], &to[0], nil, 1))
	require.NoError(t, driver.CuGraphNodeGetDependencies(b, nil, nil, &n))
	assert.Zero(t, n)
	assert.NoError(t, driver.CuGraphRemoveDependencies_v1(g, &a, &c, 1))
}

// TestChild: a child is a copy, which goes with its node and can be changed.
func TestChild(t *testing.T) {
	primary(t, 0)
	p, g, child := memory(t, 8), newGraph(t), newGraph(t)
	inner := memset(t, child, p, 1)
	var n, found driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddChildGraphNode(&n, g, nil, 0, child))
	memcpy(t, g, p+4, p, 4, n)
	require.NoError(t, driver.CuGraphDestroyNode(inner), "the copy is another")

	var embedded driver.CUgraph
	live := control.Live("graph")
	require.NoError(t, driver.CuGraphChildGraphNodeGetGraph(n, &embedded))
	assert.Equal(t, live, control.Live("graph"), "it is no graph of its own")
	launched(t, g)
	assert.Equal(t, []uint32{1, 1}, words(t, p, 2))
	memset(t, embedded, p, 2, nodesOf(t, embedded)...)
	launched(t, g)
	assert.Equal(t, []uint32{2, 2}, words(t, p, 2))

	var e driver.CUgraphExec
	assert.ErrorIs(t, driver.CuGraphInstantiate(&e, embedded, 0), invalid)
	assert.ErrorIs(t, driver.CuGraphDestroy(embedded), invalid)
	alloc := allocation(4)
	assert.ErrorIs(t, driver.CuGraphAddMemAllocNode(&found, embedded, nil, 0, &alloc), unsupported)
	assert.ErrorIs(t, driver.CuGraphChildGraphNodeGetGraph(found, &embedded), invalid)

	var clone driver.CUgraph
	require.NoError(t, driver.CuGraphClone(&clone, g))
	require.NoError(t, driver.CuGraphNodeFindInClone(&found, n, clone))
	assert.NotEqual(t, n, found)
	assert.ErrorIs(t, driver.CuGraphNodeFindInClone(&found, n, child), invalid)
	require.NoError(t, driver.CuGraphDestroyNode(n), "with what is in it")
	launched(t, clone)
	require.NoError(t, driver.CuGraphDestroy(clone))
}

func nodesOf(t *testing.T, g driver.CUgraph) []driver.CUgraphNode {
	t.Helper()
	var n uint64
	require.NoError(t, driver.CuGraphGetNodes(g, nil, &n))
	if n == 0 {
		return nil
	}
	nodes := make([]driver.CUgraphNode, n)
	require.NoError(t, driver.CuGraphGetNodes(g, &nodes[0], &n))
	return nodes
}

// TestMovedChild: a graph that allocates can only be moved, and is the parent's then.
func TestMovedChild(t *testing.T) {
	primary(t, 0)
	var child driver.CUgraph
	require.NoError(t, driver.CuGraphCreate(&child, 0))
	g := newGraph(t)
	p, a := allocNode(t, child, 4)
	freeNode(t, child, p, memset(t, child, p, 1, a))

	params := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_GRAPH}
	params.Graph().Graph = child
	_, err := add(g, &params)
	assert.ErrorIs(t, err, unsupported)
	params.Graph().Ownership = driver.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
	_, err = add(child, &params)
	assert.ErrorIs(t, err, invalid, "into itself")
	elsewhere := empty(t, newGraph(t))
	_, err = add(g, &params, elsewhere)
	assert.ErrorIs(t, err, invalid)
	live := control.Live("graph")
	_, err = add(g, &params)
	require.NoError(t, err)
	assert.Equal(t, live-1, control.Live("graph"))
	_, err = add(g, &params)
	assert.ErrorIs(t, err, invalid, "again")
	assert.ErrorIs(t, driver.CuGraphDestroy(child), invalid)
	launched(t, g)
}

// TestUserObjectsOfChildren: what a child holds, the graph holds, and its executables.
func TestUserObjectsOfChildren(t *testing.T) {
	primary(t, 0)
	c := newCounter(t)
	var u driver.CUuserObject
	var g, child driver.CUgraph
	require.NoError(t, driver.CuUserObjectCreate(&u, c.data(), c.fn, 1, uint32(driver.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)))
	require.NoError(t, driver.CuGraphCreate(&g, 0))
	require.NoError(t, driver.CuGraphCreate(&child, 0))
	require.NoError(t, driver.CuGraphRetainUserObject(child, u, 1, uint32(driver.CU_GRAPH_USER_OBJECT_MOVE)))
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddChildGraphNode(&n, g, nil, 0, child))
	require.NoError(t, driver.CuGraphDestroy(child))
	assert.Zero(t, c.calls())
	var e driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	require.NoError(t, driver.CuGraphDestroy(g))
	assert.Zero(t, c.calls())
	require.NoError(t, driver.CuGraphExecDestroy(e))
	assert.Equal(t, 1, c.calls())
}

func TestEventNodes(t *testing.T) {
	primary(t, 0)
	g, e, other, s := newGraph(t), event(t), event(t), stream(t)
	var record, wait driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddEventRecordNode(&record, g, nil, 0, e))
	require.NoError(t, driver.CuGraphAddEventWaitNode(&wait, g, &record, 1, e))
	assert.ErrorIs(t, driver.CuGraphAddEventWaitNode(&wait, g, nil, 0, 0), invalid)
	var now driver.CUevent
	require.NoError(t, driver.CuGraphEventRecordNodeGetEvent(record, &now))
	assert.Equal(t, e, now)
	require.NoError(t, driver.CuGraphEventWaitNodeGetEvent(wait, &now))
	assert.Equal(t, e, now)
	assert.ErrorIs(t, driver.CuGraphEventWaitNodeGetEvent(record, &now), invalid)

	require.NoError(t, driver.CuGraphEventWaitNodeSetEvent(wait, other))
	assert.ErrorIs(t, driver.CuGraphEventRecordNodeSetEvent(wait, other), invalid)
	x, busy := instantiate(t, g), stream(t)
	open := gate(t, busy)
	require.NoError(t, driver.CuEventRecord(other, busy))
	require.NoError(t, driver.CuGraphLaunch(x, s))
	assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_NOT_READY, "it waits for what was recorded outside")
	open()
	require.NoError(t, driver.CuStreamSynchronize(s))

	require.NoError(t, driver.CuGraphExecEventWaitNodeSetEvent(x, wait, e))
	require.NoError(t, driver.CuGraphExecEventRecordNodeSetEvent(x, record, other))
	require.NoError(t, driver.CuGraphEventRecordNodeGetEvent(record, &now))
	assert.Equal(t, e, now, "the node is as it was")
	require.NoError(t, driver.CuGraphLaunch(x, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.NoError(t, driver.CuEventQuery(other))
}

// TestSetParams: a node that was given new parameters does something else in
// executables that are made then.
func TestSetParams(t *testing.T) {
	c := primary(t, 0)
	p, g, count := memory(t, 16), newGraph(t), newCounter(t)
	a := memset(t, g, p, 1)
	b := memcpy(t, g, p+4, p, 4, a)
	h := host(t, g, count, b)
	f := kernel(t, "spin")
	k := kernelNode(t, g, f, 1, h)
	before := instantiate(t, g)

	set := driver.CUDA_MEMSET_NODE_PARAMS{}
	require.NoError(t, driver.CuGraphMemsetNodeGetParams(a, &set))
	set.Value = 2
	require.NoError(t, driver.CuGraphMemsetNodeSetParams(a, &set))
	box := driver.CUDA_MEMCPY3D{}
	require.NoError(t, driver.CuGraphMemcpyNodeGetParams(b, &box))
	box.DstDevice = p + 8
	require.NoError(t, driver.CuGraphMemcpyNodeSetParams(b, &box))
	hosts := driver.CUDA_HOST_NODE_PARAMS{}
	require.NoError(t, driver.CuGraphHostNodeGetParams(h, &hosts))
	assert.Equal(t, count.data(), hosts.UserData)
	require.NoError(t, driver.CuGraphHostNodeSetParams(h, &hosts))
	kernels := driver.CUDA_KERNEL_NODE_PARAMS{}
	require.NoError(t, driver.CuGraphKernelNodeGetParams(k, &kernels))
	assert.Equal(t, f, kernels.Func)
	assert.EqualValues(t, 1, *(*uint64)(*kernels.KernelParams))
	kernels.GridDimX = 4
	require.NoError(t, driver.CuGraphKernelNodeSetParams(k, &kernels))
	require.NoError(t, driver.CuGraphKernelNodeGetParams(k, &kernels))
	assert.EqualValues(t, 4, kernels.GridDimX)
	older := driver.CUDA_KERNEL_NODE_PARAMS_v1{}
	require.NoError(t, driver.CuGraphKernelNodeGetParams_v1(k, &older))
	require.NoError(t, driver.CuGraphKernelNodeSetParams_v1(k, &older))
	require.NoError(t, driver.CuGraphKernelNodeGetParams_v1(k, &older), "the pointers were the node's, and are gone")
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddKernelNode_v1(&n, g, nil, 0, &older))

	params := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_MEMSET}
	require.NoError(t, driver.CuGraphNodeGetParams(a, &params))
	params.Memset().Ctx = c
	require.NoError(t, driver.CuGraphNodeSetParams(a, &params))

	launched(t, g)
	assert.Equal(t, []uint32{2, 2}, []uint32{words(t, p, 3)[0], words(t, p, 3)[2]})
	s := stream(t)
	require.NoError(t, driver.CuGraphLaunch(before, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{1, 1, 2}, words(t, p, 3), "the older executable is as it was")

	assert.ErrorIs(t, driver.CuGraphMemsetNodeSetParams(b, &set), invalid, "another type")
	assert.ErrorIs(t, driver.CuGraphMemsetNodeGetParams(b, &set), invalid)
	assert.ErrorIs(t, driver.CuGraphNodeSetParams(b, &params), invalid)
	params.Type = driver.CU_GRAPH_NODE_TYPE_MEM_ALLOC
	assert.ErrorIs(t, driver.CuGraphNodeSetParams(b, &params), unsupported)
	assert.ErrorIs(t, driver.CuGraphNodeSetParams(0, &params), invalid)
}

func TestKernelNodeAttributes(t *testing.T) {
	primary(t, 0)
	g, f := newGraph(t), kernel(t, "spin")
	a, b, e := kernelNode(t, g, f, 1), kernelNode(t, g, f, 1), empty(t, g)
	var v driver.CUkernelNodeAttrValue
	require.NoError(t, driver.CuGraphKernelNodeGetAttribute(a, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, &v))
	assert.Zero(t, *v.Priority())
	*v.Priority() = -99
	require.NoError(t, driver.CuGraphKernelNodeSetAttribute(a, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, &v))
	require.NoError(t, driver.CuGraphKernelNodeCopyAttributes(b, a))
	require.NoError(t, driver.CuGraphKernelNodeGetAttribute(b, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, &v))
	assert.EqualValues(t, -5, *v.Priority())

	var p driver.CUDA_KERNEL_NODE_PARAMS
	require.NoError(t, driver.CuGraphKernelNodeGetParams(b, &p))
	require.NoError(t, driver.CuGraphKernelNodeSetParams(b, &p))
	require.NoError(t, driver.CuGraphKernelNodeGetAttribute(b, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, &v))
	assert.EqualValues(t, -5, *v.Priority(), "parameters leave it alone")

	assert.ErrorIs(t, driver.CuGraphKernelNodeSetAttribute(e, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, &v), invalid)
	assert.ErrorIs(t, driver.CuGraphKernelNodeGetAttribute(a, driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v), invalid, "of streams")
	assert.ErrorIs(t, driver.CuGraphKernelNodeCopyAttributes(a, e), invalid)
	v = driver.CUkernelNodeAttrValue{}
	assert.ErrorIs(t, driver.CuGraphKernelNodeSetAttribute(a, driver.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v), invalid)
	assert.NoError(t, driver.CuGraphKernelNodeSetAttribute(a, driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v))
	assert.NoError(t, driver.CuGraphKernelNodeSetAttribute(a, driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &v))
}

func TestNodeIds(t *testing.T) {
	primary(t, 0)
	g, child := newGraph(t), newGraph(t)
	empty(t, child)
	a := empty(t, g)
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddChildGraphNode(&n, g, &a, 1, child))
	var where, embedded driver.CUgraph
	require.NoError(t, driver.CuGraphNodeGetContainingGraph(a, &where))
	assert.Equal(t, g, where)
	require.NoError(t, driver.CuGraphChildGraphNodeGetGraph(n, &embedded))
	inner := nodesOf(t, embedded)[0]
	require.NoError(t, driver.CuGraphNodeGetContainingGraph(inner, &where))
	assert.Equal(t, embedded, where)

	var local, graph, exec uint32
	var tools, other uint64
	require.NoError(t, driver.CuGraphNodeGetLocalId(n, &local))
	assert.EqualValues(t, 1, local)
	require.NoError(t, driver.CuGraphGetId(g, &graph))
	require.NoError(t, driver.CuGraphExecGetId(instantiate(t, g), &exec))
	assert.NotEqual(t, graph, exec)
	require.NoError(t, driver.CuGraphNodeGetToolsId(n, &tools))
	require.NoError(t, driver.CuGraphNodeGetToolsId(inner, &other))
	assert.NotEqual(t, tools, other)
	for _, err := range []error{
		driver.CuGraphNodeGetContainingGraph(0, &where), driver.CuGraphNodeGetLocalId(0, &local), driver.CuGraphNodeGetToolsId(0, &tools),
		driver.CuGraphGetId(0, &graph), driver.CuGraphExecGetId(0, &graph),
	} {
		assert.ErrorIs(t, err, invalid)
	}

	file := filepath.Join(t.TempDir(), "graph.dot")
	require.NoError(t, driver.CuGraphDebugDotPrint(g, unsafe.StringData(file+"\x00"), 0))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), "GRAPH")
	assert.Contains(t, string(text), "_node_0\" -> \"graph_")

	control.OddNodes(4711)
	var kind driver.CUgraphNodeType
	require.NoError(t, driver.CuGraphNodeGetType(a, &kind))
	assert.EqualValues(t, 4711, kind)
	control.Reset()
	require.NoError(t, driver.CuGraphNodeGetType(a, &kind))
	assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_EMPTY, kind)
}

// TestParamsOfCaptured: nodes that a stream captured have parameters, too.
func TestParamsOfCaptured(t *testing.T) {
	primary(t, 0)
	p, s, c := memory(t, 8), stream(t), newCounter(t)
	require.NoError(t, driver.CuStreamBeginCapture(s, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
	require.NoError(t, driver.CuMemsetD32Async(p, 3, 1, s))
	require.NoError(t, driver.CuMemcpyDtoDAsync(p+4, p, 4, s))
	require.NoError(t, driver.CuStreamWriteValue32(s, p, 5, 0))
	require.NoError(t, driver.CuLaunchHostFunc(s, c.fn, c.data()))
	var temporary driver.CUdeviceptr
	require.NoError(t, driver.CuMemAllocAsync(&temporary, 32, s))
	require.NoError(t, driver.CuMemFreeAsync(temporary, s))
	assert.ErrorIs(t, driver.CuMemFreeAsync(temporary, s), invalid, "twice")
	var g driver.CUgraph
	require.NoError(t, driver.CuStreamEndCapture(s, &g))
	defer func() { assert.NoError(t, driver.CuGraphDestroy(g)) }()
	nodes := nodesOf(t, g)
	require.Len(t, nodes, 6)

	var box driver.CUDA_MEMCPY3D
	require.NoError(t, driver.CuGraphMemcpyNodeGetParams(nodes[1], &box))
	assert.Equal(t, driver.CU_MEMORYTYPE_UNIFIED, box.DstMemoryType)
	assert.Equal(t, p+4, box.DstDevice)
	box.DstDevice = p
	require.NoError(t, driver.CuGraphMemcpyNodeSetParams(nodes[1], &box))
	var batch driver.CUDA_BATCH_MEM_OP_NODE_PARAMS
	require.NoError(t, driver.CuGraphBatchMemOpNodeGetParams(nodes[2], &batch))
	assert.EqualValues(t, 1, batch.Count)
	assert.Equal(t, p, batch.ParamArray.WriteValue().Address)
	require.NoError(t, driver.CuGraphBatchMemOpNodeSetParams(nodes[2], &batch))
	batch.Ctx = 0
	assert.ErrorIs(t, driver.CuGraphBatchMemOpNodeSetParams(nodes[2], &batch), invalid)
	var alloc driver.CUDA_MEM_ALLOC_NODE_PARAMS
	require.NoError(t, driver.CuGraphMemAllocNodeGetParams(nodes[4], &alloc))
	assert.Equal(t, temporary, alloc.Dptr)
	assert.EqualValues(t, 32, alloc.Bytesize)
	launched(t, g)
	assert.Equal(t, []uint32{5}, words(t, p, 1))
}

// TestKernelOfLibrary: a node tells by which handle its kernel was given.
func TestKernelOfLibrary(t *testing.T) {
	c := primary(t, 0)
	image, err := os.ReadFile("../../../cuda/safe/testdata/kernels.ptx")
	require.NoError(t, err)
	image = append(image, 0)
	var l driver.CUlibrary
	var k driver.CUkernel
	require.NoError(t, driver.CuLibraryLoadData(&l, unsafe.Pointer(&image[0]), nil, nil, 0, nil, nil, 0))
	defer func() { assert.NoError(t, driver.CuLibraryUnload(l)) }()
	require.NoError(t, driver.CuLibraryGetKernel(&k, l, unsafe.StringData("spin\x00")))
	g, argument := newGraph(t), uint64(1)
	arguments := [...]unsafe.Pointer{unsafe.Pointer(&argument)}
	p := kernelParams(0, &arguments[0])
	p.Kern = k
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddKernelNode(&n, g, nil, 0, &p))
	var now driver.CUDA_KERNEL_NODE_PARAMS
	require.NoError(t, driver.CuGraphKernelNodeGetParams(n, &now))
	assert.Zero(t, now.Func)
	assert.Equal(t, k, now.Kern)
	assert.Equal(t, c, now.Ctx)
	launched(t, g)
}
