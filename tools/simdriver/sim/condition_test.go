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

// conditional is one of the kernels that set conditions.
func conditional(t *testing.T, name string) driver.CUfunction {
	t.Helper()
	return kernelOf(t, "condition.ptx", name)
}

func setter(t *testing.T, g driver.CUgraph, f driver.CUfunction, h driver.CUgraphConditionalHandle, value driver.CUdeviceptr, after ...driver.CUgraphNode) (n driver.CUgraphNode) {
	t.Helper()
	params := [...]unsafe.Pointer{unsafe.Pointer(&h), unsafe.Pointer(&value)}
	p := kernelParams(f, &params[0])
	require.NoError(t, driver.CuGraphAddKernelNode(&n, g, first(after), uint64(len(after)), &p))
	return n
}

func condition(t *testing.T, g driver.CUgraph, initial, flags uint32) (h driver.CUgraphConditionalHandle) {
	t.Helper()
	require.NoError(t, driver.CuGraphConditionalHandleCreate(&h, g, 0, initial, flags))
	return h
}

func conditionNode(g driver.CUgraph, h driver.CUgraphConditionalHandle, kind driver.CUgraphConditionalNodeType, size uint32, after ...driver.CUgraphNode) (driver.CUgraphNode, []driver.CUgraph, error) {
	p := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_CONDITIONAL}
	*p.Conditional() = driver.CUDA_CONDITIONAL_NODE_PARAMS{Handle: h, Type: kind, Size: size}
	n, err := add(g, &p, after...)
	if err != nil {
		return 0, nil, err
	}
	return n, append([]driver.CUgraph(nil), unsafe.Slice(p.Conditional().PhGraph_out, size)...), nil
}

// TestConditions: a body runs if its condition holds, as often as it does, or as
// the one of its number.
func TestConditions(t *testing.T) {
	primary(t, 0)
	choose, s := conditional(t, "choose"), stream(t)
	for _, test := range []struct {
		name  string
		kind  driver.CUgraphConditionalNodeType
		size  uint32
		value uint32
		want  []uint32
	}{
		{"if it holds", driver.CU_GRAPH_COND_TYPE_IF, 1, 5, []uint32{1, 0, 0}},
		{"if it does not", driver.CU_GRAPH_COND_TYPE_IF, 1, 0, []uint32{0, 0, 0}},
		{"then", driver.CU_GRAPH_COND_TYPE_IF, 2, 1, []uint32{1, 0, 0}},
		{"else", driver.CU_GRAPH_COND_TYPE_IF, 2, 0, []uint32{0, 1, 0}},
		{"the first", driver.CU_GRAPH_COND_TYPE_SWITCH, 3, 0, []uint32{1, 0, 0}},
		{"the last", driver.CU_GRAPH_COND_TYPE_SWITCH, 3, 2, []uint32{0, 0, 1}},
		{"none", driver.CU_GRAPH_COND_TYPE_SWITCH, 3, 3, []uint32{0, 0, 0}},
		{"never", driver.CU_GRAPH_COND_TYPE_WHILE, 1, 0, []uint32{0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			primary(t, 0)
			p, value, g := memory(t, 12), memory(t, 4), newGraph(t)
			require.NoError(t, driver.CuMemcpyHtoD(value, unsafe.Pointer(&test.value), 4))
			zero := driver.CUDA_MEMSET_NODE_PARAMS{Dst: p, ElementSize: 4, Width: 3, Height: 1}
			var cleared driver.CUgraphNode
			require.NoError(t, driver.CuGraphAddMemsetNode(&cleared, g, nil, 0, &zero, 0))
			h := condition(t, g, 0, 0)
			live := control.Live("graph")
			_, bodies, err := conditionNode(g, h, test.kind, test.size, setter(t, g, choose, h, value, cleared))
			require.NoError(t, err)
			assert.Equal(t, live, control.Live("graph"), "bodies are no graphs of their own")
			for i, b := range bodies {
				memset(t, b, p+driver.CUdeviceptr(4*i), 1)
			}
			require.NoError(t, driver.CuGraphLaunch(instantiate(t, g), s))
			require.NoError(t, driver.CuStreamSynchronize(s))
			assert.Equal(t, test.want, words(t, p, 3))
		})
	}
}

// TestWhile: a body runs as long as its kernel lets it, also one within another,
// with a child in it. A default value is there anew at every launch.
func TestWhile(t *testing.T) {
	primary(t, 0)
	next, s, g, c := conditional(t, "condition"), stream(t), newGraph(t), newCounter(t)
	outer, inner, sum := memory(t, 4), memory(t, 4), memory(t, 4)
	var loop driver.CUgraphNode
	h := condition(t, g, 1, uint32(driver.CU_GRAPH_COND_ASSIGN_DEFAULT))
	loop, bodies, err := conditionNode(g, h, driver.CU_GRAPH_COND_TYPE_WHILE, 1)
	require.NoError(t, err)
	host(t, g, c, loop)
	in := condition(t, bodies[0], 0, 0)
	set := memset(t, bodies[0], inner, 2)
	first := setter(t, bodies[0], next, in, inner, set)
	again, nested, err := conditionNode(bodies[0], in, driver.CU_GRAPH_COND_TYPE_WHILE, 1, first)
	require.NoError(t, err)
	child := newGraph(t)
	memset(t, child, sum, 9)
	var n driver.CUgraphNode
	require.NoError(t, driver.CuGraphAddChildGraphNode(&n, nested[0], nil, 0, child))
	setter(t, nested[0], next, in, inner, n)
	setter(t, bodies[0], next, h, outer, again)

	e := instantiate(t, g)
	for i := range 2 {
		three := uint32(3)
		require.NoError(t, driver.CuMemcpyHtoD(outer, unsafe.Pointer(&three), 4))
		before := control.Calls("")
		require.NoError(t, driver.CuGraphLaunch(e, s))
		require.NoError(t, driver.CuStreamSynchronize(s))
		assert.Equal(t, before+2, control.Calls(""))
		assert.Equal(t, []uint32{0, 0, 9}, append(append(words(t, outer, 1), words(t, inner, 1)...), words(t, sum, 1)...))
		assert.Equal(t, i+1, c.calls(), "the host function after the loop")
	}

	file := filepath.Join(t.TempDir(), "graph.dot")
	require.NoError(t, driver.CuGraphDebugDotPrint(g, unsafe.StringData(file+"\x00"), 0))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), "CONDITIONAL")
	assert.Contains(t, string(text), "KERNEL condition", "in the body")
}

// TestEndlessLoop: a loop that never ends leaves the others alone, until the
// program makes it end.
func TestEndlessLoop(t *testing.T) {
	primary(t, 0)
	p, s, other, g := memory(t, 4), stream(t), stream(t), newGraph(t)
	choose := conditional(t, "choose")
	h := condition(t, g, 1, uint32(driver.CU_GRAPH_COND_ASSIGN_DEFAULT))
	_, bodies, err := conditionNode(g, h, driver.CU_GRAPH_COND_TYPE_WHILE, 1)
	require.NoError(t, err)
	one := uint32(1)
	require.NoError(t, driver.CuMemcpyHtoD(p, unsafe.Pointer(&one), 4))
	setter(t, bodies[0], choose, h, p)
	require.NoError(t, driver.CuGraphLaunch(instantiate(t, g), s))
	assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_NOT_READY)
	require.NoError(t, driver.CuMemsetD32Async(p, 0, 1, other))
	require.NoError(t, driver.CuStreamSynchronize(s))
}

func TestConditionsRefused(t *testing.T) {
	primary(t, 0)
	g, other, p := newGraph(t), newGraph(t), memory(t, 4)
	h, unused := condition(t, g, 0, 0), condition(t, other, 0, 0)
	const (
		ifs      = driver.CU_GRAPH_COND_TYPE_IF
		while    = driver.CU_GRAPH_COND_TYPE_WHILE
		switches = driver.CU_GRAPH_COND_TYPE_SWITCH
	)
	for _, test := range []struct {
		name string
		h    driver.CUgraphConditionalHandle
		kind driver.CUgraphConditionalNodeType
		size uint32
	}{
		{"of another graph", unused, ifs, 1}, {"no handle", 0, ifs, 1}, {"no body", h, switches, 0},
		{"three ways of if", h, ifs, 3}, {"two loops", h, while, 2}, {"another type", h, 3, 1},
	} {
		_, _, err := conditionNode(g, test.h, test.kind, test.size)
		assert.ErrorIs(t, err, invalid, test.name)
	}
	n, bodies, err := conditionNode(g, h, ifs, 1)
	require.NoError(t, err)
	_, _, err = conditionNode(g, h, ifs, 1)
	assert.ErrorIs(t, err, invalid, "a second node")
	var now driver.CUgraphNodeParams
	require.NoError(t, driver.CuGraphNodeGetParams(n, &now))
	assert.Equal(t, h, now.Conditional().Handle)
	assert.Equal(t, bodies, unsafe.Slice(now.Conditional().PhGraph_out, now.Conditional().Size))

	assert.ErrorIs(t, driver.CuGraphDestroy(bodies[0]), invalid)
	memset(t, bodies[0], p, 1)

	var clone driver.CUgraph
	var e driver.CUgraphExec
	assert.ErrorIs(t, driver.CuGraphClone(&clone, g), unsupported)
	var node driver.CUgraphNode
	assert.ErrorIs(t, driver.CuGraphAddChildGraphNode(&node, newGraph(t), nil, 0, g), unsupported)
	x := instantiate(t, g)
	assert.ErrorIs(t, driver.CuGraphInstantiate(&e, g, 0), unsupported, "twice")
	params := driver.CUgraphNodeParams{Type: driver.CU_GRAPH_NODE_TYPE_CONDITIONAL}
	*params.Conditional() = driver.CUDA_CONDITIONAL_NODE_PARAMS{Handle: h, Size: 1}
	assert.ErrorIs(t, driver.CuGraphNodeSetParams(n, &params), unsupported)
	assert.ErrorIs(t, driver.CuGraphExecNodeSetParams(x, n, &params), unsupported)

	result := driver.CUDA_GRAPH_INSTANTIATE_PARAMS{}
	require.ErrorIs(t, driver.CuGraphInstantiateWithParams(&e, other, &result), invalid)
	assert.Equal(t, driver.CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, result.Result_out)
	assert.ErrorIs(t, driver.CuGraphConditionalHandleCreate(&h, 0, 0, 0, 0), invalid)
	assert.ErrorIs(t, driver.CuGraphConditionalHandleCreate(&h, g, 0, 0, 2), invalid)
	violated(t, "")
}

// TestBodies: what may not be in the body of a condition is found when the graph
// is instantiated.
func TestBodies(t *testing.T) {
	primary(t, 0)
	c, recorded, calls := newCounter(t), event(t), newGraph(t)
	host(t, calls, c)
	for name, wrong := range map[string]func(body driver.CUgraph) (driver.CUgraphNode, error){
		"a host function": func(body driver.CUgraph) (driver.CUgraphNode, error) { return host(t, body, c), nil },
		"a record": func(body driver.CUgraph) (n driver.CUgraphNode, err error) {
			return n, driver.CuGraphAddEventRecordNode(&n, body, nil, 0, recorded)
		},
		"an allocation": func(body driver.CUgraph) (driver.CUgraphNode, error) {
			_, n := allocNode(t, body, 4)
			return n, nil
		},
		"a child with a host function": func(body driver.CUgraph) (n driver.CUgraphNode, err error) {
			return n, driver.CuGraphAddChildGraphNode(&n, body, nil, 0, calls)
		},
	} {
		t.Run(name, func(t *testing.T) {
			primary(t, 0)
			g := newGraph(t)
			h := condition(t, g, 0, 0)
			_, bodies, err := conditionNode(g, h, driver.CU_GRAPH_COND_TYPE_IF, 1)
			require.NoError(t, err)
			_, err = wrong(bodies[0])
			require.NoError(t, err)
			var e driver.CUgraphExec
			result := driver.CUDA_GRAPH_INSTANTIATE_PARAMS{}
			assert.ErrorIs(t, driver.CuGraphInstantiateWithParams(&e, g, &result), invalid)
			assert.Equal(t, driver.CUDA_GRAPH_INSTANTIATE_ERROR, result.Result_out)
			assert.NotZero(t, result.HErrNode_out)
		})
	}
}

// TestUpdateConditions: an executable takes the conditions of another graph, with
// the nodes in their bodies.
func TestUpdateConditions(t *testing.T) {
	primary(t, 0)
	p, s := memory(t, 4), stream(t)
	build := func(kind driver.CUgraphConditionalNodeType, value, holds uint32) (driver.CUgraph, driver.CUgraphNode) {
		g := newGraph(t)
		h := condition(t, g, holds, uint32(driver.CU_GRAPH_COND_ASSIGN_DEFAULT))
		_, bodies, err := conditionNode(g, h, kind, 1)
		require.NoError(t, err)
		return g, memset(t, bodies[0], p, value)
	}
	g, set := build(driver.CU_GRAPH_COND_TYPE_IF, 1, 1)
	e := instantiate(t, g)
	run := func() uint32 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
		require.NoError(t, driver.CuStreamSynchronize(s))
		return words(t, p, 1)[0]
	}
	assert.EqualValues(t, 1, run())
	var info driver.CUgraphExecUpdateResultInfo
	g, _ = build(driver.CU_GRAPH_COND_TYPE_IF, 2, 1)
	require.NoError(t, driver.CuGraphExecUpdate(e, g, &info))
	assert.EqualValues(t, 2, run())
	value := driver.CUDA_MEMSET_NODE_PARAMS{Dst: p, Value: 3, ElementSize: 4, Width: 1, Height: 1}
	require.NoError(t, driver.CuGraphExecMemsetNodeSetParams(e, set, &value, 0))
	assert.EqualValues(t, 3, run())
	g, _ = build(driver.CU_GRAPH_COND_TYPE_IF, 4, 0)
	require.NoError(t, driver.CuGraphExecUpdate(e, g, &info))
	assert.EqualValues(t, 3, run(), "it does not hold any more")
	g, _ = build(driver.CU_GRAPH_COND_TYPE_SWITCH, 4, 0)
	require.ErrorIs(t, driver.CuGraphExecUpdate(e, g, &info), driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
	assert.Equal(t, driver.CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, info.Result)
}

// TestCaptureIntoBody: what a stream captures can be a body.
func TestCaptureIntoBody(t *testing.T) {
	primary(t, 0)
	p, s, g := memory(t, 4), stream(t), newGraph(t)
	h := condition(t, g, 1, uint32(driver.CU_GRAPH_COND_ASSIGN_DEFAULT))
	_, bodies, err := conditionNode(g, h, driver.CU_GRAPH_COND_TYPE_IF, 1)
	require.NoError(t, err)
	capture := func() error {
		return driver.CuStreamBeginCaptureToGraph(s, bodies[0], nil, nil, 0, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
	}
	require.NoError(t, capture())
	require.NoError(t, driver.CuMemsetD32Async(p, 8, 1, s))
	var captured driver.CUgraph
	require.NoError(t, driver.CuStreamEndCapture(s, &captured))
	assert.Equal(t, bodies[0], captured)
	launched(t, g)
	assert.Equal(t, []uint32{8}, words(t, p, 1))

	require.NoError(t, capture())
	assert.ErrorIs(t, driver.CuGraphDestroy(g), driver.CUDA_ERROR_ILLEGAL_STATE)
	require.NoError(t, driver.CuStreamEndCapture(s, &captured))
}
