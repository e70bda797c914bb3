//go:build linux && (cgo || cudabind_nocgo)

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
