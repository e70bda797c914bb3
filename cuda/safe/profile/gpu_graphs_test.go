//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"fmt"
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

// nodes is how many kernels gpu.graph has.
const nodes = 4

// graph instantiates a graph of four kernels on two branches, with streams of its own.
func (g *gpu) graph() *safe.GraphExec {
	main, err := safe.NewStreamWith(g.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(g, err)
	side, err := safe.NewStreamWith(g.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(g, err)
	e, err := main.CaptureExecutable(func() error {
		g.launch(main)
		require.NoError(g, side.WaitStream(main))
		g.spinFor(main, 20*time.Microsecond)
		g.spinFor(side, 20*time.Microsecond)
		require.NoError(g, main.WaitStream(side))
		return g.nothing.Launch(main, safe.Threads(1))
	})
	require.NoError(g, err)
	require.NoError(g, main.Close())
	require.NoError(g, side.Close())
	return e
}

func (g *gpu) launchGraph(e *safe.GraphExec, times int) {
	for range times {
		require.NoError(g, e.Launch(g.s))
	}
	g.wait(g.s)
}

// TestGPUGraphs: the nodes of graphs are recorded, whenever the executable was made, and joined with the launch. Each case is
// a process of its own.
func TestGPUGraphs(t *testing.T) {
	needsGPU(t)
	for _, row := range []struct {
		name string
		o    Options
		make func(g *gpu) *safe.GraphExec
	}{
		{"made in the recording", Options{}, func(*gpu) *safe.GraphExec { return nil }},
		{"made in the recording of all calls", Options{AllCalls: true}, func(*gpu) *safe.GraphExec { return nil }},
		{"made before the first recording", Options{}, (*gpu).graph},
		{"made and launched before the first recording", Options{}, func(g *gpu) *safe.GraphExec {
			e := g.graph()
			g.launchGraph(e, 3)
			return e
		}},
		{"made in an earlier recording", Options{}, func(g *gpu) *safe.GraphExec {
			r := start(g.T, Options{})
			e := g.graph()
			g.launchGraph(e, 3)
			stop(g.T, r)
			return e
		}},
		{"made between recordings", Options{}, func(g *gpu) *safe.GraphExec {
			stop(g.T, start(g.T, Options{}))
			return g.graph()
		}},
		{"launched in a recording, updated after it", Options{}, func(g *gpu) *safe.GraphExec {
			e := g.graph()
			r := start(g.T, Options{})
			g.launchGraph(e, 3)
			stop(g.T, r)
			require.NoError(g, e.Upload(g.s))
			g.launchGraph(e, 3)
			return e
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				g := onTheGPU(t)
				e := row.make(g)
				for range 2 {
					r := start(t, row.o)
					if e == nil {
						e = g.graph()
					}
					g.launchGraph(e, 10)
					tl := stop(t, r)
					written(t, tl)
					require.Len(t, tl.Work, 10*nodes)
					for _, w := range tl.Work {
						require.NotZero(t, w.Graph)
						require.NotZero(t, w.Node)
						require.GreaterOrEqual(t, w.Call, 0)
						require.Contains(t, tl.Calls[w.Call].Name, "cuGraphLaunch")
					}
					launches := tl.launches()
					require.Len(t, launches, 10)
					for _, l := range launches {
						require.Equal(t, nodes, l.nodes)
					}
					g.launchGraph(e, 3) // after the recording
				}
				require.NoError(t, e.Close())
			})
		})
	}
}

// TestGPURestart: each recording is exact, although CUPTI is detached between them.
func TestGPURestart(t *testing.T) {
	g := onTheGPU(t)
	e := g.graph()
	for i := range 20 {
		r := start(t, Options{AllCalls: i%3 == 2})
		require.NoError(t, NameStream(g.s, "main"))
		for range 100 {
			g.launch(g.s)
		}
		g.launchGraph(e, 10)
		tl := stop(t, r)
		require.Len(t, tl.Work, 100+10*nodes)
		assert.Zero(t, tl.Lost)
		assert.Len(t, tl.streams, 1)
		for _, w := range tl.Work {
			require.GreaterOrEqual(t, w.Call, 0)
			require.NotEmpty(t, w.Symbol)
		}
		assert.Zero(t, activity.Lent())
		require.NoError(t, Detach())
		g.launch(g.s)
		g.launchGraph(e, 1)
	}
	require.NoError(t, e.Close())
}

// TestGPULive: recordings begin and end while goroutines launch kernels and graphs,
// copy, allocate and instantiate. CUDABIND_STRESS is how long, such as 20s.
func TestGPULive(t *testing.T) {
	needsGPU(t)
	drivertest.InChild(t, func(t *testing.T) {
		g := onTheGPU(t)
		length, err := time.ParseDuration(os.Getenv("CUDABIND_STRESS"))
		if err != nil {
			length = 2 * time.Second
		}
		old := g.graph()
		var stopped atomic.Bool
		var wg sync.WaitGroup
		for i := range 8 {
			s := g.stream()
			wg.Go(func() {
				for n := 0; !stopped.Load(); n++ {
					g.step(i, s, old)
					if n%50 == 0 {
						g.wait(s)
					}
				}
				g.wait(s)
			})
		}
		recordings, total, lost := 0, 0, 0
		for begin := time.Now(); time.Since(begin) < length; recordings++ {
			r := start(t, Options{AllCalls: recordings%4 == 3})
			time.Sleep(time.Duration(recordings%10) * time.Millisecond)
			tl := stop(t, r)
			total += len(tl.Work)
			lost += tl.Lost
		}
		stopped.Store(true)
		wg.Wait()
		fmt.Printf("live: %d recordings, %d pieces of work, %d lost, %d buffers lent\n", recordings, total, lost, activity.Lent())
		assert.Zero(t, lost)
		r := start(t, Options{})
		g.launchGraph(old, 10)
		assert.Len(t, stop(t, r).Work, 10*nodes)
		require.NoError(t, old.Close())
	})
}

// TestGPUStopDuringWork: recordings end while threads wait for kernels inside CUDA. The waits then write their records.
func TestGPUStopDuringWork(t *testing.T) {
	needsGPU(t)
	drivertest.InChild(t, func(t *testing.T) {
		g := onTheGPU(t)
		var stopped atomic.Bool
		var wg sync.WaitGroup
		for i := range 4 {
			s := g.stream()
			wg.Go(func() {
				for !stopped.Load() {
					g.spinFor(s, time.Duration(150+50*i)*time.Millisecond)
					require.NoError(g, s.SynchronizeBlocking())
				}
			})
		}
		for n := range 20 {
			r := start(t, Options{AllCalls: n%2 == 1})
			time.Sleep(time.Duration(7*n) * time.Millisecond)
			stop(t, r)
		}
		stopped.Store(true)
		wg.Wait()
		r := start(t, Options{})
		g.launch(g.s)
		g.wait(g.s)
		tl := stop(t, r)
		assert.Len(t, tl.Work, 1)
		assert.Zero(t, tl.Lost)
	})
}

// step is what goroutine i does in TestGPULive.
func (g *gpu) step(i int, s *safe.Stream, old *safe.GraphExec) {
	switch i {
	case 0, 1, 2:
		g.launch(s)
	case 3, 4:
		require.NoError(g, old.Launch(s))
	case 5:
		b, err := safe.NewBufferAsync[float32](s, 1000)
		require.NoError(g, err)
		require.NoError(g, b.FillAsync(s, 0))
		require.NoError(g, b.Close())
	case 6:
		e := g.graph()
		require.NoError(g, e.Launch(s))
		require.NoError(g, e.Close())
	case 7:
		g.launch(s)
		require.NoError(g, s.Synchronize())
	}
}

// TestFacts tells what CUPTI does that the package avoids. Each case is a process of its own, since some crash.
func TestFacts(t *testing.T) {
	needsGPU(t)
	if drivertest.InParent() && os.Getenv("CUDABIND_FACTS") == "" {
		t.Skip("for CUDABIND_FACTS=1")
	}
	whole := func(g *gpu, e *safe.GraphExec) {
		r := start(g.T, Options{})
		require.NoError(g, r.session.enable(cupti.CUPTI_ACTIVITY_KIND_GRAPH_TRACE))
		if e == nil {
			e = g.graph()
		}
		g.launchGraph(e, 10)
		stop(g.T, r)
	}
	for _, row := range []struct {
		name string
		run  func(g *gpu)
	}{
		{"launches of graphs as a whole, made in the recording", func(g *gpu) { whole(g, nil) }},
		{"launches of graphs as a whole, made before", func(g *gpu) { whole(g, g.graph()) }},
		{"calls chosen one by one, with a context from before", func(g *gpu) {
			r := start(g.T, Options{})
			require.NoError(g, cupti.CuptiActivityDisable(cupti.CUPTI_ACTIVITY_KIND_DRIVER))
			for id := cupti.CUpti_CallbackId(1); id < 1000; id++ {
				if matters(callName(cupti.CUPTI_CB_DOMAIN_DRIVER_API, id)) {
					require.NoError(g, cupti.CuptiActivityEnableDriverApi(id, 1))
				}
			}
			for range 10 {
				g.launch(g.s)
			}
			g.wait(g.s)
			require.NotEmpty(g, stop(g.T, r).Calls)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) { row.run(onTheGPU(t)) })
		})
	}
}
