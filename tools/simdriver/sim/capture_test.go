//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func begin(t *testing.T, s driver.CUstream) {
	t.Helper()
	require.NoError(t, driver.CuStreamBeginCapture(s, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
}

func end(t *testing.T, s driver.CUstream) (g driver.CUgraph) {
	t.Helper()
	require.NoError(t, driver.CuStreamEndCapture(s, &g))
	return g
}

// info is the graph that a stream captures, and what its next node waits for.
func info(t *testing.T, s driver.CUstream) (g driver.CUgraph, nodes []driver.CUgraphNode, data []driver.CUgraphEdgeData) {
	t.Helper()
	var status driver.CUstreamCaptureStatus
	var p *driver.CUgraphNode
	var d *driver.CUgraphEdgeData
	var n uint64
	require.NoError(t, driver.CuStreamGetCaptureInfo(s, &status, nil, &g, &p, &d, &n))
	require.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_ACTIVE, status)
	return g, append(nodes, unsafe.Slice(p, n)...), append(data, unsafe.Slice(d, n)...)
}

func TestCaptureInfo(t *testing.T) {
	primary(t, 0)
	s, p, f := stream(t), memory(t, 4), kernel(t, "spin")
	var status driver.CUstreamCaptureStatus
	var g driver.CUgraph
	require.NoError(t, driver.CuStreamGetCaptureInfo(s, &status, nil, &g, nil, nil, nil))
	assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_NONE, status)
	assert.ErrorIs(t, driver.CuStreamUpdateCaptureDependencies(s, nil, nil, 0, 0), driver.CUDA_ERROR_ILLEGAL_STATE)

	begin(t, s)
	g, nodes, _ := info(t, s)
	assert.Empty(t, nodes)
	assert.ErrorIs(t, driver.CuGraphDestroy(g), driver.CUDA_ERROR_ILLEGAL_STATE)
	require.NoError(t, driver.CuMemsetD32Async(p, 1, 1, s))
	_, nodes, _ = info(t, s)
	require.Len(t, nodes, 1)

	mine := kernelNode(t, g, f, 0, nodes...)
	foreign := empty(t, newGraph(t))
	edge := driver.CUgraphEdgeData{From_port: 1, Type: 1}
	set, add := driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES, driver.CU_STREAM_ADD_CAPTURE_DEPENDENCIES
	assert.ErrorIs(t, driver.CuStreamUpdateCaptureDependencies(s, &foreign, nil, 1, set), driver.CUDA_ERROR_INVALID_VALUE)
	assert.ErrorIs(t, driver.CuStreamUpdateCaptureDependencies(s, &mine, nil, 1, 7), driver.CUDA_ERROR_INVALID_VALUE)
	require.NoError(t, driver.CuStreamUpdateCaptureDependencies(s, &mine, nil, 1, add))
	_, both, _ := info(t, s)
	assert.Equal(t, append(nodes, mine), both)
	require.NoError(t, driver.CuStreamUpdateCaptureDependencies(s, &mine, &edge, 1, set))
	_, nodes, data := info(t, s)
	assert.Equal(t, []driver.CUgraphNode{mine}, nodes)
	assert.Equal(t, []driver.CUgraphEdgeData{edge}, data)

	var dependencies *driver.CUgraphNode
	assert.ErrorIs(t, driver.CuStreamGetCaptureInfo_v2(s, &status, nil, &g, &dependencies, nil), driver.CUDA_ERROR_LOSSY_QUERY)
	assert.ErrorIs(t, driver.CuMemsetD32Async(p, 1, 1, s), driver.CUDA_ERROR_INVALID_VALUE, "no kernel, no such edge")
	require.NoError(t, launch(f, s, 0))
	g = end(t, s)
	n := uint64(0)
	require.NoError(t, driver.CuGraphGetNodes(g, nil, &n))
	assert.EqualValues(t, 3, n)
	require.NoError(t, driver.CuGraphDestroy(g))
}

func TestCaptureToGraph(t *testing.T) {
	primary(t, 0)
	s, other, p := stream(t), stream(t), memory(t, 8)
	mode := driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
	g := newGraph(t)
	first := memset(t, g, p, 3)
	foreign := empty(t, newGraph(t))
	assert.ErrorIs(t, driver.CuStreamBeginCaptureToGraph(s, g, &foreign, nil, 1, mode), driver.CUDA_ERROR_INVALID_VALUE)
	require.NoError(t, driver.CuStreamBeginCaptureToGraph(s, g, &first, nil, 1, mode))
	assert.ErrorIs(t, driver.CuStreamBeginCaptureToGraph(other, g, nil, nil, 0, mode), driver.CUDA_ERROR_ILLEGAL_STATE)
	require.NoError(t, driver.CuMemcpyDtoDAsync(p+4, p, 4, s))
	assert.Equal(t, g, end(t, s), "the same graph")
	require.NoError(t, driver.CuGraphLaunch(instantiate(t, g), s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{3, 3}, words(t, p, 2))

	var lost driver.CUgraph
	require.NoError(t, driver.CuGraphCreate(&lost, 0))
	node := empty(t, lost)
	require.NoError(t, driver.CuStreamBeginCaptureToGraph(s, lost, nil, nil, 0, mode))
	assert.ErrorIs(t, driver.CuStreamSynchronize(s), driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
	var none driver.CUgraph
	assert.ErrorIs(t, driver.CuStreamEndCapture(s, &none), driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	assert.Zero(t, none)
	var e driver.CUgraphExec
	assert.ErrorIs(t, driver.CuGraphInstantiate(&e, lost, 0), driver.CUDA_ERROR_INVALID_VALUE, "CUDA has destroyed it")
	assert.ErrorIs(t, driver.CuGraphDestroy(lost), driver.CUDA_ERROR_INVALID_VALUE)
	var kind driver.CUgraphNodeType
	assert.ErrorIs(t, driver.CuGraphNodeGetType(node, &kind), driver.CUDA_ERROR_INVALID_VALUE)
}

func TestInstantiateBreaksCapture(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	begin(t, s)
	var e driver.CUgraphExec
	assert.ErrorIs(t, driver.CuGraphInstantiate(&e, newGraph(t), 0), driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
	var g driver.CUgraph
	assert.ErrorIs(t, driver.CuStreamEndCapture(s, &g), driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

func TestRecapture(t *testing.T) {
	primary(t, 0)
	s, p := stream(t), memory(t, 4)
	mode := driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
	begin(t, s)
	require.NoError(t, driver.CuMemsetD32Async(p, 1, 1, s))
	g := end(t, s)
	defer func() { require.NoError(t, driver.CuGraphDestroy(g)) }()
	c := newCounter(t) // returns 0, which is to go on
	asked := driver.CUgraphRecaptureCallback(c.fn)

	require.NoError(t, driver.CuStreamBeginRecaptureToGraph(s, mode, g, asked, c.data()))
	require.NoError(t, driver.CuMemsetD32Async(p, 1, 1, s))
	assert.Zero(t, c.calls(), "nothing has changed")
	assert.Equal(t, g, end(t, s))

	require.NoError(t, driver.CuStreamBeginRecaptureToGraph(s, mode, g, asked, c.data()))
	require.NoError(t, driver.CuMemsetD32Async(p, 2, 1, s))
	assert.Equal(t, 1, c.calls())
	assert.Equal(t, g, end(t, s))
	require.NoError(t, driver.CuGraphLaunch(instantiate(t, g), s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{2}, words(t, p, 1))

	for _, test := range []struct {
		name    string
		enqueue func() error
		want    error
	}{
		{"another type", func() error { return launch(kernel(t, "spin"), s, 0) }, driver.CUDA_ERROR_GRAPH_RECAPTURE_FAILURE},
		{"nothing", func() error { return nil }, nil},
	} {
		require.NoError(t, driver.CuStreamBeginRecaptureToGraph(s, mode, g, 0, 0))
		assert.ErrorIs(t, test.enqueue(), test.want, test.name)
		var none driver.CUgraph
		assert.Error(t, driver.CuStreamEndCapture(s, &none), test.name)
	}
}

// TestCapturedMemory: what a graph allocates is there while it is launched, at
// the same address every time.
func TestCapturedMemory(t *testing.T) {
	primary(t, 0)
	s, out := stream(t), memory(t, 4)
	var p driver.CUdeviceptr
	capture := func(frees bool) driver.CUgraph {
		begin(t, s)
		require.NoError(t, driver.CuMemAllocAsync(&p, 4, s))
		require.NoError(t, driver.CuMemsetD32Async(p, 5, 1, s))
		require.NoError(t, driver.CuMemcpyDtoDAsync(out, p, 4, s))
		if frees {
			require.NoError(t, driver.CuMemFreeAsync(p, s))
		} else {
			assert.ErrorIs(t, driver.CuMemFreeAsync(out, s), driver.CUDA_ERROR_INVALID_VALUE, "not the graph's")
		}
		return end(t, s)
	}
	g := capture(true)
	assert.ErrorIs(t, driver.CuMemFree(p), driver.CUDA_ERROR_INVALID_VALUE, "not there")
	var e, second driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	assert.ErrorIs(t, driver.CuGraphInstantiate(&second, g, 0), driver.CUDA_ERROR_NOT_SUPPORTED)
	var clone driver.CUgraph
	assert.ErrorIs(t, driver.CuGraphClone(&clone, g), driver.CUDA_ERROR_NOT_SUPPORTED)
	for range 2 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
	}
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{5}, words(t, out, 1))
	require.NoError(t, driver.CuGraphExecDestroy(e))
	require.NoError(t, driver.CuGraphDestroy(g))

	g = capture(false)
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	require.NoError(t, driver.CuGraphLaunch(e, s))
	assert.ErrorIs(t, driver.CuGraphLaunch(e, s), driver.CUDA_ERROR_INVALID_VALUE, "it was not freed")
	violated(t, "in the wrong state")
	require.NoError(t, driver.CuMemFreeAsync(p, s))
	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{5}, words(t, p, 1))
	require.NoError(t, driver.CuGraphExecDestroy(e))
	require.NoError(t, driver.CuGraphDestroy(g))
	assert.Equal(t, 1, control.Live("async"), "the program's now")
	require.NoError(t, driver.CuMemFree(p))
}

// TestExternalEvents: each launch records an event of the graph anew.
func TestExternalEvents(t *testing.T) {
	primary(t, 0)
	s, e := stream(t), event(t)
	begin(t, s)
	require.NoError(t, driver.CuEventRecordWithFlags(e, s, driver.CU_EVENT_RECORD_EXTERNAL))
	g := end(t, s)
	exec := instantiate(t, g)
	require.NoError(t, driver.CuGraphDestroy(g))
	assert.NoError(t, driver.CuEventQuery(e), "not recorded")
	for range 2 {
		open := gate(t, s)
		require.NoError(t, driver.CuGraphLaunch(exec, s))
		assert.ErrorIs(t, driver.CuEventQuery(e), driver.CUDA_ERROR_NOT_READY)
		open()
		require.NoError(t, driver.CuEventSynchronize(e))
	}
}

// TestEventAfterCapture: an event that was recorded in a capture is nothing after it.
func TestEventAfterCapture(t *testing.T) {
	primary(t, 0)
	s, e := stream(t), event(t)
	begin(t, s)
	require.NoError(t, driver.CuEventRecord(e, s))
	require.NoError(t, driver.CuGraphDestroy(end(t, s)))
	assert.ErrorIs(t, driver.CuEventQuery(e), driver.CUDA_ERROR_INVALID_VALUE)
	assert.ErrorIs(t, driver.CuStreamWaitEvent(s, e, 0), driver.CUDA_ERROR_INVALID_VALUE)
	require.NoError(t, driver.CuEventRecord(e, s))
	require.NoError(t, driver.CuEventSynchronize(e))
}

// TestCaptureIntoBodyInCapture: a conditional node stands in the middle of captured work, and its
// body is captured while the outer capture goes on.
func TestCaptureIntoBodyInCapture(t *testing.T) {
	primary(t, 0)
	s, side, p := stream(t), stream(t), memory(t, 4)
	begins := func() (g, body driver.CUgraph, n driver.CUgraphNode) {
		begin(t, s)
		require.NoError(t, driver.CuMemsetD32Async(p, 1, 1, s))
		g, nodes, _ := info(t, s)
		n, bodies, err := conditionNode(g, condition(t, g, 1, 1), driver.CU_GRAPH_COND_TYPE_IF, 1, nodes...)
		require.NoError(t, err)
		require.NoError(t, driver.CuStreamUpdateCaptureDependencies(s, &n, nil, 1, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
		require.NoError(t, driver.CuStreamBeginCaptureToGraph(side, bodies[0], nil, nil, 0, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
		return g, bodies[0], n
	}
	{ // launched
		_, _, n := begins()
		_, deps, _ := info(t, s)
		assert.Equal(t, []driver.CUgraphNode{n}, deps)
		require.NoError(t, driver.CuMemsetD32Async(p, 7, 1, side))
		end(t, side)
		g := end(t, s)
		var e driver.CUgraphExec
		require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
		require.NoError(t, driver.CuGraphLaunch(e, s))
		require.NoError(t, driver.CuStreamSynchronize(s))
		assert.Equal(t, []uint32{7}, words(t, p, 1))
		require.NoError(t, driver.CuGraphExecDestroy(e))
		require.NoError(t, driver.CuGraphDestroy(g))
	}
	{ // refused meanwhile
		_, body, _ := begins()
		inside := empty(t, body)
		assert.ErrorIs(t, driver.CuGraphDestroyNode(inside), driver.CUDA_ERROR_ILLEGAL_STATE)
		assert.Contains(t, control.Violation(), "a node of a graph is destroyed that a stream captures into")
		control.Reset()
		g := end(t, s)
		assert.ErrorIs(t, driver.CuGraphDestroy(g), driver.CUDA_ERROR_ILLEGAL_STATE, "its body is captured")
		var clone driver.CUgraph
		assert.ErrorIs(t, driver.CuGraphClone(&clone, g), driver.CUDA_ERROR_INVALID_VALUE)
		end(t, side)
		require.NoError(t, driver.CuGraphDestroy(g))
	}
	{ // lost, after the body was captured
		begins()
		end(t, side)
		assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		var g driver.CUgraph
		assert.ErrorIs(t, driver.CuStreamEndCapture(s, &g), driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	}
}

// TestCaptureManyPaths: two streams that wait for each other again and again make a graph with more paths than
// can be walked.
func TestCaptureManyPaths(t *testing.T) {
	primary(t, 0)
	s, side, apart := stream(t), stream(t), stream(t)
	e, p := event(t), allocate(t, 8)
	waits := func(waiting, on driver.CUstream) {
		require.NoError(t, driver.CuEventRecord(e, on))
		require.NoError(t, driver.CuStreamWaitEvent(waiting, e, 0))
	}
	fill := func(s driver.CUstream, at driver.CUdeviceptr) {
		require.NoError(t, driver.CuMemsetD32Async(at, 1, 1, s))
	}
	begin(t, s)
	waits(apart, s)
	fill(apart, p)
	for range 100 {
		waits(side, s)
		fill(side, p)
		fill(s, p+4)
		waits(s, side)
	}
	var g driver.CUgraph
	assert.ErrorIs(t, driver.CuStreamEndCapture(s, &g), driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
	require.NoError(t, driver.CuMemFree(p))
}
