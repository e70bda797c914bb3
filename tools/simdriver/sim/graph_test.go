//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// symbol is the address of a function of the C library, for want of C in tests.
func symbol(t *testing.T, name string) uintptr {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[2] != "00000000" || !strings.HasPrefix(filepath.Base(fields[5]), "libc.so") {
			continue
		}
		start, _, _ := strings.Cut(fields[0], "-")
		base, err := strconv.ParseUint(start, 16, 64)
		require.NoError(t, err)
		file, err := elf.Open(fields[5])
		require.NoError(t, err)
		defer file.Close()
		symbols, err := file.DynamicSymbols()
		require.NoError(t, err)
		for _, s := range symbols {
			if s.Name == name && s.Value != 0 {
				return uintptr(base + s.Value)
			}
		}
	}
	t.Skip("no C library with " + name)
	return 0
}

// counter counts how often a C function is called with its address: the function
// is sem_post, and the counter a semaphore.
type counter struct {
	fn    driver.CUhostFn
	count *uint32
}

func newCounter(t *testing.T) counter {
	t.Helper()
	var p unsafe.Pointer
	require.NoError(t, driver.CuMemHostAlloc(&p, 64, 0))
	t.Cleanup(func() { assert.NoError(t, driver.CuMemFreeHost(p)) })
	clear(unsafe.Slice((*byte)(p), 64))
	return counter{driver.CUhostFn(symbol(t, "sem_post")), (*uint32)(p)}
}

func (c counter) calls() int    { return int(atomic.LoadUint32(c.count)) }
func (c counter) data() uintptr { return uintptr(unsafe.Pointer(c.count)) }

func (c counter) becomes(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.calls() == n }, time.Minute, time.Millisecond)
}

func newGraph(t *testing.T) driver.CUgraph {
	t.Helper()
	var g driver.CUgraph
	require.NoError(t, driver.CuGraphCreate(&g, 0))
	t.Cleanup(func() { assert.NoError(t, driver.CuGraphDestroy(g)) })
	return g
}

func first[T any](v []T) *T {
	if len(v) == 0 {
		return nil
	}
	return &v[0]
}

func memset(t *testing.T, g driver.CUgraph, p driver.CUdeviceptr, value uint32, after ...driver.CUgraphNode) (n driver.CUgraphNode) {
	t.Helper()
	params := driver.CUDA_MEMSET_NODE_PARAMS{Dst: p, Value: value, ElementSize: 4, Width: 1, Height: 1}
	require.NoError(t, driver.CuGraphAddMemsetNode(&n, g, first(after), uint64(len(after)), &params, 0))
	return n
}

func memcpy(t *testing.T, g driver.CUgraph, dst, src driver.CUdeviceptr, size uint64, after ...driver.CUgraphNode) (n driver.CUgraphNode) {
	t.Helper()
	p := driver.CUDA_MEMCPY3D{
		SrcMemoryType: driver.CU_MEMORYTYPE_DEVICE, SrcDevice: src,
		DstMemoryType: driver.CU_MEMORYTYPE_DEVICE, DstDevice: dst,
		WidthInBytes: size, Height: 1, Depth: 1,
	}
	require.NoError(t, driver.CuGraphAddMemcpyNode(&n, g, first(after), uint64(len(after)), &p, 0))
	return n
}

func empty(t *testing.T, g driver.CUgraph, after ...driver.CUgraphNode) (n driver.CUgraphNode) {
	t.Helper()
	require.NoError(t, driver.CuGraphAddEmptyNode(&n, g, first(after), uint64(len(after))))
	return n
}

func host(t *testing.T, g driver.CUgraph, c counter, after ...driver.CUgraphNode) (n driver.CUgraphNode) {
	t.Helper()
	p := driver.CUDA_HOST_NODE_PARAMS{Fn: c.fn, UserData: c.data()}
	require.NoError(t, driver.CuGraphAddHostNode(&n, g, first(after), uint64(len(after)), &p))
	return n
}

func kernelNode(t *testing.T, g driver.CUgraph, f driver.CUfunction, argument uint64, after ...driver.CUgraphNode) (n driver.CUgraphNode) {
	t.Helper()
	params := [...]unsafe.Pointer{unsafe.Pointer(&argument)}
	p := driver.CUDA_KERNEL_NODE_PARAMS{
		Func: f, GridDimX: 1, GridDimY: 1, GridDimZ: 1, BlockDimX: 1, BlockDimY: 1, BlockDimZ: 1, KernelParams: &params[0],
	}
	require.NoError(t, driver.CuGraphAddKernelNode(&n, g, first(after), uint64(len(after)), &p))
	return n
}

func instantiate(t *testing.T, g driver.CUgraph) driver.CUgraphExec {
	t.Helper()
	var e driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	t.Cleanup(func() { assert.NoError(t, driver.CuGraphExecDestroy(e)) })
	return e
}

// TestGraphOfNodes: nodes run in the order of their edges, not in that in which
// they were added.
func TestGraphOfNodes(t *testing.T) {
	primary(t, 0)
	s, p, g, c := stream(t), memory(t, 8), newGraph(t), newCounter(t)
	last := host(t, g, c)
	copied := memcpy(t, g, p+4, p, 4)
	set := memset(t, g, p, 7)
	from, to := []driver.CUgraphNode{set, copied}, []driver.CUgraphNode{copied, last}
	require.NoError(t, driver.CuGraphAddDependencies(g, &from[0], &to[0], nil, 2))
	e := instantiate(t, g)
	require.NoError(t, driver.CuGraphUpload(e, s))
	for range 3 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
	}
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{7, 7}, words(t, p, 2))
	assert.Equal(t, 3, c.calls())
}

func TestGraphQueries(t *testing.T) {
	primary(t, 0)
	g := newGraph(t)
	a := empty(t, g)
	b := memset(t, g, memory(t, 4), 1, a)
	c := empty(t, g, a, b)

	var n uint64
	require.NoError(t, driver.CuGraphGetRootNodes(g, nil, &n))
	assert.EqualValues(t, 1, n)
	nodes := make([]driver.CUgraphNode, 4)
	n = 4
	require.NoError(t, driver.CuGraphGetNodes(g, &nodes[0], &n))
	assert.Equal(t, []driver.CUgraphNode{a, b, c, 0}, nodes)
	assert.EqualValues(t, 3, n)
	n = 0
	assert.ErrorIs(t, driver.CuGraphGetNodes(g, &nodes[0], &n), driver.CUDA_ERROR_INVALID_VALUE, "no room")

	from, to := make([]driver.CUgraphNode, 3), make([]driver.CUgraphNode, 3)
	n = 3
	require.NoError(t, driver.CuGraphGetEdges(g, &from[0], &to[0], nil, &n))
	assert.Equal(t, []driver.CUgraphNode{a, a, b}, from)
	assert.Equal(t, []driver.CUgraphNode{b, c, c}, to)

	n = 2
	require.NoError(t, driver.CuGraphNodeGetDependencies(c, &nodes[0], nil, &n))
	assert.Equal(t, []driver.CUgraphNode{a, b}, nodes[:n])
	n = 2
	require.NoError(t, driver.CuGraphNodeGetDependentNodes_v1(a, &nodes[0], &n))
	assert.Equal(t, []driver.CUgraphNode{b, c}, nodes[:n])

	var kind driver.CUgraphNodeType
	require.NoError(t, driver.CuGraphNodeGetType(b, &kind))
	assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_MEMSET, kind)

	file := filepath.Join(t.TempDir(), "graph.dot")
	require.NoError(t, driver.CuGraphDebugDotPrint(g, unsafe.StringData(file+"\x00"), 0))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), "MEMSET")
	assert.ErrorIs(t, driver.CuGraphDebugDotPrint(g, unsafe.StringData(filepath.Dir(file)+"\x00"), 0), driver.CUDA_ERROR_OPERATING_SYSTEM)

	require.NoError(t, driver.CuGraphDestroyNode(b))
	require.NoError(t, driver.CuGraphNodeGetDependencies(c, nil, nil, &n))
	assert.EqualValues(t, 1, n)
}

func TestGraphEdges(t *testing.T) {
	primary(t, 0)
	g, other := newGraph(t), newGraph(t)
	a, b, foreign := empty(t, g), empty(t, g), empty(t, other)
	f := kernel(t, "spin")
	x, y := kernelNode(t, g, f, 0), kernelNode(t, g, f, 0)
	programmatic := driver.CUgraphEdgeData{From_port: 1, Type: 1}
	for _, test := range []struct {
		name     string
		from, to driver.CUgraphNode
		data     *driver.CUgraphEdgeData
		err      error
	}{
		{"to itself", a, a, nil, driver.CUDA_ERROR_INVALID_VALUE},
		{"from another graph", foreign, a, nil, driver.CUDA_ERROR_INVALID_VALUE},
		{"to another graph", a, foreign, nil, driver.CUDA_ERROR_INVALID_VALUE},
		{"data on no kernels", a, b, &programmatic, driver.CUDA_ERROR_INVALID_VALUE},
		{"a second port", a, b, &driver.CUgraphEdgeData{To_port: 1}, driver.CUDA_ERROR_INVALID_VALUE},
		{"ordinary", a, b, nil, nil},
		{"twice", a, b, nil, driver.CUDA_ERROR_INVALID_VALUE},
		{"data on kernels", x, y, &programmatic, nil},
	} {
		err := driver.CuGraphAddDependencies(g, &test.from, &test.to, test.data, 1)
		assert.ErrorIs(t, err, test.err, test.name)
	}
	from, to, n := make([]driver.CUgraphNode, 2), make([]driver.CUgraphNode, 2), uint64(2)
	assert.ErrorIs(t, driver.CuGraphGetEdges_v1(g, &from[0], &to[0], &n), driver.CUDA_ERROR_LOSSY_QUERY)
	data := make([]driver.CUgraphEdgeData, 2)
	require.NoError(t, driver.CuGraphGetEdges(g, &from[0], &to[0], &data[0], &n))
	assert.Equal(t, []driver.CUgraphEdgeData{{}, programmatic}, data)

	from, to = []driver.CUgraphNode{b, a}, []driver.CUgraphNode{x, b}
	assert.ErrorIs(t, driver.CuGraphAddDependencies(g, &from[0], &to[0], nil, 2), driver.CUDA_ERROR_INVALID_VALUE, "the second is there")
	require.NoError(t, driver.CuGraphNodeGetDependencies(x, nil, nil, &n))
	assert.EqualValues(t, 1, n, "the first was added")
}

func TestInstantiate(t *testing.T) {
	primary(t, 0)
	g := newGraph(t)
	a := empty(t, g)
	b := empty(t, g, a)
	params := driver.CUDA_GRAPH_INSTANTIATE_PARAMS{Flags: uint64(driver.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)}
	var e driver.CUgraphExec
	require.ErrorIs(t, driver.CuGraphInstantiateWithParams(&e, g, &params), driver.CUDA_ERROR_INVALID_VALUE)
	assert.Equal(t, driver.CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, params.Result_out)
	assert.Equal(t, a, params.HErrNode_out)

	params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS{Flags: 64}
	require.ErrorIs(t, driver.CuGraphInstantiateWithParams(&e, g, &params), driver.CUDA_ERROR_INVALID_VALUE)
	assert.Equal(t, driver.CUDA_GRAPH_INSTANTIATE_ERROR, params.Result_out)
	assert.Zero(t, params.HErrNode_out)

	params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS{Flags: uint64(driver.CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | driver.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH), HUploadStream: stream(t)}
	require.NoError(t, driver.CuGraphInstantiateWithParams(&e, g, &params))
	assert.Equal(t, driver.CUDA_GRAPH_INSTANTIATE_SUCCESS, params.Result_out)
	var flags uint64
	require.NoError(t, driver.CuGraphExecGetFlags(e, &flags))
	assert.EqualValues(t, driver.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, flags)
	require.NoError(t, driver.CuGraphExecDestroy(e))

	require.NoError(t, driver.CuGraphAddDependencies(g, &b, &a, nil, 1), "a cycle is found later")
	params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS{}
	require.ErrorIs(t, driver.CuGraphInstantiateWithParams(&e, g, &params), driver.CUDA_ERROR_INVALID_VALUE)
	assert.Equal(t, driver.CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, params.Result_out)
	assert.NotZero(t, params.HErrNode_out)
}

// TestLaunchesAreOrdered: two launches of one executable do not overlap, in
// whatever streams they are.
func TestLaunchesAreOrdered(t *testing.T) {
	primary(t, 0)
	a, b, p, g := stream(t), stream(t), memory(t, 4), newGraph(t)
	memset(t, g, p, 1)
	e := instantiate(t, g)
	open := gate(t, a)
	require.NoError(t, driver.CuGraphLaunch(e, a))
	require.NoError(t, driver.CuGraphLaunch(e, b))
	assert.ErrorIs(t, driver.CuStreamQuery(b), driver.CUDA_ERROR_NOT_READY)
	open()
	require.NoError(t, driver.CuStreamSynchronize(b))
	assert.NoError(t, driver.CuStreamQuery(a))
}

func TestExecUpdate(t *testing.T) {
	primary(t, 0)
	s, p := stream(t), memory(t, 16)
	build := func(value uint32) driver.CUgraph {
		g := newGraph(t)
		memcpy(t, g, p+4, p, 4, memset(t, g, p, value))
		return g
	}
	e := instantiate(t, build(1))
	run := func() []uint32 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
		require.NoError(t, driver.CuStreamSynchronize(s))
		return words(t, p, 2)
	}
	assert.Equal(t, []uint32{1, 1}, run())

	var info driver.CUgraphExecUpdateResultInfo
	require.NoError(t, driver.CuGraphExecUpdate(e, build(2), &info))
	assert.Equal(t, driver.CU_GRAPH_EXEC_UPDATE_SUCCESS, info.Result)
	assert.Equal(t, []uint32{2, 2}, run())

	fewer := newGraph(t)
	memset(t, fewer, p, 3)
	unjoined := newGraph(t)
	memset(t, unjoined, p, 3)
	free := memcpy(t, unjoined, p+4, p, 4)
	other := newGraph(t)
	kind := empty(t, other, memset(t, other, p, 3))
	for _, test := range []struct {
		name   string
		graph  driver.CUgraph
		result driver.CUgraphExecUpdateResult
		node   driver.CUgraphNode
	}{
		{"fewer nodes", fewer, driver.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0},
		{"an edge less", unjoined, driver.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, free},
		{"another type", other, driver.CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, kind},
	} {
		require.ErrorIs(t, driver.CuGraphExecUpdate(e, test.graph, &info), driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, test.name)
		assert.Equal(t, test.result, info.Result, test.name)
		assert.Equal(t, test.node, info.ErrorNode, test.name)
		var node driver.CUgraphNode
		var result driver.CUgraphExecUpdateResult
		require.ErrorIs(t, driver.CuGraphExecUpdate_v1(e, test.graph, &node, &result), driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
		assert.Equal(t, test.result, result, test.name)
	}
	assert.Equal(t, []uint32{2, 2}, run(), "as before")
}

func TestUnloadedKernelInGraph(t *testing.T) {
	primary(t, 0)
	s, g := stream(t), newGraph(t)
	image, err := os.ReadFile("../../../cuda/safe/testdata/kernels.ptx")
	require.NoError(t, err)
	image = append(image, 0)
	var m driver.CUmodule
	var f driver.CUfunction
	require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
	require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData("spin\x00")))
	kernelNode(t, g, f, 1)
	e := instantiate(t, g)
	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuModuleUnload(m))
	require.Error(t, driver.CuGraphLaunch(e, s))
	violated(t, "a module that was unloaded")
}
