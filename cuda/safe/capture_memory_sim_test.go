//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Memory that captures allocate and release, beside other calls.

package safe_test

import (
	"errors"
	"math"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimAllocBesideBegin: a capture begins while NewBufferAsync waits for the stream, which then
// allocates memory of the graph.
func TestSimAllocBesideBegin(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, e := stream(t, x), event(t, x)
	defer simulated.Reset()
	simulated.Delay("cuEventRecord", hang)
	recorded := inDriver(t, func() error { return s.Record(e) }) // has the stream locked
	var b *safe.Buffer[byte]
	made := make(chan error)
	graphs := make(chan *safe.Graph, 1)
	captured := background(func() {
		g, err := s.Capture(func() error { return <-made })
		assert.NoError(t, err)
		graphs <- g
	})
	allocated := background(func() {
		var err error
		b, err = safe.NewBufferAsync[byte](s, 100)
		made <- err
	})
	simulated.Reset() // ends the delay
	require.NoError(t, <-recorded)
	<-allocated
	<-captured
	g := <-graphs
	closing(t, g)
	if err := b.Fill(0); err != nil { // nil if the capture has come late
		assert.ErrorIs(t, err, safe.ErrNotAllocated, "no launch has allocated it")
	}
	require.NoError(t, b.Close())
	noViolation(t)
}

// TestSimFreeBesideBegin: a capture begins while FreeAsync waits for a copy, and captures the release.
func TestSimFreeBesideBegin(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	g, b := allocating[byte](t, s, 100)
	closing(t, g)
	launch(t, executable(t, g), s)
	defer simulated.Reset()
	simulated.Delay("cuMemcpyDtoHAsync_v2", hang)
	copied := inDriver(t, func() error { return b.CopyToHost(make([]byte, 100)) })
	var err error
	freed := background(func() { err = b.FreeAsync(s) })
	release, captureErr := s.Capture(func() error {
		simulated.Reset() // ends the delay
		<-freed
		return errors.Join(err, <-copied)
	})
	require.NoError(t, captureErr)
	closing(t, release)
	assert.Equal(t, []driver.CUgraphNodeType{driver.CU_GRAPH_NODE_TYPE_MEM_FREE}, types(t, release))
	noViolation(t)
}

// TestUseAfterFreeInCapture: work that is captured after the release of the memory that it uses is refused.
func TestUseAfterFreeInCapture(t *testing.T) {
	x := open(t, 0)
	s, side, e, plain, work := stream(t, x), stream(t, x), event(t, x), buffer[uint32](t, x, 100), kernel(t, x, "fill")
	batch := func(b *safe.Buffer[uint32]) error {
		l, err := safe.NewBatch(x)
		return errors.Join(err, safe.BatchFill(l, b, 1), l.Submit(s))
	}
	child := func(b *safe.Buffer[uint32]) *safe.Graph {
		g := newGraph(t, x)
		addNode(t, g, safe.FillNode(b, 1))
		return g
	}
	for name, release := range map[string]func(b *safe.Buffer[uint32]) error{
		"FreeAsync": func(b *safe.Buffer[uint32]) error { return b.FreeAsync(s) },
		"by another stream": func(b *safe.Buffer[uint32]) error {
			return errors.Join(s.Record(e), side.WaitEvent(e), b.FreeAsync(side), side.Record(e), s.WaitEvent(e))
		},
		"by a node": func(b *safe.Buffer[uint32]) error {
			_, err := s.AddNode(safe.FreeNode(b))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := s.Capture(func() error {
				b, err := safe.NewBufferAsync[uint32](s, 100)
				require.NoError(t, err)
				inner := child(b)
				require.NoError(t, errors.Join(b.FillAsync(s, 0), release(b)))
				assert.ErrorIs(t, b.FillAsync(s, 0), safe.ErrNotAllocated)
				assert.ErrorIs(t, plain.CopyFromAsync(s, b), safe.ErrNotAllocated)
				assert.ErrorIs(t, work.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(5)), b.Arg()), safe.ErrNotAllocated)
				assert.ErrorIs(t, batch(b), safe.ErrNotAllocated)
				for _, w := range []safe.NodeParams{safe.FillNode(b, 1), safe.CopyNode[uint32](plain, b), safe.FreeNode(b), safe.ChildGraphNode(inner)} {
					_, err := s.AddNode(w)
					assert.ErrorIs(t, err, safe.ErrNotAllocated)
				}
				return nil
			})
			require.NoError(t, err)
			closing(t, g)
			launch(t, executable(t, g), s)
			noViolation(t)
		})
	}
}

// TestUseAfterFreeInLaterCapture: the same holds for memory that an earlier launch of another graph has allocated.
func TestUseAfterFreeInLaterCapture(t *testing.T) {
	x := open(t, 0)
	s, work := stream(t, x), kernel(t, x, "fill")
	first, b := allocating[uint32](t, s, 100)
	closing(t, first)
	launch(t, executable(t, first), s)
	g, err := s.Capture(func() error {
		require.NoError(t, b.FreeAsync(s))
		assert.ErrorIs(t, b.FillAsync(s, 0), safe.ErrNotAllocated)
		assert.ErrorIs(t, work.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(5)), b.Arg()), safe.ErrNotAllocated)
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
}

// TestSimCloseBesideUseInCapture: work that waits while the memory that it uses is released in the capture
// is refused.
func TestSimCloseBesideUseInCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	defer simulated.Reset()
	g, err := s.Capture(func() error {
		b, err := safe.NewBufferAsync[uint32](s, 100)
		if err := errors.Join(err, b.FillAsync(s, 0)); err != nil {
			return err
		}
		simulated.Delay("cuMemFreeAsync", hang)
		freed := inDriver(t, b.Close)
		var used error
		over := background(func() { used = b.FillAsync(s, 0) })
		simulated.Reset() // ends the delay
		<-over
		assert.Error(t, used)
		return <-freed
	})
	require.NoError(t, err)
	closing(t, g)
	launch(t, executable(t, g), s)
	noViolation(t)
}

// TestEmptyInCapture: a buffer of no values needs no node.
func TestEmptyInCapture(t *testing.T) {
	s := stream(t, open(t, 0))
	g, err := s.Capture(func() error {
		b, err := safe.NewBufferAsync[byte](s, 0)
		return errors.Join(err, b.Close())
	})
	require.NoError(t, err)
	closing(t, g)
	assert.Empty(t, types(t, g))
}

// TestSimFillInRawCapture: a fill of a pool's memory has its context current where a raw call has begun a capture, too.
func TestSimFillInRawCapture(t *testing.T) {
	needsSimulated(t)
	needsDriver(t, 13000, "the context is always current")
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 4)
	calls := func() int { // the least of several tries, as other goroutines of the package call CUDA, too
		least := math.MaxInt
		for range 20 {
			before := simulated.Calls("cuCtxSetCurrent")
			require.NoError(t, onThread(func() error { return b.FillAsync(s, 0) }))
			least = min(least, simulated.Calls("cuCtxSetCurrent")-before)
		}
		return least
	}
	assert.Zero(t, calls())
	raw := s.Raw()
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamBeginCapture(raw, driver.CU_STREAM_CAPTURE_MODE_RELAXED) }))
	assert.NotZero(t, calls())
	var g driver.CUgraph
	require.NoError(t, x.WithCurrent(func() error {
		return errors.Join(driver.CuStreamEndCapture(raw, &g), driver.CuGraphDestroy(g))
	}))
}
