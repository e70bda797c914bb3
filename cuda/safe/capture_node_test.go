//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Nodes and conditions in the middle of captured work. Runs on any driver.

package safe_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaptureAddNode adds each type of node between two captured kernels: the node runs
// after the first and before the second, and the graph retains what it uses.
func TestCaptureAddNode(t *testing.T) {
	x := open(t, 0)
	const n = 10
	s, saxpy, y := stream(t, x), kernel(t, x, "saxpy"), buffer[float32](t, x, n)
	from, e := host[float32](t, x, n), event(t, x)
	word, calls := plainBuffer[uint32](t, x, 1), new(atomic.Int32)
	for i := range from.Data() {
		from.Data()[i] = 40
	}
	child := newGraph(t, x)
	addNode(t, child, saxpyWork(saxpy, 5, ones(t, x, n), y))
	for _, test := range []struct {
		name string
		node func() safe.NodeParams
		want float32 // the first kernel adds 1, the second 2
	}{
		{"kernel", func() safe.NodeParams { return saxpyWork(saxpy, 10, ones(t, x, n), y) }, 13},
		{"copy", func() safe.NodeParams { return safe.CopyNode[float32](y, from) }, 42},
		{"fill", func() safe.NodeParams { return safe.FillNode(y, 30) }, 32},
		{"zero", func() safe.NodeParams { return safe.FillNode(y, 0) }, 2},
		{"empty", safe.EmptyNode, 3},
		{"child", func() safe.NodeParams { return safe.ChildGraphNode(child) }, 8},
		{"record", func() safe.NodeParams { return safe.RecordNode(e) }, 3},
		{"wait", func() safe.NodeParams { return safe.WaitEventNode(e) }, 3},
		{"operations", func() safe.NodeParams { return safe.MemOpsNode(x, safe.NewWriteOp(word.At(0), 1)) }, 3},
		{"function", func() safe.NodeParams {
			return safe.HostFuncNode(func() { calls.Add(1) })
		}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			var added safe.Node
			g, err := s.Capture(func() error {
				err := errors.Join(y.FillAsync(s, 0), saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), ones(t, x, n).Arg(), y.Arg()))
				node, also := s.AddNode(test.node())
				added = node
				return errors.Join(err, also, saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(2)), ones(t, x, n).Arg(), y.Arg()))
			})
			require.NoError(t, err)
			closing(t, g)
			nodes, err := g.Nodes()
			require.NoError(t, err)
			require.Len(t, nodes, 4)
			assert.Contains(t, nodes, added)
			deps, err := added.Dependencies()
			require.NoError(t, err)
			assert.Equal(t, nodes[1:2], deps)
			after, err := nodes[3].Dependencies()
			require.NoError(t, err)
			assert.Equal(t, []safe.Node{added}, after)
			drop() // the graph has the only references to the buffers of ones
			exec := executable(t, g)
			for range 2 {
				launch(t, exec, s)
				assert.Equal(t, test.want, read(t, y))
			}
		})
	}
	assert.EqualValues(t, 2, calls.Load())
}

// TestCaptureAddNodeRefuses: errors of AddNode, after each of which the capture goes on.
func TestCaptureAddNodeRefuses(t *testing.T) {
	x := open(t, 0)
	s, other, y, closed := stream(t, x), stream(t, x), buffer[float32](t, x, 10), buffer[float32](t, x, 10)
	require.NoError(t, closed.Close())
	foreign := newGraph(t, x)
	priority := one
	priority.Attributes = []driver.CUlaunchAttribute{{Id: driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE}}
	g, err := s.Capture(func() error {
		require.NoError(t, y.FillAsync(s, 1))
		for name, test := range map[string]struct {
			on   *safe.Stream
			node safe.NodeParams
			is   error
		}{
			"no node":      {s, safe.NodeParams{}, safe.ErrInvalidArgument},
			"closed":       {s, safe.FillNode(closed, 0), safe.ErrClosed},
			"attributes":   {s, safe.KernelNode(kernel(t, x, "nothing"), priority), safe.ErrInvalidArgument},
			"nil graph":    {s, safe.ChildGraphNode(nil), safe.ErrClosed},
			"not captured": {other, safe.EmptyNode(), driver.CUDA_ERROR_ILLEGAL_STATE},
			"nil stream":   {nil, safe.EmptyNode(), safe.ErrClosed},
		} {
			_, err := test.on.AddNode(test.node)
			assert.ErrorIs(t, err, test.is, name)
			assert.ErrorContains(t, err, "Stream.AddNode", name)
		}
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 1)
	_, err = s.AddNode(safe.EmptyNode())
	assert.ErrorIs(t, err, driver.CUDA_ERROR_ILLEGAL_STATE, "the capture is over")
	require.NoError(t, y.FillAsync(other, 2), "no stream is locked")
	require.NoError(t, foreign.Close())
}

// captureIf captures y = 1, a conditional node whose bodies fill makes, and y += 1000.
func captureIf(t *testing.T, x *safe.Context, y *safe.Buffer[float32], condition uint32, add func(s *safe.Stream, c safe.Condition) error) *safe.Graph {
	t.Helper()
	s, saxpy := stream(t, x), kernel(t, x, "saxpy")
	g, err := s.Capture(func() error {
		if err := y.FillAsync(s, 1); err != nil {
			return err
		}
		c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: condition})
		if err != nil {
			return err
		}
		if err := add(s, c); err != nil {
			return err
		}
		return saxpy.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(float32(1000)), ones(t, x, 10).Arg(), y.Arg())
	})
	require.NoError(t, err)
	closing(t, g)
	return g
}

// TestCaptureConditional: conditional nodes stand between captured work. Their bodies are
// filled by hand and by captures on another stream, while the capture goes on.
func TestCaptureConditional(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	side, y, saxpy := stream(t, x), buffer[float32](t, x, 10), kernel(t, x, "saxpy")
	byHand := func(body *safe.Graph, v float32) error {
		_, err := body.Add(safe.FillNode(y, v))
		return err
	}
	captured := func(body *safe.Graph, v float32) error {
		return side.CaptureTo(body, safe.CaptureToOptions{}, func() error {
			if err := y.FillAsync(side, v-1); err != nil {
				return err
			}
			_, err := side.AddNode(saxpyWork(saxpy, 1, ones(t, x, 10), y))
			return err
		})
	}
	fills := map[string]func(*safe.Graph, float32) error{"by hand": byHand, "captured": captured}
	for _, test := range []struct {
		name      string
		condition uint32
		add       func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error)
		want      float32
	}{
		{"if", 1, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) {
			body, err := s.AddIf(c)
			return []*safe.Graph{body}, err
		}, 1010},
		{"if not", 0, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) {
			body, err := s.AddIf(c)
			return []*safe.Graph{body}, err
		}, 1001},
		{"else", 0, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) {
			then, otherwise, err := s.AddIfElse(c)
			return []*safe.Graph{then, otherwise}, err
		}, 1020},
		{"switch", 2, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) { return s.AddSwitch(c, 3) }, 1030},
		{"while not", 0, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) {
			body, err := s.AddWhile(c)
			return []*safe.Graph{body}, err
		}, 1001},
	} {
		for how, fill := range fills {
			t.Run(test.name+", "+how, func(t *testing.T) {
				if (test.name == "else" || test.name == "switch") && !supports(12080) {
					t.Skip("needs a driver for CUDA 12.8")
				}
				g := captureIf(t, x, y, test.condition, func(s *safe.Stream, c safe.Condition) error {
					bodies, err := test.add(s, c)
					for i := range bodies {
						err = errors.Join(err, fill(bodies[i], float32(10*(i+1))))
					}
					return err
				})
				_, err := g.Clone()
				assert.ErrorIs(t, err, safe.ErrConditional)
				e := executable(t, g)
				for range 2 {
					launch(t, e, side)
					assert.Equal(t, test.want, read(t, y))
				}
			})
		}
	}
}

// TestCaptureWhile captures a loop in the middle of captured work, with an if in its body.
// A kernel of the loop counts.
func TestCaptureWhile(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	s, side, inner := stream(t, x), stream(t, x), stream(t, x)
	y, left, saxpy, ones := buffer[float32](t, x, 10), buffer[uint32](t, x, 1), kernel(t, x, "saxpy"), ones(t, x, 10)
	m, err := safe.LoadFile(x, "testdata/condition.ptx")
	require.NoError(t, err)
	closing(t, m)
	condition, err := m.Kernel("condition")
	require.NoError(t, err)
	adds := func(s *safe.Stream, v float32) error {
		return saxpy.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(v), ones.Arg(), y.Arg())
	}
	g, err := s.Capture(func() error {
		require.NoError(t, y.FillAsync(s, 0))
		more, err := s.NewCondition(safe.ConditionOptions{})
		require.NoError(t, err)
		require.NoError(t, condition.Launch(s, one, more.Arg(), left.Arg()))
		body, err := s.AddWhile(more)
		require.NoError(t, err)
		require.NoError(t, side.CaptureTo(body, safe.CaptureToOptions{}, func() error {
			always, err := side.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
			require.NoError(t, err)
			then, err := side.AddIf(always)
			require.NoError(t, err)
			require.NoError(t, inner.CaptureTo(then, safe.CaptureToOptions{}, func() error { return adds(inner, 1) }))
			return condition.Launch(side, one, more.Arg(), left.Arg())
		}))
		return adds(s, 100)
	})
	require.NoError(t, err)
	closing(t, g)
	e := executable(t, g)
	for _, times := range []uint32{0, 1, 5} {
		require.NoError(t, left.CopyFromHost([]uint32{times}))
		launch(t, e, s)
		assert.EqualValues(t, 100+times, read(t, y))
	}
}

// TestCaptureConditionRefuses: errors of conditions in captures.
func TestCaptureConditionRefuses(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	s, other, y := stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	mine, err := newGraph(t, x).NewCondition(safe.ConditionOptions{})
	require.NoError(t, err)
	for name, call := range map[string]func(s *safe.Stream) error{
		"NewCondition": func(s *safe.Stream) error { _, err := s.NewCondition(safe.ConditionOptions{}); return err },
		"AddIf":        func(s *safe.Stream) error { _, err := s.AddIf(mine); return err },
		"AddIfElse":    func(s *safe.Stream) error { _, _, err := s.AddIfElse(mine); return err },
		"AddWhile":     func(s *safe.Stream) error { _, err := s.AddWhile(mine); return err },
		"AddSwitch":    func(s *safe.Stream) error { _, err := s.AddSwitch(mine, 2); return err },
	} {
		assert.ErrorIs(t, call(s), driver.CUDA_ERROR_ILLEGAL_STATE, name)
		assert.ErrorContains(t, call(s), "Stream."+name)
		assert.ErrorIs(t, call(nil), safe.ErrClosed, name)
	}
	g, err := s.Capture(func() error {
		_, err := s.AddIf(mine)
		assert.ErrorIs(t, err, safe.ErrForeignNode)
		_, err = s.AddWhile(safe.Condition{})
		assert.ErrorIs(t, err, safe.ErrForeignNode)
		c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
		require.NoError(t, err)
		_, err = s.AddSwitch(c, 0)
		assert.ErrorIs(t, err, safe.ErrRange)
		body, err := s.AddIf(c)
		require.NoError(t, err)
		assert.ErrorIs(t, s.CaptureTo(body, safe.CaptureToOptions{}, func() error { return nil }), safe.ErrCapturing, "s is taken")
		_, err = body.Instantiate()
		assert.ErrorIs(t, err, safe.ErrCapturing)
		_, err = body.Clone()
		assert.ErrorIs(t, err, safe.ErrCapturing)
		n, err := body.Add(safe.FillNode(y, 0))
		require.NoError(t, err)
		assert.ErrorIs(t, n.Destroy(), safe.ErrCapturing, "CUDA removes no nodes during a capture")
		_, err = newGraph(t, x).Add(safe.ChildGraphNode(body))
		assert.ErrorIs(t, err, safe.ErrConditional)
		require.NoError(t, n.Set(safe.FillNode(y, 7)))
		return other.CaptureTo(body, safe.CaptureToOptions{Dependencies: []safe.Node{n}}, func() error {
			_, err := body.Add(safe.EmptyNode())
			assert.ErrorIs(t, err, safe.ErrCapturing)
			assert.ErrorContains(t, err, "Stream.AddNode")
			return y.FillAsync(s, 8) // into the outer graph meanwhile
		})
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 2)
	launch(t, executable(t, g), s)
	assert.EqualValues(t, 8, read(t, y))
}

// TestCaptureAddNodeJoined: goroutines add nodes and capture work on streams of the same
// capture at once.
func TestCaptureAddNodeJoined(t *testing.T) {
	watch(t)
	x := open(t, 0)
	const streams, each = 4, 20
	s, saxpy, ones := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, 10)
	fork := event(t, x)
	var sides [streams]*safe.Stream
	var joins [streams]*safe.Event
	var sums [streams]*safe.Buffer[float32]
	for i := range sides {
		sides[i], joins[i], sums[i] = stream(t, x), event(t, x), buffer[float32](t, x, 10)
	}
	g, err := s.Capture(func() error {
		errs := make([]error, streams)
		require.NoError(t, s.Record(fork))
		var all sync.WaitGroup
		for i, side := range sides {
			require.NoError(t, side.WaitEvent(fork))
			all.Go(func() {
				errs[i] = sums[i].FillAsync(side, 0)
				for range each {
					_, err := side.AddNode(saxpyWork(saxpy, 1, ones, sums[i]))
					errs[i] = errors.Join(errs[i], err, saxpy.Launch(side, perValue(10), safe.Val(uint32(10)), safe.Val(float32(1)), ones.Arg(), sums[i].Arg()))
					runtime.Gosched()
				}
				errs[i] = errors.Join(errs[i], side.Record(joins[i]))
			})
		}
		all.Wait()
		for i := range joins {
			errs[i] = errors.Join(errs[i], s.WaitEvent(joins[i]))
		}
		return errors.Join(errs...)
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, streams*(1+2*each))
	launch(t, executable(t, g), s)
	for _, sum := range sums {
		assert.EqualValues(t, 2*each, read(t, sum))
	}
	noViolation(t)
}

// TestRecaptureAddNode: a recapture cannot add nodes.
func TestRecaptureAddNode(t *testing.T) {
	needs(t, "cuStreamBeginRecaptureToGraph")
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g, err := s.Capture(func() error { return y.FillAsync(s, 1) })
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, s.Recapture(g, safe.CaptureOptions{}, func() error {
		_, err := s.AddNode(safe.EmptyNode())
		assert.ErrorIs(t, err, safe.ErrCapturing)
		_, err = s.NewCondition(safe.ConditionOptions{})
		assert.ErrorIs(t, err, safe.ErrCapturing)
		return y.FillAsync(s, 2)
	}))
	launch(t, executable(t, g), s)
	assert.EqualValues(t, 2, read(t, y))
}
