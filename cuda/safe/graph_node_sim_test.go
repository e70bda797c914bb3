//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Graphs whose misuse, lifetime or locking only the simulated driver shows. All but
// TestSimTooManyArguments and TestSimTooManyDependencies need it.

package safe_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimSwitchDestroyed tests that no call reaches CUDA with the handle of a destroyed node.
func TestSimSwitchDestroyed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g := newGraph(t, x)
	n := addNode(t, g, safe.FillNode(buffer[int32](t, x, 4), 0))
	e := executable(t, g)
	require.NoError(t, n.Destroy())
	defer simulated.Reset()
	assert.ErrorIs(t, e.SetEnabled(n, false), safe.ErrClosed)
	assert.Empty(t, simulated.Violation())
}

// refused is a kernel node with an attribute that no driver accepts.
func refused(k *safe.Kernel, args ...safe.Arg) safe.NodeParams {
	cfg := one
	cfg.Attributes = []driver.CUlaunchAttribute{{Id: 9999}}
	return safe.KernelNode(k, cfg, args...)
}

// TestSimRefusedAttributes tests that a node retains its memory even if CUDA refuses one of
// its attributes.
func TestSimRefusedAttributes(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	store, s := kernel(t, x, "store"), stream(t, x)
	for _, test := range []struct {
		name string
		do   func(g *safe.Graph, b *safe.Buffer[uint64]) error
	}{
		{"set", func(g *safe.Graph, b *safe.Buffer[uint64]) error {
			n := addNode(t, g, safe.KernelNode(store, one, buffer[uint64](t, x, 4).Arg(), safe.Val(uint64(1))))
			return n.Set(refused(store, b.Arg(), safe.Val(uint64(2))))
		}},
		{"added to a graph that cannot lose nodes", func(g *safe.Graph, b *safe.Buffer[uint64]) error {
			m, n, err := safe.AddAlloc[byte](g, 100)
			require.NoError(t, err)
			addNode(t, g, safe.FreeNode(m), n)
			_, err = g.Add(refused(store, b.Arg(), safe.Val(uint64(2))))
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer simulated.Reset()
			g := newGraph(t, x)
			b, err := safe.NewBuffer[uint64](x, 4)
			require.NoError(t, err)
			assert.Error(t, test.do(g, b))
			require.NoError(t, b.Close())
			settle(t)
			launch(t, executable(t, g), s)
			assert.Empty(t, simulated.Violation())
		})
	}
}

// TestCloseBesideNode: a graph to which a call adds a node, or whose node it changes, is destroyed after
// the call has returned, and Close waits only a moment for it.
func TestCloseBesideNode(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	store, b := kernel(t, x, "store"), buffer[uint64](t, x, 4)
	kernelNode := func() safe.NodeParams { return safe.KernelNode(store, one, b.Arg(), safe.Val(uint64(1))) }
	words := buffer[uint32](t, x, 4) // whose fills are memsets
	fillNode := func() safe.NodeParams { return safe.FillNode(words, 0) }
	add := func(g *safe.Graph, _ *safe.GraphExec, _ safe.Node, w safe.NodeParams) error {
		_, err := g.Add(w)
		return err
	}
	set := func(_ *safe.Graph, _ *safe.GraphExec, n safe.Node, w safe.NodeParams) error { return n.Set(w) }
	setExec := func(_ *safe.Graph, e *safe.GraphExec, n safe.Node, w safe.NodeParams) error { return e.Set(n, w) }
	for _, c := range []struct {
		name, function string
		params         func() safe.NodeParams
		call           func(*safe.Graph, *safe.GraphExec, safe.Node, safe.NodeParams) error
		executable     bool // changes one
	}{
		{"add a kernel", "cuGraphAddKernelNode", kernelNode, add, false},
		{"add a fill", "cuGraphAddMemsetNode", fillNode, add, false},
		{"set a kernel", "cuGraphKernelNodeSetParams", kernelNode, set, false},
		{"set a fill", "cuGraphMemsetNodeSetParams", fillNode, set, false},
		{"set a kernel of an executable", "cuGraphExecKernelNodeSetParams", kernelNode, setExec, true},
		{"set a fill of an executable", "cuGraphExecMemsetNodeSetParams", fillNode, setExec, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer simulated.Reset()
			g, err := safe.NewGraph(x)
			require.NoError(t, err)
			n := addNode(t, g, c.params())
			e, err := g.Instantiate()
			require.NoError(t, err)
			simulated.Delay(c.function, hang)
			simulated.Delay(c.function+"_v2", hang) // which drivers for CUDA 12 have
			done := inDriver(t, func() error { return c.call(g, e, n, c.params()) })
			if c.executable {
				require.NoError(t, e.Close())
			}
			require.NoError(t, g.Close())
			assert.Empty(t, done, "neither has waited")
			simulated.Reset() // ends the delay
			require.NoError(t, <-done)
			require.NoError(t, e.Close())
			assert.ErrorIs(t, c.call(g, e, n, c.params()), safe.ErrClosed)
			settle(t)
			noViolation(t)
		})
	}
}

// TestSimNodesOfCapture tests that nodes cannot be changed while their graph is captured.
func TestSimNodesOfCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	defer simulated.Reset()
	g, err := s.Capture(func() error {
		require.NoError(t, y.FillAsync(s, 0))
		info, err := s.CaptureInfo()
		require.NoError(t, err)
		require.Len(t, info.Dependencies, 1)
		assert.ErrorIs(t, info.Dependencies[0].Destroy(), safe.ErrCapturing)
		assert.ErrorIs(t, info.Dependencies[0].Set(safe.FillNode(y, 1)), safe.ErrCapturing)
		return y.FillAsync(s, 2)
	})
	require.NoError(t, err)
	closing(t, g)
	assert.Empty(t, simulated.Violation())
	nodes, err := g.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	require.NoError(t, nodes[1].Destroy(), "the capture is over")
}

// TestSimPartsCompared tests that nodes of a child graph compare equal, however obtained.
func TestSimPartsCompared(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	child := newGraph(t, x)
	addNode(t, child, safe.EmptyNode())
	g := newGraph(t, x)
	n := addNode(t, g, safe.ChildGraphNode(child))
	var found []safe.Node
	for range 2 {
		part, err := n.ChildGraph()
		require.NoError(t, err)
		nodes, err := part.Nodes()
		require.NoError(t, err)
		found = append(found, nodes...)
	}
	require.Len(t, found, 2)
	assert.Equal(t, found[0], found[1])
	assert.True(t, found[0] == found[1])
}

// TestSimPartDestroyed tests that destroying a child node releases what nodes inside use.
func TestSimPartDestroyed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g := newGraph(t, x)
	n := addNode(t, g, safe.ChildGraphNode(newGraph(t, x)))
	part, err := n.ChildGraph()
	require.NoError(t, err)
	b, err := safe.NewBuffer[int32](x, 4)
	require.NoError(t, err)
	addNode(t, part, safe.FillNode(b, 0))
	live := simulated.Live("async")
	require.NoError(t, b.Close())
	require.NoError(t, n.Destroy())
	settle(t)
	assert.Eventually(t, func() bool { return simulated.Live("async") == live-1 }, atOnce, time.Millisecond, "nothing uses it")
}

// TestSimRecapturedPart tests that a graph inside a node cannot be recaptured, and stays
// inside after the attempt.
func TestSimRecapturedPart(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuStreamBeginRecaptureToGraph")
	startClean(t)
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g := newGraph(t, x)
	n := addNode(t, g, safe.ChildGraphNode(newGraph(t, x)))
	part, err := n.ChildGraph()
	require.NoError(t, err)
	require.NoError(t, s.CaptureTo(part, safe.CaptureToOptions{}, func() error { return y.FillAsync(s, 0) }))
	assert.ErrorIs(t, s.Recapture(part, safe.CaptureOptions{}, func() error { return nil }), safe.ErrInvalidArgument)
	executable(t, g)
}

// TestSimClonedRelease tests that OnRelease of a clone does not wait for the original.
func TestSimClonedRelease(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g := newGraph(t, x)
	first := make(chan struct{})
	require.NoError(t, g.OnRelease(func() { close(first) }))
	assert.ErrorIs(t, g.OnRelease(nil), safe.ErrInvalidArgument)
	clone, err := g.Clone()
	require.NoError(t, err)
	released := make(chan struct{})
	require.NoError(t, clone.OnRelease(func() { close(released) }))
	require.NoError(t, clone.Close())
	select {
	case <-released:
	case <-time.After(atOnce):
		t.Error("the original delays it")
	}
	settle(t)
	assert.False(t, isDone(first))
	require.NoError(t, g.Close())
	<-first
}

// TestSimGraphInCallback tests that a host function never waits for a locked graph or
// executable: its holder may be waiting for the host function.
func TestSimGraphInCallback(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, y, into := stream(t, x), buffer[int32](t, x, 4), newGraph(t, x)
	for name, test := range map[string]struct {
		slow   string // what another goroutine does with the graph or the executable
		other  func(g *safe.Graph, e *safe.GraphExec)
		inside func(g *safe.Graph, n safe.Node, e *safe.GraphExec) error
	}{
		"Nodes": {"cuGraphGetNodes", nodesOf, func(g *safe.Graph, n safe.Node, e *safe.GraphExec) error { _, err := g.Nodes(); return err }},
		"Add": {"cuGraphGetNodes", nodesOf, func(g *safe.Graph, n safe.Node, e *safe.GraphExec) error {
			_, err := g.Add(safe.EmptyNode())
			return err
		}},
		"Set":     {"cuGraphGetNodes", nodesOf, func(g *safe.Graph, n safe.Node, e *safe.GraphExec) error { return n.Set(safe.FillNode(y, 0)) }},
		"SetExec": {"cuGraphGetNodes", nodesOf, func(g *safe.Graph, n safe.Node, e *safe.GraphExec) error { return e.Set(n, safe.FillNode(y, 0)) }},
		"Launch":  {"cuGraphUpload", func(g *safe.Graph, e *safe.GraphExec) { e.Upload(s) }, func(g *safe.Graph, n safe.Node, e *safe.GraphExec) error { return e.Launch(s) }},
		"ChildGraphNode": {"cuGraphGetNodes", nodesOf, func(g *safe.Graph, n safe.Node, e *safe.GraphExec) error {
			_, err := into.Add(safe.ChildGraphNode(g))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraph(t, x)
			n := addNode(t, g, safe.FillNode(y, 0))
			e := executable(t, g)
			other := stream(t, x)
			settle(t) // nothing else is in the driver
			simulated.Delay(test.slow, hang)
			defer simulated.Reset()
			busy := make(chan struct{})
			go func() { defer close(busy); test.other(g, e) }()
			require.Eventually(t, func() bool { return simulated.Flying() == 1 }, hang, time.Millisecond)
			f, err := other.LaunchHostFunc(func() {
				assert.ErrorIs(t, test.inside(g, n, e), safe.ErrInCallback)
				assert.False(t, isDone(busy), "it waited")
			})
			require.NoError(t, err)
			wait(t, f)
			simulated.Reset()
			<-busy
		})
	}
}

func nodesOf(g *safe.Graph, _ *safe.GraphExec) { g.Nodes() }

// TestSimUpdatedCapture tests that an updated executable counts as a user of memory captured
// into the graph since.
func TestSimUpdatedCapture(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuStreamBeginCaptureToGraph")
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	gate := newGate(t, x)
	a, b := buffer[int32](t, x, 4), buffer[int32](t, x, 4)
	require.NoError(t, b.Fill(1))
	g := newGraph(t, x)
	require.NoError(t, other.CaptureTo(g, safe.CaptureToOptions{}, func() error { return a.FillAsync(other, 5) }))
	e := executable(t, g)
	launch(t, e, s)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	require.NoError(t, nodes[0].Destroy())
	require.NoError(t, other.CaptureTo(g, safe.CaptureToOptions{}, func() error { return b.FillAsync(other, 5) }))
	require.NoError(t, e.Update(g))
	require.EqualValues(t, 5, copiedDuring(t, gate, e, s, b))
}

// copiedDuring returns what a copy of b to the host finds that begins while a launch on s waits for the gate: what the
// launch writes, if the launch is known to use b.
func copiedDuring(t *testing.T, gate *gate, e *safe.GraphExec, s *safe.Stream, b *safe.Buffer[int32]) int32 {
	t.Helper()
	gate.shut(t, s)
	require.NoError(t, e.Launch(s))
	got := make([]int32, b.Len())
	done := make(chan error, 1)
	go func() { done <- b.CopyToHost(got) }()
	time.Sleep(20 * time.Millisecond)
	gate.open()
	require.NoError(t, <-done)
	return got[0]
}

// TestSimTooManyArguments tests that more arguments than a kernel can have are refused, even
// if the driver does not report parameters.
func TestSimTooManyArguments(t *testing.T) {
	x := open(t, 0)
	s, k := stream(t, x), kernel(t, x, "nothing")
	args := make([]safe.Arg, 1<<16)
	for i := range args {
		args[i] = safe.Val(uint32(1))
	}
	assert.ErrorIs(t, k.Launch(s, one, args...), safe.ErrInvalidArgument)
	_, err := newGraph(t, x).Add(safe.KernelNode(k, one, args...))
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
}

// TestSimTooManyDependencies tests that a node of AddAll may have more dependencies than fit on
// the stack of a thread.
func TestSimTooManyDependencies(t *testing.T) {
	x := open(t, 0)
	g, k := newGraph(t, x), kernel(t, x, "nothing")
	deps := slices.Repeat([]safe.Node{addNode(t, g, safe.EmptyNode())}, 3<<20)
	_, err := g.AddAll(safe.NodeSpec{Params: safe.KernelNode(k, one), Deps: deps})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE, "they are all the same")
}
