//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
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
	assert.ErrorIs(t, err, invalid, "no semaphores")
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
		"beyond the memory": func(p *driver.CUDA_MEMCPY3D) { p.DstPitch = 16 },
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
	require.NoError(t, driver.CuGraphDestroyNode(n), "with its child")
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
	require.NoError(t, driver.CuUserObjectCreate(&u, c.data(), c.fn, 1, driver.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC))
	require.NoError(t, driver.CuGraphCreate(&g, 0))
	require.NoError(t, driver.CuGraphCreate(&child, 0))
	require.NoError(t, driver.CuGraphRetainUserObject(child, u, 1, driver.CU_GRAPH_USER_OBJECT_MOVE))
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
