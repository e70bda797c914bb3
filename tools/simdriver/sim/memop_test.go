//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	geq = driver.CU_STREAM_WAIT_VALUE_GEQ
	eq  = driver.CU_STREAM_WAIT_VALUE_EQ
	and = driver.CU_STREAM_WAIT_VALUE_AND
	nor = driver.CU_STREAM_WAIT_VALUE_NOR
)

func TestWaitValue(t *testing.T) {
	primary(t, 0)
	s, p := stream(t), memory(t, 8)
	for _, test := range []struct {
		name            string
		flags           driver.CUstreamWaitValue_flags
		value           uint64
		before, reached uint64
		wide            bool
	}{
		{"geq", geq, 5, 4, 6, false},
		{"geq around zero", geq, 1, 0xffffffff, 1, false},
		{"eq", eq, 5, 6, 5, false},
		{"eq of the low word", eq, 5, 6, 5 | 1<<40, false},
		{"and", and, 6, 1, 2, false},
		{"nor", nor, 0xfffffffe, 1, 0, false},
		{"geq 64", geq, 1 << 40, 1<<40 - 1, 1 << 41, true},
		{"eq 64", eq, 1 << 40, 0, 1 << 40, true},
		{"and 64", and, 1 << 40, 1, 1 << 40, true},
		{"nor 64", nor, ^uint64(1), 1, 0, true},
	} {
		require.NoError(t, driver.CuMemcpyHtoD(p, unsafe.Pointer(&test.before), 8))
		if test.wide {
			require.NoError(t, driver.CuStreamWaitValue64(s, p, test.value, test.flags), test.name)
		} else {
			require.NoError(t, driver.CuStreamWaitValue32(s, p, uint32(test.value), test.flags), test.name)
		}
		assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_NOT_READY, test.name)
		require.NoError(t, driver.CuStreamWriteValue64(0, p, test.reached, 0))
		require.NoError(t, driver.CuStreamSynchronize(s))
	}
}

func TestMemOpsRefused(t *testing.T) {
	primary(t, 0)
	s, p := stream(t), memory(t, 8)
	var managed driver.CUdeviceptr
	require.NoError(t, driver.CuMemAllocManaged(&managed, 8, driver.CU_MEM_ATTACH_GLOBAL))
	defer func() { require.NoError(t, driver.CuMemFree(managed)) }()
	for _, test := range []struct {
		name    string
		address driver.CUdeviceptr
		flags   driver.CUstreamWaitValue_flags
		want    error
	}{
		{"crooked", p + 2, 0, driver.CUDA_ERROR_INVALID_VALUE},
		{"managed", managed, 0, driver.CUDA_ERROR_INVALID_VALUE},
		{"unknown", 4096, 0, driver.CUDA_ERROR_INVALID_VALUE},
		{"past the end", p + 8, 0, driver.CUDA_ERROR_INVALID_VALUE},
		{"flag", p, 4, driver.CUDA_ERROR_INVALID_VALUE},
		{"flush", p, driver.CU_STREAM_WAIT_VALUE_FLUSH, driver.CUDA_ERROR_NOT_SUPPORTED},
	} {
		assert.ErrorIs(t, driver.CuStreamWaitValue32(s, test.address, 0, test.flags), test.want, test.name)
	}
	assert.ErrorIs(t, driver.CuStreamWriteValue32(s, p, 0, driver.CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER), driver.CUDA_ERROR_INVALID_VALUE)
	many := make([]driver.CUstreamBatchMemOpParams, 256)
	for i := range many {
		*many[i].Operation() = driver.CU_STREAM_MEM_OP_BARRIER
	}
	assert.ErrorIs(t, driver.CuStreamBatchMemOp(s, 256, &many[0], 0), driver.CUDA_ERROR_INVALID_VALUE)
	assert.NoError(t, driver.CuStreamBatchMemOp(s, 255, &many[0], 0))
	assert.NoError(t, driver.CuStreamBatchMemOp(s, 0, nil, 0))
}

// TestBatchInGraph: a batch is one node, and waits at every launch.
func TestBatchInGraph(t *testing.T) {
	primary(t, 0)
	s, p := stream(t), memory(t, 8)
	require.NoError(t, driver.CuMemsetD32(p, 0, 2))
	ops := make([]driver.CUstreamBatchMemOpParams, 2)
	wait, write := ops[0].WaitValue(), ops[1].WriteValue()
	wait.Operation, wait.Address, wait.Flags = driver.CU_STREAM_MEM_OP_WAIT_VALUE_32, p, eq
	*wait.Value() = 1
	write.Operation, write.Address = driver.CU_STREAM_MEM_OP_WRITE_VALUE_32, p
	*write.Value() = 2
	begin(t, s)
	require.NoError(t, driver.CuStreamBatchMemOp(s, 2, &ops[0], 0))
	g := end(t, s)
	var n uint64 = 1
	var node driver.CUgraphNode
	require.NoError(t, driver.CuGraphGetNodes(g, &node, &n))
	var kind driver.CUgraphNodeType
	require.NoError(t, driver.CuGraphNodeGetType(node, &kind))
	assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, kind)
	e := instantiate(t, g)
	require.NoError(t, driver.CuGraphDestroy(g))
	for range 2 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
		assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_NOT_READY)
		require.NoError(t, driver.CuStreamWriteValue32(0, p, 1, 0))
		require.NoError(t, driver.CuStreamSynchronize(s))
		assert.Equal(t, []uint32{2}, words(t, p, 1))
	}
}

func TestManaged(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	var p driver.CUdeviceptr
	assert.ErrorIs(t, driver.CuMemAllocManaged(&p, 8, 0), driver.CUDA_ERROR_INVALID_VALUE)
	require.NoError(t, driver.CuMemAllocManaged(&p, 8, driver.CU_MEM_ATTACH_HOST))
	*(*uint64)(unsafe.Pointer(hostView(p))) = 0
	require.NoError(t, driver.CuMemsetD32Async(p, 9, 1, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.EqualValues(t, 9, *(*uint64)(unsafe.Pointer(hostView(p))), "the host reaches it")

	single := driver.CU_MEM_ATTACH_SINGLE
	other := memory(t, 8)
	for _, test := range []struct {
		name    string
		stream  driver.CUstream
		address driver.CUdeviceptr
		size    uint64
		flags   driver.CUmemAttach_flags
		want    error
	}{
		{"all of it", s, p, 8, single, nil},
		{"as much as there is", s, p, 0, driver.CU_MEM_ATTACH_GLOBAL, nil},
		{"a part", s, p, 4, single, driver.CUDA_ERROR_INVALID_VALUE},
		{"another part", s, p + 4, 4, single, driver.CUDA_ERROR_INVALID_VALUE},
		{"to stream 0", 0, p, 0, single, driver.CUDA_ERROR_INVALID_VALUE},
		{"to stream 0 and all", 0, p, 0, driver.CU_MEM_ATTACH_GLOBAL, nil},
		{"two flags", s, p, 0, 3, driver.CUDA_ERROR_INVALID_VALUE},
		{"not managed", s, other, 0, single, driver.CUDA_ERROR_INVALID_VALUE},
	} {
		assert.ErrorIs(t, driver.CuStreamAttachMemAsync(test.stream, test.address, test.size, test.flags), test.want, test.name)
	}
	assert.ErrorIs(t, driver.CuMemFreeAsync(p, s), driver.CUDA_ERROR_NOT_SUPPORTED)
	begin(t, s)
	assert.ErrorIs(t, driver.CuStreamAttachMemAsync(s, p, 0, single), driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
	var g driver.CUgraph
	assert.ErrorIs(t, driver.CuStreamEndCapture(s, &g), driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	require.NoError(t, driver.CuMemFree(p))
}

func TestPointers(t *testing.T) {
	c := primary(t, 0)
	p := memory(t, 64)
	var managed driver.CUdeviceptr
	require.NoError(t, driver.CuMemAllocManaged(&managed, 8, driver.CU_MEM_ATTACH_GLOBAL))
	defer func() { require.NoError(t, driver.CuMemFree(managed)) }()
	var pinned unsafe.Pointer
	require.NoError(t, driver.CuMemHostAlloc(&pinned, 16, 0))
	defer func() { require.NoError(t, driver.CuMemFreeHost(pinned)) }()
	atHost := driver.CUdeviceptr(uintptr(pinned))
	refused := driver.CUDA_ERROR_INVALID_VALUE
	for _, test := range []struct {
		name      string
		address   driver.CUdeviceptr
		attribute driver.CUpointer_attribute
		value     uint64
		err       error
	}{
		{"context", p, driver.CU_POINTER_ATTRIBUTE_CONTEXT, uint64(c), nil},
		{"device memory", p, driver.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, uint64(driver.CU_MEMORYTYPE_DEVICE), nil},
		{"host memory", atHost, driver.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, uint64(driver.CU_MEMORYTYPE_HOST), nil},
		{"managed memory", managed, driver.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, uint64(driver.CU_MEMORYTYPE_DEVICE), nil},
		{"managed", managed, driver.CU_POINTER_ATTRIBUTE_IS_MANAGED, 1, nil},
		{"not managed", p, driver.CU_POINTER_ATTRIBUTE_IS_MANAGED, 0, nil},
		{"begin", p + 9, driver.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, uint64(p), nil},
		{"size", p + 9, driver.CU_POINTER_ATTRIBUTE_RANGE_SIZE, 64, nil},
		{"for the device", atHost + 1, driver.CU_POINTER_ATTRIBUTE_DEVICE_POINTER, uint64(atHost + 1), nil},
		{"not for the host", p, driver.CU_POINTER_ATTRIBUTE_HOST_POINTER, 0, refused},
		{"unknown", 4096, driver.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0, refused},
	} {
		var v uint64
		assert.ErrorIs(t, driver.CuPointerGetAttribute(unsafe.Pointer(&v), test.attribute, test.address), test.err, test.name)
		assert.Equal(t, test.value, v, test.name)
	}
}

func TestStreamAttributes(t *testing.T) {
	primary(t, 0)
	a, b := stream(t), stream(t)
	var v driver.CUstreamAttrValue
	require.NoError(t, driver.CuStreamGetAttribute(a, driver.CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v))
	assert.Equal(t, ^driver.CUsynchronizationPolicy(0), *v.SyncPolicy(), "none was set")
	*v.SyncPolicy() = driver.CU_SYNC_POLICY_SPIN
	require.NoError(t, driver.CuStreamSetAttribute(a, driver.CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v))
	*v.SyncPolicy() = 5
	assert.ErrorIs(t, driver.CuStreamSetAttribute(a, driver.CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v), driver.CUDA_ERROR_INVALID_VALUE)
	*v.Priority() = -9
	require.NoError(t, driver.CuStreamSetAttribute(a, driver.CU_STREAM_ATTRIBUTE_PRIORITY, &v))
	v = driver.CUstreamAttrValue{}
	*v.AccessPolicyWindow() = driver.CUaccessPolicyWindow{Num_bytes: 1 << 20, HitRatio: 2}
	assert.ErrorIs(t, driver.CuStreamSetAttribute(a, driver.CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v), driver.CUDA_ERROR_INVALID_VALUE)
	v.AccessPolicyWindow().HitRatio = 0.5
	require.NoError(t, driver.CuStreamSetAttribute(a, driver.CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v))

	require.NoError(t, driver.CuStreamCopyAttributes(b, a))
	var got driver.CUstreamAttrValue
	require.NoError(t, driver.CuStreamGetAttribute(b, driver.CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got))
	assert.Equal(t, v, got)
	var priority int32
	require.NoError(t, driver.CuStreamGetPriority(b, &priority))
	assert.EqualValues(t, -5, priority, "clamped")
	require.NoError(t, driver.CuStreamGetAttribute(b, driver.CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &got))
	assert.Equal(t, driver.CUlaunchMemSyncDomainMap{Remote: 1}, *got.MemSyncDomainMap())
	assert.ErrorIs(t, driver.CuStreamGetAttribute(b, driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got), driver.CUDA_ERROR_INVALID_VALUE)
}

func TestAttributesOfAnotherContext(t *testing.T) {
	primary(t, 0)
	a := stream(t)
	primary(t, 1)
	assert.ErrorIs(t, driver.CuStreamCopyAttributes(stream(t), a), driver.CUDA_ERROR_INVALID_VALUE)
}

func TestHostFuncModes(t *testing.T) {
	primary(t, 0)
	s, c := stream(t), newCounter(t)
	require.NoError(t, driver.CuLaunchHostFunc_v2(s, c.fn, c.data(), uint32(driver.CU_HOST_TASK_SPINWAIT)))
	assert.ErrorIs(t, driver.CuLaunchHostFunc_v2(s, c.fn, c.data(), 2), driver.CUDA_ERROR_INVALID_VALUE)
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, 1, c.calls())
}
