//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

// The samples run on a simulated driver, or with CUDABIND_REQUIRE_GPU=1 on the
// machine's own.
func TestMain(m *testing.M) {
	if os.Getenv(otherProcess) != "" {
		main()
		return
	}
	os.Exit(sim.Main(thorough{m}))
}

// thorough runs the tests, and then looks for what they left alive.
type thorough struct{ m *testing.M }

func (t thorough) Run() int {
	code := t.m.Run()
	if onGPU {
		return code
	}
	var control sim.Control
	for range 6000 {
		if control.Live("") == 0 {
			return code
		}
		time.Sleep(10 * time.Millisecond) // some things are destroyed by another goroutine
	}
	fmt.Fprintf(os.Stderr, "%d objects are alive:\n%s", control.Live(""), control.List())
	return 1
}

// said is what the samples say with two devices, but for how long things take.
const said = `asyncAPI: 1048576 values doubled, while the host worked
concurrentKernels: 8 kernels of 10ms on a stream each left a sum of 36
graphConditionalNodes: if makes [1 2] of [0 1]
graphConditionalNodes: if and else makes [0 2] of [0 1]
graphConditionalNodes: while makes [1 2 1024] of [0 1 10]
graphConditionalNodes: switch makes [10 20 30 1] of [0 1 2 3]
greenContexts: 20 short kernels beside a long one
jacobiCudaGraphs: 256 equations are solved by GraphExec.Update
jacobiCudaGraphs: 256 equations are solved by GraphExec.Set
simpleCallback: 8 items went through the device and a goroutine each, the last with a total of 160000
simpleCudaGraphs: 5 replays of a graph of 8 nodes are right
simpleIPC: other processes are not simulated
simpleMultiCopy: 32 items are right
simpleOccupancy: blocks of one warp are right
simpleOccupancy: blocks of the suggested size are right
simpleP2P: 20 copies between two devices
simpleP2P: kernels of two devices added 1048576 values that are the other's
simpleStreams: 4194304 values doubled, streams used: 1
simpleStreams: 4194304 values doubled, streams used: 2
simpleStreams: 4194304 values doubled, streams used: 4
streamOrderedAllocation: 10000 sums are right
streamOrderedAllocation: 100 buffers in the order of one stream
threadMigration: 500 goroutines used one kernel
vectorAddMMAP: 4194304 sums are right
`

var (
	times  = regexp.MustCompile(`, took .*`)
	ofTwo  = regexp.MustCompile(`(simpleP2P: .*\n)+`)
	noPeer = "simpleP2P: no other device here and this one can reach each other's memory\n"
)

// expected is what they say here.
func expected(t *testing.T) string {
	t.Helper()
	devices, err := safe.Devices()
	require.NoError(t, err)
	_, found, err := peerOf(devices[0])
	require.NoError(t, err)
	want := said
	if onGPU {
		want = strings.Replace(want, "other processes are not simulated", "another process added 1048576 values of this one", 1)
	}
	if !found {
		want = ofTwo.ReplaceAllString(want, noPeer)
	}
	return want
}

func TestSamples(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(&out, nil))
		t.Log("\n" + out.String())
		assert.Equal(t, expected(t), times.ReplaceAllString(out.String(), ""))
	})
	t.Run("some", func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(&out, []string{"simpleCudaGraphs"}))
		assert.Equal(t, "simpleCudaGraphs: 5 replays of a graph of 8 nodes are right\n", out.String())
	})
	t.Run("none", func(t *testing.T) {
		assert.ErrorContains(t, run(nil, []string{"asyncAPI", "simple"}), `no sample "simple"`)
	})
}
