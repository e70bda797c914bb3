//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// userObject is one whose destructor counts, with one reference of the test's.
func userObject(t *testing.T) (driver.CUuserObject, counter) {
	t.Helper()
	c := newCounter(t)
	var u driver.CUuserObject
	require.NoError(t, driver.CuUserObjectCreate(&u, c.data(), c.fn, 1, driver.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC))
	return u, c
}

func graphWith(t *testing.T, u driver.CUuserObject) driver.CUgraph {
	t.Helper()
	var g driver.CUgraph
	require.NoError(t, driver.CuGraphCreate(&g, 0))
	require.NoError(t, driver.CuGraphRetainUserObject(g, u, 1, driver.CU_GRAPH_USER_OBJECT_MOVE))
	return g
}

func TestUserObject(t *testing.T) {
	primary(t, 0)
	u, c := userObject(t)
	require.NoError(t, driver.CuUserObjectRetain(u, 2))
	require.NoError(t, driver.CuUserObjectRelease(u, 2))
	assert.Zero(t, c.calls())
	assert.Equal(t, 1, control.Live("userobject"))
	require.NoError(t, driver.CuUserObjectRelease(u, 1))
	assert.Equal(t, 1, c.calls(), "within the call")

	u, c = userObject(t)
	g := graphWith(t, u)
	assert.ErrorIs(t, driver.CuUserObjectRelease(u, 1), driver.CUDA_ERROR_INVALID_VALUE)
	violated(t, "references of a user object are given away")
	require.NoError(t, driver.CuGraphRetainUserObject(g, u, 1, 0))
	require.NoError(t, driver.CuGraphReleaseUserObject(g, u, 2))
	assert.Equal(t, 1, c.calls())
	require.NoError(t, driver.CuGraphDestroy(g))
}

// TestUserObjectsOfGraphs: graphs, clones and executables hold references, and
// the last that goes has the destructor run.
func TestUserObjectsOfGraphs(t *testing.T) {
	primary(t, 0)
	u, c := userObject(t)
	g := graphWith(t, u)
	var clone driver.CUgraph
	require.NoError(t, driver.CuGraphClone(&clone, g))
	var e driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	require.NoError(t, driver.CuGraphDestroy(g))
	require.NoError(t, driver.CuGraphExecDestroy(e))
	assert.Zero(t, c.calls())
	require.NoError(t, driver.CuGraphDestroy(clone))
	assert.Equal(t, 1, c.calls())

	u, c = userObject(t)
	g = graphWith(t, u)
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	require.NoError(t, driver.CuGraphDestroy(g))
	require.NoError(t, driver.CuGraphExecDestroy(e))
	assert.Equal(t, 1, c.calls(), "it was never launched")
}

// TestUserObjectsOfLaunches: an executable that is destroyed or updated while it
// runs keeps what the launch needs.
func TestUserObjectsOfLaunches(t *testing.T) {
	primary(t, 0)
	for _, updated := range []bool{false, true} {
		s := stream(t)
		u, c := userObject(t)
		g := graphWith(t, u)
		var e driver.CUgraphExec
		require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
		require.NoError(t, driver.CuGraphDestroy(g))
		open := gate(t, s)
		require.NoError(t, driver.CuGraphLaunch(e, s))
		if updated {
			var info driver.CUgraphExecUpdateResultInfo
			require.NoError(t, driver.CuGraphExecUpdate(e, newGraph(t), &info))
		} else {
			require.NoError(t, driver.CuGraphExecDestroy(e))
		}
		assert.Zero(t, c.calls())
		open()
		require.NoError(t, driver.CuStreamSynchronize(s))
		c.becomes(t, 1)
		if updated {
			require.NoError(t, driver.CuGraphExecDestroy(e))
		}
	}
}

// TestUserObjectsOfTheDead: graphs can be destroyed after a fault.
func TestUserObjectsOfTheDead(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	u, c := userObject(t)
	g := graphWith(t, u)
	memset(t, g, memory(t, 4), 1)
	var e driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	gate(t, s)
	require.NoError(t, driver.CuGraphLaunch(e, s))
	control.FaultDelay(0)
	control.Fault(uint32(driver.CUDA_ERROR_LAUNCH_FAILED))
	assert.ErrorIs(t, driver.CuGraphLaunch(e, s), driver.CUDA_ERROR_LAUNCH_FAILED)
	assert.NoError(t, driver.CuGraphDestroy(g))
	assert.NoError(t, driver.CuGraphExecDestroy(e))
	c.becomes(t, 1)
	control.Reset()
}
