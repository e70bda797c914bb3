//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/internal/activity"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
)

const kernels = `.version 7.0
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry spin(.param .u64 ns) {
	.reg .pred q; .reg .b64 d<4>;
	ld.param.u64 d0, [ns];
	mov.u64 d1, %globaltimer;
loop: mov.u64 d2, %globaltimer; sub.u64 d3, d2, d1; setp.lt.u64 q, d3, d0; @q bra loop;
	ret;
}
`

// gpu has what the tests on a GPU need.
type gpu struct {
	*testing.T
	x             *safe.Context
	s             *safe.Stream
	nothing, spin *safe.Kernel
}

func onTheGPU(t *testing.T) *gpu {
	t.Helper()
	needsGPU(t)
	x, s := open(t)
	g := &gpu{T: t, x: x, s: s}
	g.nothing, g.spin = g.kernels(x)
	return g
}

func (g *gpu) kernels(x *safe.Context) (nothing, spin *safe.Kernel) {
	m, err := safe.Load(x, []byte(kernels))
	require.NoError(g, err)
	g.Cleanup(func() { require.NoError(g, m.Close()) })
	nothing, err = m.Kernel("nothing")
	require.NoError(g, err)
	spin, err = m.Kernel("spin")
	require.NoError(g, err)
	return nothing, spin
}

func (g *gpu) launch(s *safe.Stream) { require.NoError(g, g.nothing.Launch(s, safe.Threads(1))) }

func (g *gpu) spinFor(s *safe.Stream, d time.Duration) {
	require.NoError(g, g.spin.Launch(s, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}, safe.Val(uint64(d))))
}

func (g *gpu) wait(s *safe.Stream) { require.NoError(g, s.Wait(context.Background())) }

func (g *gpu) stream() *safe.Stream {
	s, err := safe.NewStreamWith(g.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(g, err)
	g.Cleanup(func() { require.NoError(g, s.Close()) })
	return s
}

// TestGPURecording: work on three streams is recorded once each, lasts what it lasts, lies in its range and behind its call.
func TestGPURecording(t *testing.T) {
	g := onTheGPU(t)
	const n, rounds = 4 << 20, 20
	streams := []*safe.Stream{g.s, g.stream(), g.stream()}
	names := make([]string, len(streams))
	for i, s := range streams {
		names[i] = fmt.Sprint("worker ", i)
		require.NoError(t, NameStream(s, names[i]))
	}
	r := start(t, Options{})
	var wg sync.WaitGroup
	for i, s := range streams {
		wg.Go(func() {
			defer Begin(t.Context(), names[i]).End()
			host, err := safe.NewPinned[float32](g.x, n)
			require.NoError(t, err)
			defer host.Close()
			b, err := safe.NewBuffer[float32](g.x, n)
			require.NoError(t, err)
			defer b.Close()
			for range rounds {
				in := Begin(t.Context(), "round")
				require.NoError(t, b.CopyFromHostAsync(s, host))
				g.spinFor(s, 200*time.Microsecond)
				require.NoError(t, b.CopyToHostAsync(s, host))
				g.wait(s)
				in.End()
			}
			require.NoError(t, b.FillAsync(s, 0))
			g.wait(s)
		})
	}
	wg.Wait()
	tl := stop(t, r)
	written(t, tl)
	assert.Zero(t, tl.Lost)
	count := map[string]int{}
	last := map[streamKey]time.Duration{}
	outside, late := 0, 0
	for _, w := range tl.Work {
		count[w.Name]++
		require.Greater(t, w.End, w.Start)
		require.GreaterOrEqual(t, w.Range, 0, w.Name)
		require.GreaterOrEqual(t, w.Call, 0, w.Name)
		key := streamKey{w.Context, w.Stream}
		assert.Equal(t, tl.streams[key], outermost(tl, w.Range), "the range of the stream's goroutine")
		if w.Start < last[key] {
			outside++
		}
		last[key] = w.End
		if c := tl.Calls[w.Call]; w.Start < c.Start {
			late++
		}
		if w.Name == "spin" {
			assert.InDelta(t, 200*time.Microsecond, w.End-w.Start, float64(20*time.Microsecond))
			assert.Positive(t, w.Registers)
			assert.Positive(t, w.Occupancy)
		}
		if w.Kind == Copy {
			assert.EqualValues(t, 4*n, w.Bytes)
		}
	}
	assert.Equal(t, map[string]int{"spin": 3 * rounds, "HtoD": 3 * rounds, "DtoH": 3 * rounds, "fill": 3}, count)
	assert.Zero(t, outside, "work overlaps on its stream")
	assert.Zero(t, late, "work before its call")
	assert.NotEmpty(t, tl.Waits)
}

func outermost(tl *Timeline, r int) string {
	for tl.Ranges[r].Parent >= 0 {
		r = tl.Ranges[r].Parent
	}
	return tl.Ranges[r].Name
}

// TestGPUCopyRate: a copy's time agrees with that of events around it.
func TestGPUCopyRate(t *testing.T) {
	g := onTheGPU(t)
	const n = 256 << 20
	host, err := safe.NewPinned[byte](g.x, n)
	require.NoError(t, err)
	defer host.Close()
	b, err := safe.NewBuffer[byte](g.x, n)
	require.NoError(t, err)
	defer b.Close()
	begin, err := safe.NewEvent(g.x)
	require.NoError(t, err)
	end, err := safe.NewEvent(g.x)
	require.NoError(t, err)
	r := start(t, Options{})
	var took time.Duration
	for range 2 { // the first one warms up
		require.NoError(t, g.s.Record(begin))
		require.NoError(t, b.CopyFromHostAsync(g.s, host))
		require.NoError(t, g.s.Record(end))
		g.wait(g.s)
		took, err = end.Since(begin)
		require.NoError(t, err)
	}
	tl := stop(t, r)
	require.Len(t, tl.Work, 2)
	w := tl.Work[1]
	assert.EqualValues(t, n, w.Bytes)
	assert.InDelta(t, 1, float64(w.End-w.Start)/float64(took), 0.02)
	t.Logf("%.1f GB/s by the recording, %.1f by events", rate(n, w.End-w.Start), rate(n, took))
}

// TestGPUClock: CUPTI's clock is turned into the host's with an error below 20 µs, and work lies between its launch and
// the end of the wait for it.
func TestGPUClock(t *testing.T) {
	g := onTheGPU(t)
	r := start(t, Options{})
	type between struct{ begin, end time.Duration }
	var spans []between
	var samples []sample
	for range 50 {
		begin := time.Since(r.started)
		g.spinFor(g.s, 100*time.Microsecond)
		g.wait(g.s)
		spans = append(spans, between{begin, time.Since(r.started)})
		s, err := now()
		require.NoError(t, err)
		samples = append(samples, s)
		time.Sleep(20 * time.Millisecond)
	}
	tl := stop(t, r)
	c := &r.clock
	require.Len(t, tl.Work, len(spans))
	worst, early, late := int64(0), time.Duration(0), time.Duration(0)
	for i, s := range samples {
		worst = max(worst, abs(c.host(s.cupti)-(s.host-c.start)))
		early = max(early, spans[i].begin-tl.Work[i].Start)
		late = max(late, tl.Work[i].End-spans[i].end)
	}
	assert.Less(t, worst, int64(20_000))
	assert.Less(t, early, 20*time.Microsecond, "work before its launch")
	assert.Less(t, late, 20*time.Microsecond, "work after its wait")
	t.Logf("the clocks differ by %d ns at most; work is %v early and %v late at most", worst, early, late)
}

// TestGPUClocks: the work of two GPUs is on one clock.
func TestGPUClocks(t *testing.T) {
	g := onTheGPU(t)
	all, err := safe.Devices()
	require.NoError(t, err)
	if len(all) < 2 {
		t.Skip("there is but one GPU")
	}
	x, err := safe.Open(1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, spin := g.kernels(x)
	other := &gpu{T: t, x: x, s: s, spin: spin}

	r := start(t, Options{})
	var ends []time.Duration // of the waits, by turns
	for i := range 100 {
		on := []*gpu{g, other}[i%2]
		on.spinFor(on.s, 200*time.Microsecond)
		on.wait(on.s)
		ends = append(ends, time.Since(r.started))
		time.Sleep(10 * time.Millisecond)
	}
	tl := stop(t, r)
	require.Len(t, tl.Work, len(ends))
	var late, early [2]time.Duration
	for i, w := range tl.Work {
		require.Equal(t, i%2, w.Device)
		late[i%2] = max(late[i%2], w.End-ends[i])
		if i > 0 {
			early[i%2] = max(early[i%2], ends[i-1]-w.Start)
		}
	}
	for device := range 2 {
		assert.Less(t, late[device], 20*time.Microsecond, "GPU %d: work after its wait", device)
		assert.Less(t, early[device], 20*time.Microsecond, "GPU %d: work before the wait for the other GPU has ended", device)
	}
	t.Logf("late %v, early %v", late, early)
}

// TestGPUMillion: nothing is lost of 1.5 million nodes of graphs, beside goroutines whose waits ask all the time.
func TestGPUMillion(t *testing.T) {
	g := onTheGPU(t)
	const nodes, launches = 1000, 1500
	graph, err := g.s.Capture(func() error {
		for range nodes {
			g.launch(g.s)
		}
		return nil
	})
	require.NoError(t, err)
	defer graph.Close()
	x, err := graph.Instantiate()
	require.NoError(t, err)
	defer x.Close()
	other := g.stream()

	r := start(t, Options{})
	begin := time.Now()
	var wg sync.WaitGroup
	var stopped atomic.Bool
	for range 4 {
		wg.Go(func() {
			for !stopped.Load() {
				_, err := other.Query()
				assert.NoError(t, err)
			}
		})
	}
	for range launches {
		require.NoError(t, x.Launch(g.s))
	}
	g.wait(g.s)
	stopped.Store(true)
	wg.Wait()
	took := time.Since(begin)
	tl := stop(t, r)
	assert.Len(t, tl.Work, nodes*launches)
	assert.Zero(t, tl.Lost)
	t.Logf("%d nodes in %v, %d lost, %d buffers lent", nodes*launches, took, tl.Lost, activity.Lent())
}

func abs(v int64) int64 { return max(v, -v) }

// TestGPUMany: nothing is lost of 200,000 launches, from 8 goroutines.
func TestGPUMany(t *testing.T) {
	g := onTheGPU(t)
	const goroutines, each = 8, 25_000
	streams := make([]*safe.Stream, goroutines)
	for i := range streams {
		streams[i] = g.stream()
	}
	r := start(t, Options{})
	begin := time.Now()
	var wg sync.WaitGroup
	for _, s := range streams {
		wg.Go(func() {
			for range each {
				g.launch(s)
			}
			g.wait(s)
		})
	}
	wg.Wait()
	took := time.Since(begin)
	begin = time.Now()
	tl := stop(t, r)
	assert.Len(t, tl.Work, goroutines*each)
	assert.Zero(t, tl.Lost)
	t.Logf("%d launches in %v, %d records lost, Stop took %v, %d buffers lent", goroutines*each, took, tl.Lost, time.Since(begin), activity.Lent())
}

// TestGPUCycles: recordings begin and end while goroutines launch, and a context ends in each.
func TestGPUCycles(t *testing.T) {
	g := onTheGPU(t)
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		s := g.stream()
		wg.Go(func() {
			for !stopped.Load() {
				g.launch(s)
				if time.Now().UnixNano()%50 == 0 {
					g.wait(s)
				}
			}
			g.wait(s)
		})
	}
	devices, err := safe.Devices()
	require.NoError(t, err)
	total := 0
	for range 20 {
		r := start(t, Options{})
		x, err := safe.NewContext(devices[0])
		require.NoError(t, err)
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		nothing, _ := g.kernels(x)
		require.NoError(t, nothing.Launch(s, safe.Threads(1)))
		require.NoError(t, s.Synchronize())
		require.NoError(t, x.CloseAll())
		require.NoError(t, x.Close())
		tl := stop(t, r)
		assert.NotEmpty(t, tl.Work)
		assert.Zero(t, tl.Lost)
		total += len(tl.Work)
		assert.Zero(t, activity.Lent(), "buffers that CUPTI keeps after a recording")
	}
	stopped.Store(true)
	wg.Wait()
	t.Logf("%d pieces of work in 20 recordings", total)
}

// TestGPUHandler: a recording over HTTP, of a program that works.
func TestGPUHandler(t *testing.T) {
	g := onTheGPU(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			g.spinFor(g.s, 100*time.Microsecond)
			g.wait(g.s)
		}
	})
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "/?seconds=0.3&format=text", nil))
	cancel()
	wg.Wait()
	assert.Equal(t, 200, w.Code)
	assert.Contains(t, w.Body.String(), "spin")
	t.Logf("\n%s", w.Body.String())
}

// TestGPUBusy: beside another subscriber there is no recording.
func TestGPUBusy(t *testing.T) {
	onTheGPU(t)
	drivertest.InChild(t, func(t *testing.T) {
		var other cupti.CUpti_SubscriberHandle
		require.NoError(t, activity.Open(1))
		require.NoError(t, cupti.CuptiSubscribe(&other, cupti.CUpti_CallbackFunc(activity.Ignored()), nil))
		_, err := Start(Options{})
		require.ErrorIs(t, err, ErrBusy)
		require.NoError(t, cupti.CuptiUnsubscribe(other))
		stop(t, start(t, Options{}))
	})
}

// TestGPUExit: a program may exit while it records, with work in flight.
func TestGPUExit(t *testing.T) {
	needsGPU(t)
	for _, how := range []string{"returns", "exits"} {
		t.Run(how, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				g := onTheGPU(t)
				_, err := Start(Options{})
				require.NoError(t, err)
				for range 2000 {
					g.launch(g.s)
				}
				g.spinFor(g.s, 50*time.Millisecond)
				if how == "exits" {
					fmt.Printf("--- PASS: %s (0.00s)\n", t.Name())
					os.Exit(0)
				}
			})
		})
	}
}
