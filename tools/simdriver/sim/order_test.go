//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWaitIsForTheLastRecord: later records do not matter.
func TestWaitIsForTheLastRecord(t *testing.T) {
	primary(t, 0)
	a, b, e, p := stream(t), stream(t), event(t), memory(t, 4)
	open := gate(t, a)
	require.NoError(t, driver.CuMemsetD32Async(p, 1, 1, a))
	require.NoError(t, driver.CuEventRecord(e, a))
	require.NoError(t, driver.CuStreamWaitEvent(b, e, 0))
	require.NoError(t, driver.CuMemsetD32Async(p, 2, 1, b))
	require.NoError(t, driver.CuEventRecord(e, b))
	assert.ErrorIs(t, driver.CuStreamQuery(b), driver.CUDA_ERROR_NOT_READY)
	assert.ErrorIs(t, driver.CuEventQuery(e), driver.CUDA_ERROR_NOT_READY)
	open()
	require.NoError(t, driver.CuEventSynchronize(e))
	require.NoError(t, driver.CuStreamSynchronize(b))
	assert.Equal(t, []uint32{2}, words(t, p, 1))
}

// TestLegacyStream: it waits for the blocking streams, and they for it.
func TestLegacyStream(t *testing.T) {
	const legacy, blocking, other = "legacy", "blocking", "non-blocking"
	for _, c := range []struct {
		name        string
		front, back string
		waits       bool
	}{
		{"after a blocking stream", blocking, legacy, true},
		{"before a blocking stream", legacy, blocking, true},
		{"after a non-blocking stream", other, legacy, false},
		{"before a non-blocking stream", legacy, other, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			var made driver.CUstream
			require.NoError(t, driver.CuStreamCreate(&made, 0))
			t.Cleanup(func() { assert.NoError(t, driver.CuStreamDestroy(made)) })
			of := map[string]driver.CUstream{legacy: driver.CU_STREAM_LEGACY, blocking: made, other: stream(t)}
			front, back, third, p := of[c.front], of[c.back], stream(t), memory(t, 8)
			require.NoError(t, driver.CuMemsetD32Async(p, 0, 2, third))
			require.NoError(t, driver.CuStreamSynchronize(third))
			open := gate(t, front)
			require.NoError(t, driver.CuMemsetD32Async(p, 1, 1, front))
			require.NoError(t, driver.CuMemcpyDtoDAsync(p+4, p, 4, back))
			require.NoError(t, driver.CuMemsetD32Async(p, 0, 1, third))
			require.NoError(t, driver.CuStreamSynchronize(third), "in any case")
			want := []uint32{1, 1}
			if c.waits {
				assert.ErrorIs(t, driver.CuStreamQuery(back), driver.CUDA_ERROR_NOT_READY)
			} else {
				require.NoError(t, driver.CuStreamSynchronize(back))
				want[1] = 0
			}
			open()
			require.NoError(t, driver.CuCtxSynchronize())
			assert.Equal(t, want, words(t, p, 2))
		})
	}
}

// A program is random work of some streams of two devices, with just as many
// records and waits as give it one result, whatever runs first.
type program struct {
	t        *testing.T
	r        *rand.Rand
	contexts []driver.CUcontext
	spin     []driver.CUfunction
	streams  []lane
	events   []recorded
	cells    []cell
}

// after tells how much of each stream's work something is ordered after.
type after []int

func (a after) join(b after) {
	for i := range a {
		a[i] = max(a[i], b[i])
	}
}

type lane struct {
	handle driver.CUstream
	device int
	after  after // and its own entry is how much work it got
}

type recorded struct {
	handle driver.CUevent
	device int
	after  after // nil: not yet
}

// A cell is one word of memory, and what the work so far leaves in it.
type cell struct {
	p      driver.CUdeviceptr
	device int
	want   uint32
	uses   []use
}

type use struct {
	stream, number int
	writes         bool
}

func TestRandomPrograms(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newProgram(t, seed)
			for range 400 {
				p.step()
			}
			for d, c := range p.contexts {
				require.NoError(t, driver.CuCtxSetCurrent(c), d)
				require.NoError(t, driver.CuCtxSynchronize())
			}
			for i, c := range p.cells {
				assert.Equal(t, []uint32{c.want}, words(t, c.p, 1), "cell %d", i)
			}
		})
	}
}

func newProgram(t *testing.T, seed uint64) *program {
	t.Helper()
	const streams, events, cells = 5, 4, 12
	p := &program{t: t, r: rand.New(rand.NewPCG(seed, 0))}
	for d := range driver.CUdevice(2) {
		p.contexts = append(p.contexts, primary(t, d))
		p.spin = append(p.spin, kernel(t, "spin"))
		for i := range streams {
			if i%2 == int(d) {
				p.streams = append(p.streams, lane{stream(t), int(d), make(after, streams)})
			}
		}
		for i := range events {
			if i%2 == int(d) {
				p.events = append(p.events, recorded{event(t), int(d), nil})
			}
		}
		for i := range cells {
			if i%2 == int(d) {
				c := cell{p: memory(t, 4), device: int(d)}
				require.NoError(t, driver.CuMemsetD32(c.p, 0, 1))
				p.cells = append(p.cells, c)
			}
		}
		require.NoError(t, driver.CuCtxSynchronize())
	}
	return p
}

// step enqueues one thing.
func (p *program) step() {
	s, c := p.r.IntN(len(p.streams)), p.r.IntN(len(p.cells))
	switch p.r.IntN(6) {
	case 0:
		p.record(p.r.IntN(len(p.events)), s)
	case 1:
		p.wait(s, p.r.IntN(len(p.events)))
	case 2:
		p.work(s)
		p.ok(launch(p.spin[p.streams[s].device], p.streams[s].handle, uint64(p.r.IntN(100_000))))
	case 3:
		from := p.r.IntN(len(p.cells))
		if from != c {
			p.copy(s, c, from)
		}
	default:
		v := p.r.Uint32()
		p.use(s, c, true)
		p.ok(driver.CuMemsetD32Async(p.cells[c].p, v, 1, p.streams[s].handle))
		p.cells[c].want = v
	}
}

func (p *program) copy(s, to, from int) {
	p.use(s, from, false)
	p.use(s, to, true)
	a, b := &p.cells[to], &p.cells[from]
	p.ok(driver.CuMemcpyPeerAsync(a.p, p.contexts[a.device], b.p, p.contexts[b.device], 4, p.streams[s].handle))
	a.want = b.want
}

// work counts what a stream gets.
func (p *program) work(s int) int {
	l := &p.streams[s]
	l.after[s]++
	return l.after[s]
}

// use has a stream wait for those uses of a cell that its own must follow.
func (p *program) use(s, c int, writes bool) {
	for _, u := range p.cells[c].uses {
		if (writes || u.writes) && p.streams[s].after[u.stream] < u.number {
			e := p.eventOf(p.streams[u.stream].device)
			p.record(e, u.stream)
			p.wait(s, e)
		}
	}
	if writes {
		p.cells[c].uses = nil
	}
	p.cells[c].uses = append(p.cells[c].uses, use{s, p.work(s), writes})
}

func (p *program) eventOf(device int) int {
	return slices.IndexFunc(p.events, func(e recorded) bool { return e.device == device })
}

func (p *program) record(e, s int) {
	if p.events[e].device != p.streams[s].device {
		return
	}
	p.work(s)
	p.ok(driver.CuEventRecord(p.events[e].handle, p.streams[s].handle))
	p.events[e].after = slices.Clone(p.streams[s].after)
}

func (p *program) wait(s, e int) {
	p.ok(driver.CuStreamWaitEvent(p.streams[s].handle, p.events[e].handle, 0))
	if p.events[e].after != nil {
		p.streams[s].after.join(p.events[e].after)
	}
}

func (p *program) ok(err error) {
	p.t.Helper()
	require.NoError(p.t, err)
}

// TestGraph captures work of two streams, and replays it with other data.
func TestGraph(t *testing.T) {
	primary(t, 0)
	a, b, fork, join := stream(t), stream(t), event(t), event(t)
	in, mid, out := memory(t, 8), memory(t, 8), memory(t, 8)
	var graph driver.CUgraph
	for _, err := range []error{
		driver.CuStreamBeginCapture(a, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
		driver.CuMemcpyDtoDAsync(mid, in, 8, a),
		driver.CuEventRecord(fork, a),
		driver.CuStreamWaitEvent(b, fork, 0),
		driver.CuMemcpyDtoDAsync(out, mid, 4, b),
		driver.CuMemsetD32Async(out+4, 9, 1, a),
		driver.CuEventRecord(join, b),
		driver.CuStreamWaitEvent(a, join, 0),
		driver.CuStreamEndCapture(a, &graph),
	} {
		require.NoError(t, err)
	}
	var n uint64
	require.NoError(t, driver.CuGraphGetNodes(graph, nil, &n))
	assert.EqualValues(t, 3, n)
	var exec driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiateWithFlags(&exec, graph, 0))
	require.NoError(t, driver.CuGraphDestroy(graph), "the executable goes on")
	for v := range uint32(3) {
		values := []uint32{v, v}
		require.NoError(t, driver.CuMemcpyHtoD(in, unsafe.Pointer(&values[0]), 8))
		require.NoError(t, driver.CuMemsetD32(out, 0, 2))
		require.NoError(t, driver.CuStreamSynchronize(0))
		require.NoError(t, driver.CuGraphLaunch(exec, b), "in any stream")
		require.NoError(t, driver.CuStreamSynchronize(b))
		assert.Equal(t, []uint32{v, 9}, words(t, out, 2))
	}
	require.NoError(t, driver.CuGraphExecDestroy(exec))
}

// TestCaptureIsNotDone: captured work does not run, and a capture that is not
// joined is lost.
func TestCaptureIsNotDone(t *testing.T) {
	primary(t, 0)
	a, b, fork, p := stream(t), stream(t), event(t), memory(t, 4)
	require.NoError(t, driver.CuMemsetD32(p, 5, 1))
	for _, joined := range []bool{true, false} {
		require.NoError(t, driver.CuStreamBeginCapture(a, driver.CU_STREAM_CAPTURE_MODE_RELAXED))
		require.NoError(t, driver.CuMemsetD32Async(p, 6, 1, a))
		if !joined {
			require.NoError(t, driver.CuEventRecord(fork, a))
			require.NoError(t, driver.CuStreamWaitEvent(b, fork, 0))
			require.NoError(t, driver.CuMemsetD32Async(p, 7, 1, b))
		}
		var graph driver.CUgraph
		err := driver.CuStreamEndCapture(a, &graph)
		if joined {
			require.NoError(t, err)
			require.NoError(t, driver.CuGraphDestroy(graph))
		} else {
			assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
			assert.Zero(t, graph)
		}
		require.NoError(t, driver.CuCtxSynchronize())
		assert.Equal(t, []uint32{5}, words(t, p, 1))
	}
}
