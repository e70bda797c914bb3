//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/safe"
)

// TestGPUCost: what a launch costs while something is recorded, and that it costs nothing more afterwards.
func TestGPUCost(t *testing.T) {
	g := onTheGPU(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	launches := func() time.Duration {
		best := time.Hour
		for range 30 {
			g.wait(g.s)
			begin := time.Now()
			for range 400 {
				_ = g.nothing.Launch(g.s, safe.Threads(1))
			}
			best = min(best, time.Since(begin)/400)
		}
		g.wait(g.s)
		return best
	}
	launches()
	before := launches()
	begin := time.Now()
	r := start(t, Options{})
	first := time.Since(begin)
	during := launches()
	stop(t, r)
	after := launches()
	require.NoError(t, Detach())
	detached := launches()
	begin = time.Now()
	r = start(t, Options{AllCalls: true})
	second := time.Since(begin)
	all := launches()
	begin = time.Now()
	stop(t, r)
	ending := time.Since(begin)
	t.Logf("a launch takes %v before, %v while recording, %v after Stop, %v after Detach; %v while all calls are recorded", before, during, after, detached, all)
	t.Logf("the first Start took %v, the second %v, Stop of %d launches %v", first, second, 30*400, ending)
}

// TestGPUGraphCost tells what launches of a graph of 100 nodes cost: without a recording, with one of the nodes, and with one
// of the launches as a whole, which the package does not use.
func TestGPUGraphCost(t *testing.T) {
	g := onTheGPU(t)
	const nodes, launches = 100, 2000
	graph := func() *safe.GraphExec {
		e, err := g.s.CaptureExecutable(func() error {
			for range nodes {
				g.launch(g.s)
			}
			return nil
		})
		require.NoError(t, err)
		return e
	}
	measure := func(what string, e *safe.GraphExec) {
		g.launchGraph(e, 10)
		call, whole := time.Hour, time.Hour
		for range 3 {
			begin := time.Now()
			for range launches {
				require.NoError(t, e.Launch(g.s))
			}
			call = min(call, time.Since(begin)/launches)
			g.wait(g.s)
			whole = min(whole, time.Since(begin)/launches)
		}
		t.Logf("%s: Launch takes %v, a launch until its end %v", what, call, whole)
	}
	e := graph()
	measure("without a recording", e)
	r := start(t, Options{})
	measure("recording nodes", e)
	tl := stop(t, r)
	assert.Zero(t, tl.Lost)
	assert.Len(t, tl.Work, nodes*(10+3*launches))
	measure("after it", e)
	require.NoError(t, e.Close())
	r = start(t, Options{})
	require.NoError(t, r.session.enable(cupti.CUPTI_ACTIVITY_KIND_GRAPH_TRACE))
	e = graph()
	measure("recording whole launches", e)
	stop(t, r)
	require.NoError(t, e.Close())
}
