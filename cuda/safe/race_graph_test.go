//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Several goroutines instantiate, update, launch and close graphs and executables at
// once. On a GPU such races have corrupted the heap, so the tests run in processes of
// their own. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// graphs is shared by the goroutines of a row.
type graphs struct {
	t     *testing.T
	x     *safe.Context
	s     [4]*safe.Stream
	b     *safe.Buffer[uint32]
	graph *safe.Graph     // fills b with 7
	exec  *safe.GraphExec // of graph
	other *safe.Graph     // fills b with 7, too
	node  safe.Node       // of graph
	turn  atomic.Int32
}

func newGraphs(t *testing.T) *graphs {
	x := open(t, 0)
	g := &graphs{t: t, x: x, b: buffer[uint32](t, x, 64)}
	for i := range g.s {
		g.s[i] = stream(t, x)
	}
	fills := func() *safe.Graph {
		made, err := g.s[0].Capture(func() error { return g.b.FillAsync(g.s[0], 7) })
		require.NoError(t, err)
		closing(t, made)
		return made
	}
	g.graph, g.other = fills(), fills()
	g.exec = executable(t, g.graph)
	nodes, err := g.graph.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	g.node = nodes[0]
	return g
}

// stream returns the streams in turn.
func (g *graphs) stream() *safe.Stream { return g.s[int(g.turn.Add(1))%len(g.s)] }

// cycle instantiates, launches and closes.
func (g *graphs) cycle(from *safe.Graph, waits bool) error {
	e, err := from.Instantiate()
	if err != nil {
		return err
	}
	s := g.stream()
	err = e.Launch(s)
	if waits {
		err = errors.Join(err, s.Synchronize())
	}
	return errors.Join(err, e.Close())
}

// clones clones, instantiates and closes.
func (g *graphs) clones() error {
	c, err := g.graph.Clone()
	if err != nil {
		return err
	}
	return errors.Join(g.cycle(c, false), c.Close())
}

// captures captures once.
func (g *graphs) captures(mode safe.CaptureMode) error {
	s, err := safe.NewStreamWith(g.x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	made, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: mode}, func() error { return g.b.FillAsync(s, 7) })
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(g.cycle(made, false), made.Close(), s.Close())
}

// capturesInto captures into the graph, which only one goroutine may do at a time, and
// removes the nodes again.
func (g *graphs) capturesInto(s *safe.Stream) error {
	var made []safe.Node
	err := s.CaptureTo(g.graph, safe.CaptureToOptions{}, func() error {
		err := g.b.FillAsync(s, 7)
		info, err2 := s.CaptureInfo()
		made = info.Dependencies
		return errors.Join(err, err2)
	})
	if err != nil {
		return except(err, safe.ErrCapturing)
	}
	for _, n := range made {
		for err := n.Destroy(); err != nil; err = n.Destroy() {
			if except(err, safe.ErrCapturing) != nil {
				return err
			}
			runtime.Gosched()
		}
	}
	return nil
}

// graphRaces are the functions of the goroutines, by row.
var graphRaces = map[string]func(g *graphs) []func() error{
	"launches of one executable": func(g *graphs) []func() error {
		return []func() error{g.launch, g.launch, g.launch}
	},
	"child graphs of each other": func(g *graphs) []func() error {
		other := executable(g.t, g.other)
		nodes, err := g.other.Nodes()
		require.NoError(g.t, err)
		intoGraph, intoOther := safe.ChildGraphNode(g.other), safe.ChildGraphNode(g.graph)
		set := func(e *safe.GraphExec, n safe.Node, w safe.NodeParams) func() error { // refused with both graphs locked
			return func() error { return except(e.Set(n, w), safe.ErrInvalidArgument) }
		}
		third, fourth := newGraph(g.t, g.x), newGraph(g.t, g.x)
		add := func(to *safe.Graph) func() error { // the same parameters on two goroutines
			return func() error {
				n, err := to.Add(intoOther)
				if err != nil {
					return err
				}
				return n.Destroy()
			}
		}
		return []func() error{set(g.exec, g.node, intoGraph), set(other, nodes[0], intoOther), add(third), add(fourth)}
	},
	"launch and update": func(g *graphs) []func() error {
		return []func() error{g.launch, g.launch, func() error { return g.exec.Update(g.other) }}
	},
	"launch, upload and set": func(g *graphs) []func() error {
		return []func() error{
			g.launch,
			func() error { return g.exec.Upload(g.stream()) },
			func() error { return g.exec.Set(g.node, safe.FillNode(g.b, 7)) },
			func() error { return g.exec.SetEnabled(g.node, true) },
		}
	},
	"two updates": func(g *graphs) []func() error {
		return []func() error{func() error { return g.exec.Update(g.other) }, func() error { return g.exec.Update(g.graph) }, g.launch}
	},
	"instantiations of one graph": func(g *graphs) []func() error {
		return []func() error{
			func() error { return g.cycle(g.graph, false) },
			func() error { return g.cycle(g.graph, true) },
			func() error { return g.cycle(g.graph, false) },
		}
	},
	"launch beside another's end": func(g *graphs) []func() error {
		return []func() error{g.launch, g.launch, func() error { return g.cycle(g.other, false) }, func() error { return g.cycle(g.graph, true) }}
	},
	"clone and instantiate": func(g *graphs) []func() error {
		return []func() error{g.clones, func() error { return g.cycle(g.graph, false) }, func() error { _, err := g.graph.Nodes(); return err }}
	},
	"add and instantiate": func(g *graphs) []func() error {
		return []func() error{
			func() error {
				n, err := g.graph.Add(safe.FillNode(g.b, 7))
				if err != nil {
					return err
				}
				return n.Destroy()
			},
			func() error { return g.cycle(g.graph, false) },
			func() error { _, err := g.graph.Edges(); return err },
		}
	},
	"captures into one graph": func(g *graphs) []func() error {
		return []func() error{
			func() error { return g.capturesInto(g.s[1]) },
			func() error { return g.capturesInto(g.s[2]) },
			func() error { return except(g.cycle(g.graph, false), safe.ErrCapturing) },
			func() error { _, err := g.graph.Nodes(); return except(err, safe.ErrCapturing) },
			func() error { c, err := g.graph.Clone(); return errors.Join(except(err, safe.ErrCapturing), c.Close()) },
		}
	},
	"captures in each mode": func(g *graphs) []func() error {
		return []func() error{
			func() error { return g.captures(safe.CaptureGlobal) },
			func() error { return g.captures(safe.CaptureThreadLocal) },
			func() error { return g.captures(safe.CaptureRelaxed) },
			g.launch,
		}
	},
}

func (g *graphs) launch() error { return g.exec.Launch(g.stream()) }

// TestGraphRaces: several goroutines use the same graph and executable.
func TestGraphRaces(t *testing.T) {
	for name, row := range graphRaces {
		t.Run(name, func(t *testing.T) {
			racing(t, func(g *graphs, c *racers) {
				for _, f := range row(g) {
					c.add(1, f)
				}
			})
		})
	}
}

// racing runs the goroutines that start adds, in a process of their own. Then the executable
// must still fill b.
func racing(t *testing.T, start func(g *graphs, c *racers)) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		if !onGPU {
			simulated.Widen(50 * time.Microsecond)
		}
		g := newGraphs(t)
		var c racers
		start(g, &c)
		time.Sleep(2 * stormTime(t))
		require.NoError(t, c.end())
		require.NoError(t, g.launch())
		for _, s := range g.s {
			require.NoError(t, s.Synchronize())
		}
		got := make([]uint32, 64)
		require.NoError(t, g.b.CopyToHost(got))
		assert.EqualValues(t, 7, got[63])
		noViolation(t)
	})
}

// TestClosedGraphsRace: goroutines launch an executable while everything that it needs is
// closed in any order. The graph's function runs once per launch and is released
// afterwards.
func TestClosedGraphsRace(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		rounds := 0
		for end := time.Now().Add(4 * stormTime(t)); time.Now().Before(end); rounds++ {
			require.NoError(t, closesUnderLaunches(), "round %d", rounds)
		}
		t.Logf("%d rounds", rounds)
		noViolation(t)
	})
}

func closesUnderLaunches() error {
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	s, err1 := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	b, err2 := safe.NewBuffer[uint32](x, 1000)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	released := make(chan struct{})
	var ran, launched, late atomic.Int64
	var over atomic.Bool
	g, err := s.Capture(func() error {
		_, err := s.LaunchHostFunc(func() {
			ran.Add(1)
			if over.Load() {
				late.Add(1)
			}
		})
		return errors.Join(err, b.FillAsync(s, 3))
	})
	if err != nil {
		return err
	}
	if err := g.OnRelease(func() { over.Store(true); close(released) }); err != nil {
		return err
	}
	e, err := g.Instantiate()
	if err != nil {
		return err
	}
	var c racers
	c.add(4, func() error {
		if err := e.Launch(s); err != nil {
			c.stop.Store(true)
			return except(err, safe.ErrClosed)
		}
		launched.Add(1)
		return nil
	})
	closers := []func() error{x.Close, s.Close, b.Close, g.Close, e.Close}
	rand.Shuffle(len(closers), func(i, k int) { closers[i], closers[k] = closers[k], closers[i] })
	var all sync.WaitGroup
	errs := make([]error, len(closers))
	for i, close := range closers {
		all.Go(func() { errs[i] = close() })
	}
	all.Wait()
	if err := errors.Join(append(errs, c.end())...); err != nil {
		return err
	}
	select {
	case <-released:
	case <-time.After(atOnce):
		return errors.New("the graph is never released")
	}
	if ran.Load() != launched.Load() || late.Load() > 0 {
		return fmt.Errorf("%d launches, %d calls of the function, %d of them after its release", launched.Load(), ran.Load(), late.Load())
	}
	return nil
}

// TestFirstLaunchBesideGlobalCapture launches kernels for the first time, which loads
// them, while another thread captures in mode GLOBAL.
func TestFirstLaunchBesideGlobalCapture(t *testing.T) {
	watch(t)
	x := open(t, 0)
	b := buffer[float32](t, x, 16)
	for range 20 {
		m, err := safe.LoadFile(x, "testdata/kernels.ptx")
		require.NoError(t, err)
		s, c := stream(t, x), stream(t, x)
		begun, over := make(chan struct{}), make(chan error, 1)
		go func() {
			<-begun
			fill, err1 := m.Kernel("fill")
			nothing, err2 := m.Kernel("nothing")
			over <- errors.Join(err1, err2, nothing.Launch(s, one),
				fill.Launch(s, perValue(16), safe.Val(uint32(16)), safe.Val(float32(1)), b.Arg()))
		}()
		g, err := c.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureGlobal}, func() error {
			close(begun)
			return <-over
		})
		require.NoError(t, err)
		require.NoError(t, errors.Join(g.Close(), s.Synchronize(), m.Close()))
	}
	noViolation(t)
}
