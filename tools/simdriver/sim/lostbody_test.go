//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lostBodies are steps with captures within captures, and the two calls with which CUDA crashes, if it does: as
// measured on an H100 with driver 580.159. p is a capture, b one into a body in it, c one into a body in that.
var lostBodies = []struct{ steps, one, other string }{
	{"lose b, end b, end p", "", ""},
	{"lose b, end p, end b", "", ""},
	{"end p, end b, free", "", ""},
	{"lose p, end b, end p", "", ""},
	{"end b, lose p, destroy p", "", ""},
	{"lose c, end c, end b, end p", "", ""},
	{"lose b, end c, end b, end p", "", ""},
	{"lose b, end b, end p, free", "cuStreamEndCapture", "cuGraphDestroy"},
	{"lose b, end b, end p, instantiate", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"},
	{"end p, instantiate, end b, free", "cuStreamEndCapture", "cuGraphDestroy"},
	{"lose b, lose p, end b, end p", "cuStreamEndCapture", "cuStreamEndCapture"},
	{"lose b, end b, destroy p", "cuStreamEndCapture", "cuStreamDestroy_v2"},
	{"destroy b, lose p, end p", "cuStreamDestroy_v2", "cuStreamEndCapture"},
	{"lose p, end p, end b", "cuStreamEndCapture", "cuStreamEndCapture"},
	{"lose p, end p, destroy b", "cuStreamEndCapture", "cuStreamDestroy_v2"},
	{"lose c, lose b, end c, end b", "cuStreamEndCapture", "cuStreamEndCapture"},
	{"lose b, end b, reset", "cuStreamEndCapture", "cuDevicePrimaryCtxReset_v2"},
	{"reset", "", "cuDevicePrimaryCtxReset_v2"},
}

const lostBody = "SIMDRIVER_TEST_LOST_BODY"

// TestLostBodies takes each of these steps, in processes of their own.
func TestLostBodies(t *testing.T) {
	if os.Getenv(lostBody) != "" {
		t.Skip("is one of those processes")
	}
	for _, c := range lostBodies {
		t.Run(c.steps, func(t *testing.T) {
			child := command.Built(os.Args[0], "-test.run=^TestPlayLostBody$")
			child.Env = append(os.Environ(), parents+"="+library, lostBody+"="+c.steps)
			out, err := child.CombinedOutput()
			if c.other == "" {
				assert.NoError(t, err, "%s", out)
				return
			}
			assert.Error(t, err)
			assert.Regexp(t, "simulated driver: "+c.one+".*"+c.other+".*: CUDA crashes here", string(out))
		})
	}
}

// TestPlayLostBody is such a process.
func TestPlayLostBody(t *testing.T) {
	steps := os.Getenv(lostBody)
	if steps == "" {
		t.Skip("is for another test")
	}
	runtime.LockOSThread()
	var x driver.CUcontext
	require.NoError(t, driver.CuDevicePrimaryCtxRetain(&x, 0))
	require.NoError(t, driver.CuCtxPushCurrent(x))
	streams := map[string]driver.CUstream{}
	made := func(name string) driver.CUstream {
		var s driver.CUstream
		require.NoError(t, driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING))
		streams[name] = s
		return s
	}
	begin(t, made("p"))
	inside := func(outer, name string) {
		g, nodes, _ := info(t, streams[outer])
		n, bodies, err := conditionNode(g, condition(t, g, 1, 1), driver.CU_GRAPH_COND_TYPE_IF, 1, nodes...)
		require.NoError(t, err)
		require.NoError(t, driver.CuStreamUpdateCaptureDependencies(streams[outer], &n, nil, 1, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
		require.NoError(t, driver.CuStreamBeginCaptureToGraph(made(name), bodies[0], nil, nil, 0, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
	}
	inside("p", "b")
	if strings.Contains(steps, " c") {
		inside("b", "c")
	}
	var ended driver.CUgraph
	for step := range strings.SplitSeq(steps, ", ") {
		what, name, _ := strings.Cut(step, " ")
		switch s := streams[name]; what {
		case "lose":
			assert.ErrorIs(t, driver.CuStreamSynchronize(s), driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		case "end":
			var g driver.CUgraph
			if driver.CuStreamEndCapture(s, &g) == nil && name == "p" {
				ended = g
			}
		case "destroy":
			assert.NoError(t, driver.CuStreamDestroy(s))
		case "free":
			assert.NoError(t, driver.CuGraphDestroy(ended))
		case "instantiate":
			var e driver.CUgraphExec
			assert.Error(t, driver.CuGraphInstantiate(&e, ended, 0))
		case "reset":
			assert.NoError(t, driver.CuDevicePrimaryCtxReset(0))
		}
	}
}
