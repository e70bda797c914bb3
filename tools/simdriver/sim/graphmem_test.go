//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// allocation is of device 0.
func allocation(size uint64) (p driver.CUDA_MEM_ALLOC_NODE_PARAMS) {
	p.PoolProps.AllocType = driver.CU_MEM_ALLOCATION_TYPE_PINNED
	p.PoolProps.Location.Type = driver.CU_MEM_LOCATION_TYPE_DEVICE
	p.Bytesize = size
	return p
}

func allocNode(t *testing.T, g driver.CUgraph, size uint64, after ...driver.CUgraphNode) (driver.CUdeviceptr, driver.CUgraphNode) {
	t.Helper()
	p := allocation(size)
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddMemAllocNode(&n, g, first(after), uint64(len(after)), &p))
	require.NotZero(t, p.Dptr)
	return p.Dptr, n
}

func freeNode(t *testing.T, g driver.CUgraph, p driver.CUdeviceptr, after ...driver.CUgraphNode) (n driver.CUgraphNode) {
	t.Helper()
	require.NoError(t, driver.CuGraphAddMemFreeNode(&n, g, first(after), uint64(len(after)), p))
	return n
}

func graphMemory(t *testing.T, a driver.CUgraphMem_attribute) (v uint64) {
	t.Helper()
	require.NoError(t, driver.CuDeviceGetGraphMemAttribute(0, a, unsafe.Pointer(&v)))
	return v
}

func TestGraphAllocates(t *testing.T) {
	primary(t, 0)
	out, g, s := memory(t, 4), newGraph(t), stream(t)
	p, a := allocNode(t, g, 64)
	b := memcpy(t, g, out, p, 4, memset(t, g, p, 6, a))
	freed := freeNode(t, g, p, b)
	var n driver.CUgraphNode
	assert.ErrorIs(t, driver.CuGraphAddMemFreeNode(&n, g, nil, 0, p), invalid, "twice")
	assert.ErrorIs(t, driver.CuGraphAddMemFreeNode(&n, newGraph(t), nil, 0, p), invalid, "in another graph")
	assert.ErrorIs(t, driver.CuGraphAddMemFreeNode(&n, g, nil, 0, out), invalid, "of no graph")
	assert.ErrorIs(t, driver.CuGraphRemoveDependencies(g, &b, &freed, nil, 1), unsupported)
	assert.ErrorIs(t, driver.CuGraphDestroyNode(freed), unsupported)
	var clone driver.CUgraph
	assert.ErrorIs(t, driver.CuGraphClone(&clone, g), unsupported)
	assert.ErrorIs(t, driver.CuGraphAddChildGraphNode(&n, newGraph(t), nil, 0, g), unsupported)

	var params driver.CUDA_MEM_ALLOC_NODE_PARAMS
	require.NoError(t, driver.CuGraphMemAllocNodeGetParams(a, &params))
	assert.EqualValues(t, 64, params.Bytesize)
	assert.Equal(t, p, params.Dptr)
	var address driver.CUdeviceptr
	require.NoError(t, driver.CuGraphMemFreeNodeGetParams(freed, &address))
	assert.Equal(t, p, address)

	e := instantiate(t, g)
	var second driver.CUgraphExec
	assert.ErrorIs(t, driver.CuGraphInstantiate(&second, g, 0), unsupported)
	for range 2 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
	}
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{6}, words(t, out, 1))
	assert.ErrorIs(t, driver.CuMemFree(p), invalid, "the graph frees it")
}

// TestGraphGivesMemory: what a graph does not free is there after a launch, until
// the program frees it, or another graph does.
func TestGraphGivesMemory(t *testing.T) {
	primary(t, 0)
	g, s := newGraph(t), stream(t)
	p, a := allocNode(t, g, 4)
	memset(t, g, p, 6, a)
	e := instantiate(t, g)
	control.Reset()
	require.NoError(t, driver.CuDeviceGraphMemTrim(0))
	used := graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)

	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{6}, words(t, p, 1))
	assert.Equal(t, used+4, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT))
	assert.ErrorIs(t, driver.CuGraphLaunch(e, s), invalid, "it is still there")
	violated(t, "in the wrong state")
	require.NoError(t, driver.CuMemFreeAsync(p, s))

	other := newGraph(t)
	freeNode(t, other, p)
	var n driver.CUgraphNode
	assert.ErrorIs(t, driver.CuGraphAddMemFreeNode(&n, g, nil, 0, p), invalid, "another graph frees it")
	frees := instantiate(t, other)
	assert.ErrorIs(t, driver.CuGraphLaunch(frees, s), invalid, "it is not there")
	violated(t, "in the wrong state")
	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuGraphLaunch(frees, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, used+4, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), "it is not trimmed")
	require.NoError(t, driver.CuDeviceGraphMemTrim(0))
	assert.Equal(t, used, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT))
	assert.ErrorIs(t, driver.CuMemFree(p), invalid)
}

func TestGraphMemAttributes(t *testing.T) {
	primary(t, 0)
	g := newGraph(t)
	p, a := allocNode(t, g, 1<<20)
	freeNode(t, g, p, a)
	require.NoError(t, driver.CuDeviceGraphMemTrim(0))
	zero := uint64(0)
	for _, high := range []driver.CUgraphMem_attribute{driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH} {
		require.NoError(t, driver.CuDeviceSetGraphMemAttribute(0, high, unsafe.Pointer(&zero)))
	}
	used, reserved := graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), graphMemory(t, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
	launched(t, g)
	assert.Equal(t, used+1<<20, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT))
	assert.Equal(t, used+1<<20, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH))
	assert.Equal(t, reserved+1<<20, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
	require.NoError(t, driver.CuDeviceGraphMemTrim(0))
	assert.Equal(t, used, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT))
	assert.Equal(t, reserved, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
	assert.Equal(t, reserved+1<<20, graphMemory(t, driver.CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))

	access := driver.CUmemAccessDesc{Flags: driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE}
	access.Location.Type = driver.CU_MEM_LOCATION_TYPE_DEVICE
	far, kept := allocation(8), driver.CUDA_MEM_ALLOC_NODE_PARAMS{}
	*far.PoolProps.Location.Id() = 1
	far.AccessDescs, far.AccessDescCount = &access, 1
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddMemAllocNode(&n, g, nil, 0, &far))
	require.NoError(t, driver.CuGraphMemAllocNodeGetParams(n, &kept))
	assert.Equal(t, access, *kept.AccessDescs)
	assert.NotSame(t, &access, kept.AccessDescs)

	one := uint64(1)
	assert.ErrorIs(t, driver.CuDeviceSetGraphMemAttribute(0, driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, unsafe.Pointer(&one)), invalid)
	assert.ErrorIs(t, driver.CuDeviceSetGraphMemAttribute(0, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, unsafe.Pointer(&zero)), invalid)
	assert.ErrorIs(t, driver.CuDeviceGetGraphMemAttribute(99, driver.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, unsafe.Pointer(&one)), driver.CUDA_ERROR_INVALID_DEVICE)
	assert.ErrorIs(t, driver.CuDeviceGetGraphMemAttribute(0, 9, unsafe.Pointer(&one)), invalid)
	assert.ErrorIs(t, driver.CuDeviceGraphMemTrim(99), driver.CUDA_ERROR_INVALID_DEVICE)
	for name, wrong := range map[string]func(*driver.CUDA_MEM_ALLOC_NODE_PARAMS){
		"no size":   func(p *driver.CUDA_MEM_ALLOC_NODE_PARAMS) { p.Bytesize = 0 },
		"no device": func(p *driver.CUDA_MEM_ALLOC_NODE_PARAMS) { *p.PoolProps.Location.Id() = 99 },
		"no place":  func(p *driver.CUDA_MEM_ALLOC_NODE_PARAMS) { p.PoolProps.Location.Type = 0 },
		"shared":    func(p *driver.CUDA_MEM_ALLOC_NODE_PARAMS) { p.PoolProps.HandleTypes = 1 },
		"of many":   func(p *driver.CUDA_MEM_ALLOC_NODE_PARAMS) { p.AccessDescCount = 1 },
	} {
		p := allocation(4)
		wrong(&p)
		var n driver.CUgraphNode
		assert.ErrorIs(t, driver.CuGraphAddMemAllocNode(&n, g, nil, 0, &p), invalid, name)
	}
}
