//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A doubler doubles the values in host with a captured graph.
type doubler struct {
	stream *safe.Stream
	host   *safe.Pinned[float32]
	exec   *safe.GraphExec
}

// newDoubler captures a copy to the device, a kernel and a copy back. It closes the
// device memory here; the executable retains it.
func newDoubler(x *safe.Context, s *safe.Stream, add *safe.Kernel, host *safe.Pinned[float32]) (*doubler, error) {
	n := host.Len()
	device, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	exec, err := s.CaptureExecutable(func() error {
		if err := device.CopyFromHostAsync(s, host); err != nil {
			return err
		}
		if err := add.Launch(s, safe.Threads(n), device.Arg(), device.Arg(), device.Arg(), safe.Val(uint32(n))); err != nil {
			return err
		}
		return device.CopyToHostAsync(s, host)
	})
	if err != nil {
		return nil, err
	}
	return &doubler{s, host, exec}, nil
}

// double launches the graph: one driver call, however many nodes there are.
func (d *doubler) double() error {
	if err := d.exec.Launch(d.stream); err != nil {
		return err
	}
	return d.stream.Synchronize()
}

// fork captures work on two streams that may run concurrently. The events become
// edges of the graph.
func fork(s, side *safe.Stream, begun, ended *safe.Event, first, second func() error) (*safe.Graph, error) {
	return s.Capture(func() error {
		for _, step := range []func() error{
			func() error { return s.Record(begun) },
			func() error { return side.WaitEvent(begun) }, // side joins the capture
			first,
			second,
			func() error { return side.Record(ended) },
			func() error { return s.WaitEvent(ended) }, // and s waits for side
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

// loop captures work before, in and after a loop. The kernel counting sets the loop's
// condition: before the loop, and at the end of its body. The stream side captures the body.
func loop(s, side *safe.Stream, counting *safe.Kernel, left *safe.Buffer[uint32], before, work, after func() error) (*safe.Graph, error) {
	return s.Capture(func() error {
		if err := before(); err != nil {
			return err
		}
		more, err := s.NewCondition(safe.ConditionOptions{})
		if err != nil {
			return err
		}
		count := func(on *safe.Stream) error { return counting.Launch(on, safe.Threads(1), more.Arg(), left.Arg()) }
		if err := count(s); err != nil {
			return err
		}
		body, err := s.AddWhile(more)
		if err != nil {
			return err
		}
		err = side.CaptureTo(body, safe.CaptureToOptions{}, func() error { return errors.Join(work(), count(side)) })
		return errors.Join(err, after())
	})
}

// viaScratch captures a copy through memory that the graph allocates at each launch, and
// frees again.
func viaScratch(s *safe.Stream, to, from *safe.Buffer[float32]) (*safe.GraphExec, error) {
	return s.CaptureExecutable(func() error {
		scratch, err := safe.NewBufferAsync[float32](s, from.Len())
		if err != nil {
			return err
		}
		err = errors.Join(scratch.CopyFromAsync(s, from), to.CopyFromAsync(s, scratch))
		return errors.Join(err, scratch.Close()) // frees it here, in each launch
	})
}

// follow updates an executable to a graph. If the two differ in more than
// parameters, it instantiates the graph instead.
func follow(exec *safe.GraphExec, g *safe.Graph) (*safe.GraphExec, error) {
	err := exec.Update(g)
	var differ *safe.UpdateError
	if !errors.As(err, &differ) {
		return exec, err
	}
	fresh, err := g.Instantiate()
	if err != nil {
		return exec, err
	}
	return fresh, exec.Close() // launches in flight go on
}

// counted captures work, with a Go function at its end that runs at each launch.
func counted(s *safe.Stream, work func() error, then func()) (*safe.Graph, error) {
	return s.Capture(func() error {
		if err := work(); err != nil {
			return err
		}
		_, err := s.LaunchHostFunc(then)
		return err
	})
}

// kinds says what the nodes of a graph do.
func kinds(g *safe.Graph) (all []string, err error) {
	nodes, err := g.Nodes()
	for _, n := range nodes {
		all = append(all, n.Type().String())
	}
	return all, err
}

func TestGraphs(t *testing.T) {
	const n = 1000
	x := open(t)
	s := newStream(t, x)
	add, host, b := kernel(t, x, "add"), newHostBuffer(t, x, n), newBuffer(t, x, n)
	filling := func(v float32) func() error { return func() error { return b.FillAsync(s, v) } }

	t.Run("replay", func(t *testing.T) {
		d, err := newDoubler(x, s, add, host)
		require.NoError(t, err)
		closing(t, d.exec)
		host.Data()[0] = 1
		for range 10 {
			require.NoError(t, d.double())
		}
		assert.EqualValues(t, 1024, host.Data()[0])
	})
	t.Run("two streams", func(t *testing.T) {
		side, other := newStream(t, x), newBuffer(t, x, n)
		g, err := fork(s, side, newEvent(t, x), newEvent(t, x), filling(7), func() error { return other.FillAsync(side, 8) })
		require.NoError(t, err)
		exec, err := g.Instantiate()
		require.NoError(t, err)
		closing(t, exec)
		edges, err := g.Edges()
		require.NoError(t, err)
		assert.Empty(t, edges, "neither waits for the other")
		require.NoError(t, g.Close())
		require.NoError(t, exec.Launch(s))
		assert.EqualValues(t, 7, values(t, b)[0])
		assert.EqualValues(t, 8, values(t, other)[0])
	})
	t.Run("update", func(t *testing.T) {
		capture := func(work func() error) *safe.Graph {
			g, err := s.Capture(work)
			require.NoError(t, err)
			closing(t, g)
			return g
		}
		first, err := capture(filling(1)).Instantiate()
		require.NoError(t, err)
		second, err := follow(first, capture(filling(2)))
		require.NoError(t, err)
		assert.Same(t, first, second, "other arguments alone")
		require.NoError(t, second.Launch(s))
		assert.EqualValues(t, 2, values(t, b)[0])
		third, err := follow(second, capture(func() error { return errors.Join(filling(3)(), filling(4)()) }))
		require.NoError(t, err)
		assert.NotSame(t, first, third, "other nodes")
		require.NoError(t, third.Launch(s))
		assert.EqualValues(t, 4, values(t, b)[0])
		require.NoError(t, third.Close())
	})
	t.Run("host functions", func(t *testing.T) {
		runs := 0
		g, err := counted(s, filling(5), func() { runs++ })
		require.NoError(t, err)
		all, err := kinds(g)
		require.NoError(t, err)
		assert.Equal(t, []string{"CU_GRAPH_NODE_TYPE_MEMSET", "CU_GRAPH_NODE_TYPE_HOST"}, all)
		exec, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, g.Close())
		for range 3 {
			require.NoError(t, exec.Launch(s))
		}
		require.NoError(t, s.Synchronize())
		assert.Equal(t, 3, runs)
		require.NoError(t, exec.Close())
	})
	t.Run("a loop in a capture", func(t *testing.T) {
		if driver.Find("cuGraphConditionalHandleCreate") != nil {
			t.Skip("needs a driver for CUDA 12.3")
		}
		m, err := safe.LoadFile(x, "../samples/conditions.ptx")
		require.NoError(t, err)
		closing(t, m)
		counting, err := m.Kernel("condition")
		require.NoError(t, err)
		left, err := safe.NewBuffer[uint32](x, 1)
		require.NoError(t, err)
		closing(t, left)
		side := newStream(t, x)
		doubles := func(on *safe.Stream) func() error {
			return func() error { return add.Launch(on, safe.Threads(n), b.Arg(), b.Arg(), b.Arg(), safe.Val(uint32(n))) }
		}
		g, err := loop(s, side, counting, left, filling(1), doubles(side), doubles(s))
		require.NoError(t, err)
		exec, err := g.Instantiate()
		require.NoError(t, err)
		closing(t, exec)
		require.NoError(t, g.Close())
		for _, times := range []uint32{0, 3, 7} {
			require.NoError(t, left.Fill(times))
			require.NoError(t, exec.Launch(s))
			assert.EqualValues(t, 2<<times, values(t, b)[0])
		}
	})
	t.Run("memory of a capture", func(t *testing.T) {
		to := newBuffer(t, x, n)
		exec, err := viaScratch(s, to, b)
		require.NoError(t, err)
		closing(t, exec)
		for i := range 3 {
			require.NoError(t, b.Fill(float32(i)))
			require.NoError(t, exec.Launch(s))
			assert.EqualValues(t, i, values(t, to)[0])
		}
	})
	t.Run("what a capture refuses", func(t *testing.T) {
		side, fork, other := newStream(t, x), newEvent(t, x), newBuffer(t, x, n)
		g, err := s.Capture(func() error {
			assert.ErrorIs(t, s.Synchronize(), safe.ErrCapturing)
			_, err := s.Query()
			assert.ErrorIs(t, err, safe.ErrCapturing)
			assert.ErrorIs(t, s.AddCallback(func(error) {}), safe.ErrCapturing)
			assert.ErrorIs(t, s.Scope(func(*safe.Scope) error { return nil }), safe.ErrCapturing)
			require.NoError(t, other.Fill(0), "no stream of the capture has used it")
			require.NoError(t, b.FillAsync(s, 1))
			err = b.CopyToHost(make([]float32, n))
			assert.EqualError(t, err, "cuda: Buffer.CopyToHost: a stream is capturing, and this call would invalidate the capture: a stream that uses the memory is capturing, so its work cannot be waited for")
			more, err := safe.NewBuffer[float32](x, 1)
			require.NoError(t, err, "it is not on the stream")
			return more.Close()
		})
		require.NoError(t, err, "the capture goes on")
		require.NoError(t, g.Close())
		_, err = s.Capture(func() error {
			require.NoError(t, b.FillAsync(s, 1))
			require.NoError(t, s.Record(fork))
			require.NoError(t, side.WaitEvent(fork))
			return other.FillAsync(side, 0) // and never joined
		})
		assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
	})
}

func newEvent(t *testing.T, x *safe.Context) *safe.Event {
	t.Helper()
	e, err := safe.NewEventWith(x, safe.EventOptions{DisableTiming: true})
	require.NoError(t, err)
	closing(t, e)
	return e
}
