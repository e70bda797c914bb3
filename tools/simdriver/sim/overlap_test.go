//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"os"
	"regexp"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A stage is what two threads play on: a captures, or captured, and b has joined
// it where the scene says so.
type stage struct {
	t                     *testing.T
	a, b, other, blocking driver.CUstream
	recorded, fresh       driver.CUevent
	graph                 driver.CUgraph
	node                  driver.CUgraphNode
	idle, spare, launched driver.CUgraphExec
	memory                driver.CUdeviceptr
	second, clone         driver.CUgraph
	pool                  driver.CUmemoryPool
}

type call struct {
	name  string // as the simulated driver knows it
	do    func(*stage) error
	quiet bool // it never matters what runs beside it
}

func onStream(name string, of func(*stage) driver.CUstream, do func(driver.CUstream, *stage) error) call {
	return call{name: name, do: func(s *stage) error { return do(of(s), s) }}
}

func (c call) relaxed() call {
	return call{name: c.name, do: func(s *stage) error {
		mode := driver.CU_STREAM_CAPTURE_MODE_RELAXED
		if err := driver.CuThreadExchangeStreamCaptureMode(&mode); err != nil {
			return err
		}
		return c.do(s)
	}}
}

var (
	onA      = func(s *stage) driver.CUstream { return s.a }
	onB      = func(s *stage) driver.CUstream { return s.b }
	onOther  = func(s *stage) driver.CUstream { return s.other }
	onBlock  = func(s *stage) driver.CUstream { return s.blocking }
	onLegacy = func(*stage) driver.CUstream { return 0 }
)

func query(of func(*stage) driver.CUstream) call {
	return onStream("cuStreamQuery", of, func(h driver.CUstream, _ *stage) error { return driver.CuStreamQuery(h) })
}

func synchronize(of func(*stage) driver.CUstream) call {
	return onStream("cuStreamSynchronize", of, func(h driver.CUstream, _ *stage) error { return driver.CuStreamSynchronize(h) })
}

func id(of func(*stage) driver.CUstream) call {
	return onStream("cuStreamGetId", of, func(h driver.CUstream, _ *stage) error { var n uint64; return driver.CuStreamGetId(h, &n) })
}

func isCapturing(of func(*stage) driver.CUstream) call {
	c := onStream("cuStreamIsCapturing", of, func(h driver.CUstream, _ *stage) error {
		var status driver.CUstreamCaptureStatus
		return driver.CuStreamIsCapturing(h, &status)
	})
	c.quiet = true
	return c
}

func captureInfo(of func(*stage) driver.CUstream) call {
	return onStream("cuStreamGetCaptureInfo_v3", of, func(h driver.CUstream, _ *stage) error {
		var status driver.CUstreamCaptureStatus
		return driver.CuStreamGetCaptureInfo(h, &status, nil, nil, nil, nil, nil)
	})
}

func set(of func(*stage) driver.CUstream) call {
	return onStream("cuMemsetD32Async", of, func(h driver.CUstream, s *stage) error { return driver.CuMemsetD32Async(s.memory, 0, 1, h) })
}

func allocateOn(of func(*stage) driver.CUstream) call {
	return onStream("cuMemAllocAsync", of, func(h driver.CUstream, s *stage) error {
		var p driver.CUdeviceptr
		return driver.CuMemAllocAsync(&p, 4, h)
	})
}

func beginOn(of func(*stage) driver.CUstream, mode driver.CUstreamCaptureMode) call {
	return onStream("cuStreamBeginCapture_v2", of, func(h driver.CUstream, _ *stage) error { return driver.CuStreamBeginCapture(h, mode) })
}

func endOn(of func(*stage) driver.CUstream) call {
	return onStream("cuStreamEndCapture", of, func(h driver.CUstream, _ *stage) error { var g driver.CUgraph; return driver.CuStreamEndCapture(h, &g) })
}

func recordOn(of func(*stage) driver.CUstream, e func(*stage) driver.CUevent) call {
	return onStream("cuEventRecord", of, func(h driver.CUstream, s *stage) error { return driver.CuEventRecord(e(s), h) })
}

func waitOn(of func(*stage) driver.CUstream, e func(*stage) driver.CUevent) call {
	return onStream("cuStreamWaitEvent", of, func(h driver.CUstream, s *stage) error { return driver.CuStreamWaitEvent(h, e(s), 0) })
}

func queryEvent(e func(*stage) driver.CUevent) call {
	return call{name: "cuEventQuery", do: func(s *stage) error { return driver.CuEventQuery(e(s)) }}
}

func instantiateIt(of func(*stage) driver.CUgraph) call {
	return call{name: "cuGraphInstantiateWithFlags", do: func(s *stage) error {
		var e driver.CUgraphExec
		return driver.CuGraphInstantiate(&e, of(s), 0)
	}}
}

func destroyGraph(of func(*stage) driver.CUgraph) call {
	return call{name: "cuGraphDestroy", do: func(s *stage) error { return driver.CuGraphDestroy(of(s)) }}
}

func launchIt(of func(*stage) driver.CUgraphExec) call {
	return call{name: "cuGraphLaunch", do: func(s *stage) error { return driver.CuGraphLaunch(of(s), s.other) }}
}

func destroyIt(of func(*stage) driver.CUgraphExec) call {
	return call{name: "cuGraphExecDestroy", do: func(s *stage) error { return driver.CuGraphExecDestroy(of(s)) }}
}

var (
	itsEvent     = func(s *stage) driver.CUevent { return s.recorded }
	anEvent      = func(s *stage) driver.CUevent { return s.fresh }
	itsGraph     = func(s *stage) driver.CUgraph { return s.graph }
	anotherGraph = func(s *stage) driver.CUgraph { return s.second }
	idleOne      = func(s *stage) driver.CUgraphExec { return s.idle }
	launchedOne  = func(s *stage) driver.CUgraphExec { return s.launched }
	spareOne     = func(s *stage) driver.CUgraphExec { return s.spare }

	contextSynchronize = call{name: "cuCtxSynchronize", do: func(*stage) error { return driver.CuCtxSynchronize() }}
	allocateMemory     = call{name: "cuMemAlloc_v2", do: func(*stage) error { var p driver.CUdeviceptr; return driver.CuMemAlloc(&p, 4) }}
	allocateHost       = call{name: "cuMemHostAlloc", do: func(*stage) error { var p unsafe.Pointer; return driver.CuMemHostAlloc(&p, 4, 0) }}
	reset              = call{name: "cuDevicePrimaryCtxReset_v2", do: func(*stage) error { return driver.CuDevicePrimaryCtxReset(0) }}
	release            = call{name: "cuDevicePrimaryCtxRelease_v2", do: func(*stage) error { return driver.CuDevicePrimaryCtxRelease(0) }}
	addNode            = call{name: "cuGraphAddEmptyNode", do: func(s *stage) error {
		var n driver.CUgraphNode
		return driver.CuGraphAddEmptyNode(&n, s.graph, nil, 0)
	}}
	cloneIt = call{name: "cuGraphClone", do: func(s *stage) error {
		var g driver.CUgraph
		return driver.CuGraphClone(&g, s.graph)
	}}
	nodeType = call{name: "cuGraphNodeGetType", do: func(s *stage) error {
		var kind driver.CUgraphNodeType
		return driver.CuGraphNodeGetType(s.node, &kind)
	}}
)

// usedPool makes a pool, whose memory s.a frees.
func (s *stage) usedPool() driver.CUmemoryPool {
	p := newPool(s.t, poolProps())
	var m driver.CUdeviceptr
	require.NoError(s.t, driver.CuMemAllocFromPoolAsync(&m, 4, p, s.a))
	require.NoError(s.t, driver.CuMemFreeAsync(m, s.a))
	return p
}

func doomedPool(s *stage) { require.NoError(s.t, driver.CuMemPoolDestroy(s.usedPool())) }

func drainedPool(s *stage) {
	p := s.usedPool()
	require.NoError(s.t, driver.CuStreamSynchronize(s.a))
	require.NoError(s.t, driver.CuMemPoolDestroy(p))
}

func peer(do func(other driver.CUcontext) error) func(*stage) error {
	return func(*stage) error {
		var other driver.CUcontext
		if err := driver.CuDevicePrimaryCtxRetain(&other, 1); err != nil {
			return err
		}
		return do(other)
	}
}

var (
	dropUsed    = call{name: "cuMemPoolDestroy", do: func(s *stage) error { return driver.CuMemPoolDestroy(s.pool) }}
	dropPool    = call{name: "cuMemPoolDestroy", do: func(s *stage) error { return driver.CuMemPoolDestroy(newPool(s.t, poolProps())) }}
	enablePeers = call{name: "cuCtxEnablePeerAccess", do: peer(func(other driver.CUcontext) error { return driver.CuCtxEnablePeerAccess(other, 0) })}
	accessPool  = call{name: "cuMemPoolSetAccess", do: func(s *stage) error {
		var p driver.CUmemoryPool
		if err := driver.CuDeviceGetDefaultMemPool(&p, 0); err != nil {
			return err
		}
		access := driver.CUmemAccessDesc{Location: driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE}, Flags: driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE}
		*access.Location.Id() = 1
		return driver.CuMemPoolSetAccess(p, &access, 1)
	}}
	resetOther = call{name: "cuDevicePrimaryCtxReset_v2", do: func(*stage) error { return driver.CuDevicePrimaryCtxReset(1) }}
	copyAcross = call{name: "cuMemcpyPeerAsync", do: func(s *stage) error {
		return peer(func(other driver.CUcontext) error {
			return driver.CuMemcpyPeerAsync(s.memory, other, s.memory, other, 4, s.a)
		})(s)
	}}
)

const (
	local  = driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
	loose  = driver.CU_STREAM_CAPTURE_MODE_RELAXED
	global = driver.CU_STREAM_CAPTURE_MODE_GLOBAL
)

// Scenes, in which the two calls are made.
func nothing(*stage) {}

func capturing(of func(*stage) driver.CUstream, mode driver.CUstreamCaptureMode) func(*stage) {
	return func(s *stage) {
		require.NoError(s.t, driver.CuStreamBeginCapture(of(s), mode))
		require.NoError(s.t, driver.CuEventRecord(s.recorded, of(s)))
	}
}

func intoGraph(s *stage) {
	require.NoError(s.t, driver.CuStreamBeginCaptureToGraph(s.a, s.graph, nil, nil, 0, loose))
}

func cloned(s *stage) { require.NoError(s.t, driver.CuGraphClone(&s.clone, s.graph)) }

func unrelated(s *stage) { require.NoError(s.t, driver.CuGraphCreate(&s.clone, 0)) }

func joined(s *stage) {
	capturing(onA, loose)(s)
	require.NoError(s.t, driver.CuStreamWaitEvent(s.b, s.recorded, 0))
}

func retained(s *stage) {
	var c driver.CUcontext
	require.NoError(s.t, driver.CuDevicePrimaryCtxRetain(&c, 0))
}

var overlaps = []struct {
	name       string
	scene      func(*stage)
	one, other call
	crashes    bool
}{
	{"query and begin", nothing, query(onA), beginOn(onA, local), true},
	{"query and begin of another stream", nothing, query(onOther), beginOn(onA, local), false},
	{"is capturing and begin", nothing, isCapturing(onA), beginOn(onA, local), false},
	{"work and begin", nothing, set(onA), beginOn(onA, local), true},
	{"two queries", nothing, query(onA), query(onA), false},
	{"query and work in a capture", capturing(onA, loose), query(onA), set(onA), true},
	{"id and end", capturing(onA, loose), id(onA), endOn(onA), true},
	{"info and work", capturing(onA, loose), captureInfo(onA), set(onA), true},
	{"two infos", capturing(onA, loose), captureInfo(onA), captureInfo(onA), false},
	{"work twice in a capture", capturing(onA, loose), set(onA), set(onA), true},
	{"work twice without", nothing, set(onA), set(onA), false},
	{"captures of two streams", capturing(onA, loose), set(onA), beginOn(onB, loose), false},
	{"joined, queried and work on the first", joined, query(onB), set(onA), true},
	{"joined, is capturing and work on the first", joined, isCapturing(onB), set(onA), false},
	{"joining and query", capturing(onA, loose), waitOn(onB, itsEvent), query(onB), true},
	{"joining and work on the first", capturing(onA, loose), waitOn(onB, itsEvent), set(onA), true},
	{"query of a recorded event and work", capturing(onA, loose), queryEvent(itsEvent), set(onA), true},
	{"query of another event and work", capturing(onA, loose), queryEvent(anEvent), set(onA), false},
	{"query of an event and its recording in a capture", capturing(onA, loose), queryEvent(anEvent), recordOn(onA, anEvent), true},
	{"record of a recorded event elsewhere and work", capturing(onA, loose), recordOn(onOther, itsEvent), set(onA), true},
	{"query and record outside of captures", nothing, queryEvent(anEvent), recordOn(onA, anEvent), false},
	{"two streams wait for an event", capturing(onA, loose), waitOn(onB, itsEvent), waitOn(onOther, itsEvent), true},
	{"legacy query and begin of a blocking stream", nothing, query(onLegacy), beginOn(onBlock, local), true},
	{"legacy query and begin of another", nothing, query(onLegacy), beginOn(onA, local), false},
	{"legacy work and work in a capture", capturing(onBlock, loose), set(onLegacy), set(onBlock), true},
	{"legacy info and work in a capture", capturing(onBlock, loose), captureInfo(onLegacy), set(onBlock), false},
	{"context and begin", nothing, contextSynchronize, beginOn(onA, local), true},
	{"context and work in a capture", capturing(onA, loose), contextSynchronize.relaxed(), set(onA), true},
	{"context and work", nothing, contextSynchronize, set(onA), false},
	{"global and query", capturing(onA, global), query(onOther), set(onA), true},
	{"global and relaxed query", capturing(onA, global), query(onOther).relaxed(), set(onA), false},
	{"global and synchronize", capturing(onA, global), synchronize(onOther), set(onA), true},
	{"global and query of an event", capturing(onA, global), queryEvent(anEvent), set(onA), true},
	{"global and memory", capturing(onA, global), allocateMemory, set(onA), true},
	{"global and memory of the host", capturing(onA, global), allocateHost, set(onA), true},
	{"global and memory of a stream", capturing(onA, global), allocateOn(onOther), set(onA), true},
	{"global and work elsewhere", capturing(onA, global), set(onOther), set(onA), false},
	{"local and memory", capturing(onA, local), allocateMemory, set(onA), false},
	{"begin in mode global and memory", nothing, allocateMemory, beginOn(onA, global), true},
	{"two instantiations of a graph", nothing, instantiateIt(itsGraph), instantiateIt(itsGraph), true},
	{"of two graphs", nothing, instantiateIt(itsGraph), instantiateIt(anotherGraph), false},
	{"instantiation and a change", nothing, instantiateIt(itsGraph), addNode, true},
	{"instantiation and destroying a clone", cloned, instantiateIt(itsGraph), destroyGraph(func(s *stage) driver.CUgraph { return s.clone }), true},
	{"instantiation and destroying another graph", unrelated, instantiateIt(itsGraph), destroyGraph(func(s *stage) driver.CUgraph { return s.clone }), false},
	{"cloning and destroying an executable", nothing, cloneIt, destroyIt(spareOne), true},
	{"cloning and destroying another clone", cloned, cloneIt, destroyGraph(func(s *stage) driver.CUgraph { return s.clone }), true},
	{"cloning and destroying another graph", unrelated, cloneIt, destroyGraph(func(s *stage) driver.CUgraph { return s.clone }), false},
	{"two clones", nothing, cloneIt, cloneIt, false},
	{"instantiation and destroying an executable", nothing, instantiateIt(itsGraph), destroyIt(spareOne), true},
	{"a change and destroying an executable", nothing, addNode, destroyIt(spareOne), true},
	{"a change and destroying another's executable", nothing, instantiateIt(anotherGraph), destroyIt(spareOne), false},
	{"two changes", nothing, addNode, addNode, true},
	{"a change and a question", nothing, addNode, nodeType, true},
	{"two questions", nothing, nodeType, nodeType, false},
	{"destroying what was launched and a launch", nothing, destroyIt(launchedOne), launchIt(idleOne), true},
	{"destroying what was not and a launch", nothing, destroyIt(spareOne), launchIt(idleOne), false},
	{"destroying an executable and its launch", nothing, destroyIt(idleOne), launchIt(idleOne), true},
	{"two launches", nothing, launchIt(idleOne), launchIt(idleOne), false},
	{"instantiation and a launch", nothing, instantiateIt(itsGraph), launchIt(idleOne), false},
	{"destroying an event and its query", nothing, call{name: "cuEventDestroy_v2", do: func(s *stage) error { return driver.CuEventDestroy(s.fresh) }}, queryEvent(anEvent), true},
	{"destroying another event", nothing, call{name: "cuEventDestroy_v2", do: func(s *stage) error { return driver.CuEventDestroy(s.recorded) }}, queryEvent(anEvent), false},
	{"destroying a stream and its query", nothing, call{name: "cuStreamDestroy_v2", do: func(s *stage) error { return driver.CuStreamDestroy(s.a) }}, query(onA), true},
	{"external record in a capture and query of the event", capturing(onA, loose), call{name: "cuEventRecordWithFlags", do: func(s *stage) error {
		return driver.CuEventRecordWithFlags(s.fresh, s.a, driver.CU_EVENT_RECORD_EXTERNAL)
	}}, queryEvent(anEvent), false},
	{"capture into a graph and a change of it", intoGraph, set(onA), addNode, true},
	{"reset and query", nothing, reset, query(onA), true},
	{"reset and launch", nothing, reset, launchIt(idleOne), true},
	{"reset and record", nothing, reset, recordOn(onA, anEvent), true},
	{"reset and query of an event", nothing, reset, queryEvent(anEvent), false},
	{"waits for two streams, beside a pool destroyed with a release that was not waited for", doomedPool, synchronize(onA), synchronize(onB), true},
	{"context and an allocation, beside such a pool", doomedPool, contextSynchronize, allocateOn(onA), true},
	{"context and destroying a pool, beside such a pool", doomedPool, contextSynchronize, dropPool, true},
	{"context and destroying a pool that had memory", nothing, contextSynchronize, dropUsed, true},
	{"context and destroying an empty pool", nothing, contextSynchronize, dropPool, false},
	{"query and an allocation, beside such a pool", doomedPool, query(onA), allocateOn(onB), false},
	{"waits for two streams, beside a pool destroyed after its release", drainedPool, synchronize(onA), synchronize(onB), false},
	{"peer access and a copy between devices", nothing, enablePeers, copyAcross, true},
	{"access to a pool and a copy between devices", nothing, accessPool, copyAcross, true},
	{"peer access and a copy on a device", nothing, enablePeers, set(onA), false},
	{"two copies between devices", nothing, copyAcross, copyAcross, false},
	{"reset of a device and a copy to it by a stream of another", nothing, resetOther, copyAcross, true},
	{"reset of a device and work of another", nothing, resetOther, set(onA), false},
	{"last release and query", nothing, release, query(onA), true},
	{"another release and query", retained, release, query(onA), false},
}

const played = "SIMDRIVER_TEST_OVERLAP"

// TestOverlap plays each pair of calls in both orders, each in a process of its own.
func TestOverlap(t *testing.T) {
	if os.Getenv(played) != "" {
		t.Skip("is one of those processes")
	}
	for _, c := range overlaps {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, order := range []string{"first", "second"} {
				child := command.Built(os.Args[0], "-test.run=^TestPlayOverlap$")
				child.Env = append(os.Environ(), parents+"="+library, played+"="+order+" "+c.name)
				out, err := child.CombinedOutput()
				if !c.crashes {
					assert.NoError(t, err, "%s: %s", order, out)
					continue
				}
				assert.Error(t, err, order)
				says := `simulated driver: (` + c.one.name + ` \(thread \d+\) and ` + c.other.name + `|` + c.other.name + ` \(thread \d+\) and ` + c.one.name +
					`) \(thread \d+\) ran at once: CUDA crashes here`
				assert.Regexp(t, regexp.MustCompile(says), string(out), order)
			}
		})
	}
}

// TestPlayOverlap is the other process.
func TestPlayOverlap(t *testing.T) {
	what := os.Getenv(played)
	if what == "" {
		t.Skip("is for another test")
	}
	for _, c := range overlaps {
		switch what {
		case "first " + c.name:
			play(t, c.scene, c.one, c.other)
		case "second " + c.name:
			play(t, c.scene, c.other, c.one)
		}
	}
}

// play makes the first call on a thread of its own, and the second while that is slow.
func play(t *testing.T, scene func(*stage), first, second call) {
	runtime.LockOSThread()
	var c driver.CUcontext
	require.NoError(t, driver.CuDevicePrimaryCtxRetain(&c, 0))
	require.NoError(t, driver.CuCtxPushCurrent(c))
	s := newStage(t)
	scene(s)
	control.Delay(first.name, time.Minute) // longer than this process lives
	go func() {
		runtime.LockOSThread()
		if err := driver.CuCtxPushCurrent(c); err == nil {
			_ = first.do(s)
		}
	}()
	require.Eventually(t, func() bool { return control.Flying() == 1 || first.quiet }, time.Minute, time.Millisecond)
	control.Delay(first.name, 0) // for the second
	_ = second.do(s)             // what it returns is for other tests
}

// newStage makes what a scene needs.
func newStage(t *testing.T) *stage {
	s := &stage{t: t}
	for _, at := range []*driver.CUstream{&s.a, &s.b, &s.other} {
		require.NoError(t, driver.CuStreamCreate(at, driver.CU_STREAM_NON_BLOCKING))
	}
	require.NoError(t, driver.CuStreamCreate(&s.blocking, 0))
	for _, at := range []*driver.CUevent{&s.recorded, &s.fresh} {
		require.NoError(t, driver.CuEventCreate(at, 0))
	}
	require.NoError(t, driver.CuMemAlloc(&s.memory, 4))
	s.pool = s.usedPool()
	require.NoError(t, driver.CuStreamSynchronize(s.a))
	require.NoError(t, driver.CuGraphCreate(&s.graph, 0))
	require.NoError(t, driver.CuGraphCreate(&s.second, 0))
	require.NoError(t, driver.CuGraphAddEmptyNode(&s.node, s.graph, nil, 0))
	for _, at := range []*driver.CUgraphExec{&s.idle, &s.launched, &s.spare} {
		require.NoError(t, driver.CuGraphInstantiate(at, s.graph, 0))
	}
	require.NoError(t, driver.CuGraphLaunch(s.launched, s.other))
	require.NoError(t, driver.CuStreamSynchronize(s.other))
	return s
}

// end gives all of it back.
func (s *stage) end() {
	require.NoError(s.t, driver.CuCtxSynchronize())
	for _, e := range []driver.CUgraphExec{s.idle, s.launched, s.spare} {
		assert.NoError(s.t, driver.CuGraphExecDestroy(e))
	}
	assert.NoError(s.t, driver.CuGraphDestroy(s.graph))
	assert.NoError(s.t, driver.CuGraphDestroy(s.second))
	assert.NoError(s.t, driver.CuMemFree(s.memory))
	assert.NoError(s.t, driver.CuMemPoolDestroy(s.pool))
	for _, e := range []driver.CUevent{s.recorded, s.fresh} {
		assert.NoError(s.t, driver.CuEventDestroy(e))
	}
	for _, h := range []driver.CUstream{s.a, s.b, s.other, s.blocking} {
		assert.NoError(s.t, driver.CuStreamDestroy(h))
	}
}
