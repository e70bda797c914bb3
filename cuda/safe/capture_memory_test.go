//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Memory that captures allocate. Runs on any driver, on devices with memory pools.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// types returns the types of a graph's nodes.
func types(t *testing.T, g *safe.Graph) (all []driver.CUgraphNodeType) {
	t.Helper()
	nodes, err := g.Nodes()
	require.NoError(t, err)
	for _, n := range nodes {
		all = append(all, n.Type())
	}
	return all
}

// unused returns a function that checks that graphs have no more memory allocated than now.
// The driver counts freed memory as allocated until it is trimmed.
func unused(t *testing.T, x *safe.Context) func() {
	t.Helper()
	used := func() uint64 {
		require.NoError(t, x.TrimGraphMemory())
		return aboutGraphs(t, x, driver.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
	}
	before := used()
	return func() {
		t.Helper()
		for end := time.Now().Add(hang); used() > before; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(end), "memory stays allocated")
		}
	}
}

// allocating captures a graph that allocates a buffer of n values and leaves it allocated.
func allocating[T any](t *testing.T, s *safe.Stream, n int) (g *safe.Graph, b *safe.Buffer[T]) {
	t.Helper()
	g, err := s.Capture(func() (err error) {
		b, err = safe.NewBufferAsync[T](s, n)
		return err
	})
	require.NoError(t, err)
	return g, b
}

// TestCaptureAlloc captures a temporary buffer that is freed in the capture, in each way.
func TestCaptureAlloc(t *testing.T) {
	x := open(t, 0)
	allFreed := unused(t, x)
	const n = 100
	s, y, saxpy, ones := stream(t, x), buffer[float32](t, x, n), kernel(t, x, "saxpy"), ones(t, x, n)
	for name, free := range map[string]func(b *safe.Buffer[float32]) error{
		"Close":     func(b *safe.Buffer[float32]) error { return errors.Join(b.Close(), b.Close()) },
		"FreeAsync": func(b *safe.Buffer[float32]) error { return b.FreeAsync(s) },
		"FreeAsync, Close": func(b *safe.Buffer[float32]) error {
			err := b.FreeAsync(s)
			assert.ErrorIs(t, b.FreeAsync(s), safe.ErrClosed)
			return errors.Join(err, b.Close())
		},
		"FreeNode": func(b *safe.Buffer[float32]) error {
			_, err := s.AddNode(safe.FreeNode(b))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b *safe.Buffer[float32]
			g, err := s.Capture(func() (err error) {
				if b, err = safe.NewBufferAsync[float32](s, n); err != nil {
					return err
				}
				err = errors.Join(b.FillAsync(s, 5), saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), ones.Arg(), b.Arg()), y.CopyFromAsync(s, b))
				return errors.Join(err, free(b))
			})
			require.NoError(t, err)
			closing(t, g)
			all := types(t, g)
			assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_MEM_ALLOC, all[0])
			assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_MEM_FREE, all[len(all)-1])
			assert.Len(t, all, 5)
			e := executable(t, g)
			for range 3 {
				launch(t, e, s)
				assert.EqualValues(t, 6, read(t, y))
			}
			assert.Error(t, b.FillAsync(s, 1), "it is not allocated after the launch")
			allFreed()
		})
	}
}

// TestCaptureAllocLeft: memory that the capture does not free may be used after a launch,
// until the next launch frees it or the program does.
func TestCaptureAllocLeft(t *testing.T) {
	x := open(t, 0)
	allFreed := unused(t, x)
	const n = 100
	s, side, ready := stream(t, x), stream(t, x), event(t, x)
	y, out := buffer[float32](t, x, n), host[float32](t, x, n)
	saxpy, ones := kernel(t, x, "saxpy"), ones(t, x, n)
	var b *safe.Buffer[float32]
	g, err := s.Capture(func() (err error) {
		if b, err = safe.NewBufferAsync[float32](s, n); err != nil {
			return err
		}
		assert.ErrorIs(t, b.Fill(0), safe.ErrNotAllocated)
		return b.FillAsync(s, 5)
	})
	require.NoError(t, err)
	e := executable(t, g)
	for name, call := range map[string]func() error{
		"Zero":           func() error { return b.Fill(0) },
		"CopyToHost":     func() error { return b.CopyToHost(make([]float32, n)) },
		"FillAsync of 0": func() error { return b.FillAsync(s, 0) },
		"copy":           func() error { return y.CopyFromAsync(s, b) },
		"copy to host":   func() error { return b.CopyToHostAsync(s, out) },
		"launch": func() error {
			return saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), ones.Arg(), b.Arg())
		},
		"WriteValue": func() error {
			words, err := safe.Cast[uint32](b)
			require.NoError(t, err)
			return safe.WriteValue(s, words.At(0), 1)
		},
		"EnqueueRaw": func() error { return s.EnqueueRaw(func(driver.CUstream) error { return nil }, b.Arg()) },
		"FreeAsync":  func() error { return b.FreeAsync(s) },
	} {
		assert.ErrorIs(t, call(), safe.ErrNotAllocated, name)
	}
	require.NoError(t, e.Upload(s))
	assert.ErrorIs(t, b.Fill(0), safe.ErrNotAllocated, "an upload runs nothing")

	for range 3 { // the executable frees it at its next launch
		require.NoError(t, e.Launch(s))
		require.NoError(t, errors.Join(s.Record(ready), side.WaitEvent(ready)))
		require.NoError(t, saxpy.Launch(side, perValue(n), safe.Val(uint32(n)), safe.Val(float32(2)), ones.Arg(), b.Arg()))
		assert.EqualValues(t, 7, read(t, b), "a copy waits for the work")
	}
	require.NoError(t, b.FreeAsync(side))
	assert.ErrorIs(t, b.FreeAsync(side), safe.ErrNotAllocated)
	assert.ErrorIs(t, b.Fill(0), safe.ErrNotAllocated)
	require.NoError(t, side.Synchronize())
	allFreed()

	_, err = g.Instantiate()
	assert.ErrorIs(t, err, safe.ErrNotSupported)
	assert.ErrorContains(t, err, "one executable at a time")
	launch(t, e, s)
	require.NoError(t, g.Close())
	require.NoError(t, e.Close())
	assert.Eventually(t, func() bool { return b.Raw() == 0 }, hang, time.Millisecond, "it is closed with the graph")
	allFreed()
}

// TestCaptureAllocLost: buffers of a capture that fails are closed.
func TestCaptureAllocLost(t *testing.T) {
	x := open(t, 0)
	s, mine := stream(t, x), errors.New("mine")
	var b *safe.Buffer[float32]
	_, err := s.Capture(func() (err error) {
		b, err = safe.NewBufferAsync[float32](s, 10)
		return errors.Join(err, mine)
	})
	require.ErrorIs(t, err, mine)
	assert.Eventually(t, func() bool { return b.Raw() == 0 }, hang, time.Millisecond)
	assert.ErrorIs(t, b.FillAsync(s, 0), safe.ErrClosed)
	require.NoError(t, b.Close())
}

// freedLast checks that the last of a graph's n nodes frees memory, after the one before.
func freedLast(t *testing.T, g *safe.Graph, n int) {
	t.Helper()
	nodes, err := g.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, n)
	assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_MEM_FREE, nodes[n-1].Type())
	deps, err := nodes[n-1].Dependencies()
	require.NoError(t, err)
	assert.Contains(t, deps, nodes[n-2])
}

// TestCaptureAllocJoined: the release of a temporary waits for streams that use it and have
// not been joined.
func TestCaptureAllocJoined(t *testing.T) {
	x := open(t, 0)
	allFreed := unused(t, x)
	const n = 100
	s, side, y := stream(t, x), stream(t, x), buffer[float32](t, x, n)
	fork, join := event(t, x), event(t, x)
	g, err := s.Capture(func() error {
		b, err := safe.NewBufferAsync[float32](s, n)
		if err != nil {
			return err
		}
		err = errors.Join(b.FillAsync(s, 3), s.Record(fork), side.WaitEvent(fork), y.CopyFromAsync(side, b))
		return errors.Join(err, b.Close(), side.Record(join), s.WaitEvent(join))
	})
	require.NoError(t, err)
	closing(t, g)
	freedLast(t, g, 4) // after the copy
	e := executable(t, g)
	for range 2 {
		launch(t, e, s)
		assert.EqualValues(t, 3, read(t, y))
	}
	allFreed()
}

// TestCaptureAllocClosedBesideWork: once the capture is over, Close does not wait for its stream.
func TestCaptureAllocClosedBesideWork(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	g, b := allocating[float32](t, s, 100)
	closing(t, g)
	unlock := safe.LockStream(s)
	closed := background(func() { assert.NoError(t, b.Close()) })
	soon(t, closed, "it waits for the stream")
	unlock()
	<-closed
}

// TestCaptureAllocInBody: a body that runs before the memory is freed may be captured afterwards.
func TestCaptureAllocInBody(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	s, side, y := stream(t, x), stream(t, x), ones(t, x, 10)
	saxpy := kernel(t, x, "saxpy")
	var b *safe.Buffer[float32]
	var body *safe.Graph
	g, err := s.Capture(func() error {
		c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
		require.NoError(t, err)
		b, err = safe.NewBufferAsync[float32](s, 10)
		require.NoError(t, errors.Join(err, b.FillAsync(s, 3)))
		body, err = s.AddIf(c)
		return errors.Join(err, b.FreeAsync(s))
	})
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, side.CaptureTo(body, safe.CaptureToOptions{}, func() error {
		return saxpy.Launch(side, perValue(10), safe.Val(uint32(10)), safe.Val(float32(1)), b.Arg(), y.Arg())
	}))
	launch(t, executable(t, g), s)
	assert.EqualValues(t, 4, read(t, y))
}

// TestCaptureAllocFails: memory that CUDA does not allocate in a capture keeps nothing alive.
func TestCaptureAllocFails(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer simulated.Reset()
	g, err := s.Capture(func() error {
		simulated.Fail("cuMemAllocAsync", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
		_, err := safe.NewBufferAsync[float32](s, 10)
		assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
		return nil
	})
	require.NoError(t, errors.Join(err, g.Close(), s.Close(), x.Close()))
	nothingAlive(t, "the context")
}

// TestCaptureAllocFreedAside: memory that nothing uses is freed after its allocation, also by a stream that does not wait
// for that.
func TestCaptureAllocFreedAside(t *testing.T) {
	x := open(t, 0)
	s, side, y := stream(t, x), stream(t, x), buffer[float32](t, x, 4)
	g, err := s.Capture(func() error {
		err := errors.Join(y.FillAsync(s, 0), side.WaitStream(s))
		b, failed := safe.NewBufferAsync[float32](s, 100)
		return errors.Join(err, failed, b.FreeAsync(side), s.WaitStream(side))
	})
	require.NoError(t, err)
	closing(t, g)
	freedLast(t, g, 3) // after the allocation
	launch(t, executable(t, g), s)
}

// TestCaptureAllocNodes: the release also waits for nodes that were added on a stream that is not joined.
func TestCaptureAllocNodes(t *testing.T) {
	x := open(t, 0)
	const n = 100
	y, set := buffer[float32](t, x, n), kernel(t, x, "fill")
	for _, test := range []struct {
		name  string
		nodes driver.CUgraphNodeType // that use the memory
		needs string
		add   func(t *testing.T, s *safe.Stream, b *safe.Buffer[float32]) error
	}{
		{"copy", driver.CU_GRAPH_NODE_TYPE_MEMCPY, "", func(_ *testing.T, s *safe.Stream, b *safe.Buffer[float32]) error {
			_, err := s.AddNode(safe.CopyNode[float32](y, b))
			return err
		}},
		{"child graph", driver.CU_GRAPH_NODE_TYPE_GRAPH, "", func(t *testing.T, s *safe.Stream, b *safe.Buffer[float32]) error {
			child := newGraph(t, x)
			addNode(t, child, safe.CopyNode[float32](y, b))
			_, err := s.AddNode(safe.ChildGraphNode(child))
			return err
		}},
		{"conditional", driver.CU_GRAPH_NODE_TYPE_CONDITIONAL, "cuGraphConditionalHandleCreate", func(t *testing.T, s *safe.Stream, b *safe.Buffer[float32]) error {
			c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
			require.NoError(t, err)
			body, err := s.AddIf(c)
			require.NoError(t, err)
			_, err = body.Add(safe.KernelNode(set, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg()))
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.needs != "" {
				needs(t, test.needs)
			}
			s, side, fork, join := stream(t, x), stream(t, x), event(t, x), event(t, x)
			g, err := s.Capture(func() error {
				b, err := safe.NewBufferAsync[float32](s, n)
				require.NoError(t, err)
				err = errors.Join(b.FillAsync(s, 3), s.Record(fork), side.WaitEvent(fork), test.add(t, side, b))
				return errors.Join(err, b.Close(), side.Record(join), s.WaitEvent(join))
			})
			require.NoError(t, err)
			closing(t, g)
			nodes, err := g.Nodes()
			require.NoError(t, err)
			var before []driver.CUgraphNodeType
			for _, n := range nodes {
				if n.Type() == driver.CU_GRAPH_NODE_TYPE_MEM_FREE {
					deps, err := n.Dependencies()
					require.NoError(t, err)
					for _, d := range deps {
						before = append(before, d.Type())
					}
				}
			}
			assert.Contains(t, before, test.nodes)
			launch(t, executable(t, g), s)
		})
	}
}

// TestCaptureAllocClosed: an executable retains a buffer that is closed after the capture,
// and frees the memory.
func TestCaptureAllocClosed(t *testing.T) {
	x := open(t, 0)
	allFreed := unused(t, x)
	const n = 100
	s, y := stream(t, x), buffer[float32](t, x, n)
	var b *safe.Buffer[float32]
	e, err := s.CaptureExecutable(func() (err error) {
		if b, err = safe.NewBufferAsync[float32](s, n); err != nil {
			return err
		}
		return errors.Join(b.FillAsync(s, 4), y.CopyFromAsync(s, b))
	})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	for range 3 {
		launch(t, e, s)
		assert.EqualValues(t, 4, read(t, y))
	}
	require.NoError(t, e.Close())
	allFreed()
}

// TestFreeAfterFailedCapture tests that memory can be freed after a capture that frees it has failed.
func TestFreeAfterFailedCapture(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	closing(t, g)
	exec := executable(t, g)
	require.NoError(t, exec.Launch(s))
	require.NoError(t, s.Synchronize())
	no := errors.New("no")
	_, err := s.Capture(func() error { return errors.Join(b.FreeAsync(s), no) })
	require.ErrorIs(t, err, no)
	require.NotErrorIs(t, err, safe.ErrClosed)
	free, err := s.Capture(func() error { return b.FreeAsync(s) })
	if assert.NoError(t, err, "no node frees it") {
		closing(t, free)
		assert.NoError(t, executable(t, free).Launch(s))
		assert.NoError(t, s.Synchronize())
	}
}

// TestScopeCopyInCapture: a copy of Go memory is refused in a capture, which goes on.
func TestScopeCopyInCapture(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 4)
	require.NoError(t, s.Scope(func(c *safe.Scope) error {
		g, err := s.Capture(func() error {
			assert.ErrorIs(t, safe.CopyFromSlice(c, b, make([]uint32, 4)), safe.ErrCapturing)
			assert.ErrorIs(t, safe.CopyToSlice(c, make([]uint32, 4), b), safe.ErrCapturing)
			return b.FillAsync(s, 0)
		})
		return errors.Join(err, g.Close())
	}))
}
