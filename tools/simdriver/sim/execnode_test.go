//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExecNodes: nodes of an executable get new parameters, by the nodes that they
// were made of. Work that is launched already does not change.
func TestExecNodes(t *testing.T) {
	c := primary(t, 0)
	p, g, s, before, after := memory(t, 16), newGraph(t), stream(t), newCounter(t), newCounter(t)
	f := kernel(t, "wait")
	a := memset(t, g, p, 1)
	b := memcpy(t, g, p+4, p, 4, a)
	h := host(t, g, before, b)
	ops := make([]driver.CUstreamBatchMemOpParams, 1)
	*ops[0].WriteValue() = driver.CUstreamBatchMemOpParams_writeValue{Operation: driver.CU_STREAM_MEM_OP_WRITE_VALUE_32, Address: p + 12}
	*ops[0].WriteValue().Value() = 5
	batch := driver.CUDA_BATCH_MEM_OP_NODE_PARAMS{Ctx: c, Count: 1, ParamArray: &ops[0]}
	var o driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddBatchMemOpNode(&o, g, &h, 1, &batch))
	flag := memory(t, 4)
	one := uint32(1)
	require.NoError(t, driver.CuMemcpyHtoD(flag, unsafe.Pointer(&one), 4))
	k := kernelNode(t, g, f, uint64(flag), o)
	e := instantiate(t, g)

	open := gate(t, s)
	require.NoError(t, driver.CuGraphLaunch(e, s))
	var set driver.CUDA_MEMSET_NODE_PARAMS
	var box driver.CUDA_MEMCPY3D
	var kernels driver.CUDA_KERNEL_NODE_PARAMS
	require.NoError(t, driver.CuGraphMemsetNodeGetParams(a, &set))
	require.NoError(t, driver.CuGraphMemcpyNodeGetParams(b, &box))
	require.NoError(t, driver.CuGraphKernelNodeGetParams(k, &kernels))
	set.Value = 2
	box.DstDevice = p + 8
	hosts := driver.CUDA_HOST_NODE_PARAMS{Fn: after.fn, UserData: after.data()}
	*ops[0].WriteValue().Value() = 6
	require.NoError(t, driver.CuGraphExecMemsetNodeSetParams(e, a, &set, c))
	require.NoError(t, driver.CuGraphExecMemcpyNodeSetParams(e, b, &box, c))
	require.NoError(t, driver.CuGraphExecHostNodeSetParams(e, h, &hosts))
	require.NoError(t, driver.CuGraphExecBatchMemOpNodeSetParams(e, o, &batch))
	require.NoError(t, driver.CuGraphExecKernelNodeSetParams(e, k, &kernels))
	open()
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{1, 1}, words(t, p, 2), "what was launched before")
	assert.Equal(t, []uint32{5}, words(t, p+12, 1))
	assert.Equal(t, 1, before.calls())

	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{2, 1, 2, 6}, words(t, p, 4))
	assert.Equal(t, []int{1, 1}, []int{before.calls(), after.calls()})
	var now driver.CUDA_MEMSET_NODE_PARAMS
	require.NoError(t, driver.CuGraphMemsetNodeGetParams(a, &now))
	assert.EqualValues(t, 1, now.Value, "the node is as it was")

	older := driver.CUDA_KERNEL_NODE_PARAMS_v1{}
	require.NoError(t, driver.CuGraphKernelNodeGetParams_v1(k, &older))
	assert.NoError(t, driver.CuGraphExecKernelNodeSetParams_v1(e, k, &older))

	params := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_MEMSET}
	*params.Memset() = driver.CUDA_MEMSET_NODE_PARAMS_v2{Dst: p, Value: 3, ElementSize: 4, Width: 1, Height: 1, Ctx: c}
	require.NoError(t, driver.CuGraphExecNodeSetParams(e, a, &params))
	assert.ErrorIs(t, driver.CuGraphExecNodeSetParams(e, b, &params), invalid, "another type")
	params = driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_MEM_FREE}
	assert.ErrorIs(t, driver.CuGraphExecNodeSetParams(e, a, &params), unsupported)

	foreign := memset(t, newGraph(t), p, 1)
	rows := set
	rows.Height, rows.Pitch = 2, 8
	second := box
	second.Height, second.SrcPitch, second.DstPitch = 2, 4, 4
	second.DstDevice = p + 4
	two := []driver.CUstreamBatchMemOpParams{ops[0], ops[0]}
	more := driver.CUDA_BATCH_MEM_OP_NODE_PARAMS{Ctx: c, Count: 2, ParamArray: &two[0]}
	for name, err := range map[string]error{
		"a node of another graph": driver.CuGraphExecMemsetNodeSetParams(e, foreign, &set, c),
		"another type of node":    driver.CuGraphExecMemsetNodeSetParams(e, b, &set, c),
		"more rows":               driver.CuGraphExecMemsetNodeSetParams(e, a, &rows, c),
		"a copy of rows":          driver.CuGraphExecMemcpyNodeSetParams(e, b, &second, c),
		"more operations":         driver.CuGraphExecBatchMemOpNodeSetParams(e, o, &more),
		"no node":                 driver.CuGraphExecHostNodeSetParams(e, 0, &hosts),
	} {
		assert.ErrorIs(t, err, invalid, name)
	}
	argument := uint64(flag)
	arguments := [...]unsafe.Pointer{unsafe.Pointer(&argument)}
	kernels.KernelParams = &arguments[0] // the node's own go with it
	require.NoError(t, driver.CuGraphDestroyNode(k))
	assert.ErrorIs(t, driver.CuGraphExecKernelNodeSetParams(e, k, &kernels), invalid, "a node that is gone")
	violated(t, "a node is used that was destroyed")
}

func TestOtherDevices(t *testing.T) {
	primary(t, 1)
	far := memory(t, 4)
	primary(t, 0)
	p, g := memory(t, 4), newGraph(t)
	a := memset(t, g, p, 1)
	e := instantiate(t, g)
	set := driver.CUDA_MEMSET_NODE_PARAMS{Dst: far, Value: 1, ElementSize: 4, Width: 1, Height: 1}
	assert.ErrorIs(t, driver.CuGraphExecMemsetNodeSetParams(e, a, &set, 0), invalid)
}

// TestDisabledNodes: a disabled node is an empty one until it is enabled again.
func TestDisabledNodes(t *testing.T) {
	primary(t, 0)
	p, g, s, c := memory(t, 8), newGraph(t), stream(t), newCounter(t)
	from := memory(t, 4)
	require.NoError(t, driver.CuMemsetD32(from, 1, 1))
	a := memcpy(t, g, p, from, 4)
	set := memset(t, g, p+4, 1, a)
	h := host(t, g, c, set)
	e := instantiate(t, g)
	var enabled uint32
	run := func() uint32 {
		zero := uint64(0)
		require.NoError(t, driver.CuMemcpyHtoD(p, unsafe.Pointer(&zero), 8))
		require.NoError(t, driver.CuGraphLaunch(e, s))
		require.NoError(t, driver.CuStreamSynchronize(s))
		require.NoError(t, driver.CuGraphNodeGetEnabled(e, a, &enabled))
		assert.EqualValues(t, 1, words(t, p, 2)[1])
		return words(t, p, 1)[0]
	}
	assert.EqualValues(t, 1, run())
	assert.EqualValues(t, 1, enabled)
	require.NoError(t, driver.CuGraphNodeSetEnabled(e, a, 0))
	assert.Zero(t, run())
	assert.Zero(t, enabled)
	require.NoError(t, driver.CuGraphNodeSetEnabled(e, a, 7))
	assert.EqualValues(t, 1, run())
	assert.EqualValues(t, 1, enabled)
	assert.ErrorIs(t, driver.CuGraphNodeSetEnabled(e, h, 0), invalid, "a host node")
	assert.ErrorIs(t, driver.CuGraphNodeGetEnabled(e, h, &enabled), invalid)
	assert.ErrorIs(t, driver.CuGraphNodeGetEnabled(e, 0, &enabled), invalid)
	require.NoError(t, driver.CuGraphNodeSetEnabled(e, set, 1))
	require.NoError(t, driver.CuGraphNodeSetEnabled(e, set, 0))
	violated(t, "a disabled memset node: CUDA loses the order of the nodes around it, or faults")
}

// TestExecChild: the child of an executable gets the parameters of another graph
// that is alike, and its nodes can be named still.
func TestExecChild(t *testing.T) {
	primary(t, 0)
	p, s := memory(t, 8), stream(t)
	build := func(value uint32) driver.CUgraph {
		g := newGraph(t)
		memcpy(t, g, p+4, p, 4, memset(t, g, p, value))
		return g
	}
	g := newGraph(t)
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddChildGraphNode(&n, g, nil, 0, build(1)))
	var embedded driver.CUgraph
	require.NoError(t, driver.CuGraphChildGraphNodeGetGraph(n, &embedded))
	set := nodesOf(t, embedded)[0]
	e := instantiate(t, g)
	run := func() []uint32 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
		require.NoError(t, driver.CuStreamSynchronize(s))
		return words(t, p, 2)
	}
	require.NoError(t, driver.CuGraphExecChildGraphNodeSetParams(e, n, build(2)))
	assert.Equal(t, []uint32{2, 2}, run())
	params := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_GRAPH}
	params.Graph().Graph = build(3)
	require.NoError(t, driver.CuGraphExecNodeSetParams(e, n, &params))
	assert.Equal(t, []uint32{3, 3}, run())
	value := driver.CUDA_MEMSET_NODE_PARAMS{Dst: p, Value: 4, ElementSize: 4, Width: 1, Height: 1}
	require.NoError(t, driver.CuGraphExecMemsetNodeSetParams(e, set, &value, 0))
	assert.Equal(t, []uint32{4, 4}, run())

	other := newGraph(t)
	memset(t, other, p, 1)
	assert.ErrorIs(t, driver.CuGraphExecChildGraphNodeSetParams(e, n, other), invalid)
	assert.ErrorIs(t, driver.CuGraphExecChildGraphNodeSetParams(e, set, other), invalid)

	again := newGraph(t)
	require.NoError(t, driver.CuGraphAddChildGraphNode(&n, again, nil, 0, build(5)))
	var info driver.CUgraphExecUpdateResultInfo
	require.NoError(t, driver.CuGraphExecUpdate(e, again, &info))
	assert.Equal(t, []uint32{5, 5}, run())
	require.NoError(t, driver.CuGraphExecMemsetNodeSetParams(e, set, &value, 0))
	assert.Equal(t, []uint32{4, 4}, run())
	require.NoError(t, driver.CuGraphDestroyNode(n))
	require.NoError(t, driver.CuGraphAddChildGraphNode(&n, again, nil, 0, other))
	require.ErrorIs(t, driver.CuGraphExecUpdate(e, again, &info), driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
	assert.Equal(t, driver.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.Result)
}
