//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Conditional nodes. Runs on any driver for CUDA 12.3 or newer.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConditional tests which bodies run for each initial value of the condition.
func TestConditional(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	if driver.Find("cuGraphConditionalHandleCreate") != nil {
		_, err := newGraph(t, x).NewCondition(safe.ConditionOptions{})
		require.ErrorIs(t, err, safe.ErrNotSupported)
		return
	}
	for _, test := range []struct {
		name      string
		condition uint32
		add       func(g *safe.Graph, c safe.Condition, after safe.Node) (safe.Node, []*safe.Graph, error)
		want      float32 // bodies add 1, 10, 100; 1000 is added at the end
	}{
		{"if", 1, addIf, 1001},
		{"if not", 0, addIf, 1000},
		{"if, else", 1, addIfElse, 1001},
		{"if not, else", 0, addIfElse, 1010},
		{"switch to the first", 0, addSwitch, 1001},
		{"switch to the last", 2, addSwitch, 1100},
		{"switch to none", 3, addSwitch, 1000},
		{"while not", 0, func(g *safe.Graph, c safe.Condition, after safe.Node) (safe.Node, []*safe.Graph, error) {
			n, body, err := g.AddWhile(c, after)
			return n, []*safe.Graph{body}, err
		}, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			saxpy, ones := kernel(t, x, "saxpy"), ones(t, x, 10)
			g := newGraph(t, x)
			c, err := g.NewCondition(safe.ConditionOptions{Assign: true, Default: test.condition})
			require.NoError(t, err)
			assert.NotZero(t, c.Raw())
			zeroed := addNode(t, g, safe.FillNode(y, 0))
			n, bodies, err := test.add(g, c, zeroed)
			if err != nil && test.name != "if" && !supports(12080) {
				t.Skip(err)
			}
			require.NoError(t, err)
			assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_CONDITIONAL, n.Type())
			for i, body := range bodies {
				addNode(t, body, saxpyWork(saxpy, []float32{1, 10, 100}[i], ones, y))
				require.NoError(t, body.Close(), "which does nothing")
			}
			addNode(t, g, saxpyWork(saxpy, 1000, ones, y), n)
			e := executable(t, g)
			for range 2 {
				launch(t, e, s)
				assert.Equal(t, test.want, read(t, y))
			}
			_, err = g.Instantiate()
			assert.ErrorIs(t, err, safe.ErrConditional)
			_, err = g.Clone()
			assert.ErrorIs(t, err, safe.ErrConditional)
			_, err = newGraph(t, x).Add(safe.ChildGraphNode(g))
			assert.ErrorIs(t, err, safe.ErrConditional)
			_, _, err = newGraph(t, x).AddIf(c)
			assert.ErrorIs(t, err, safe.ErrForeignNode)
		})
	}
	g := newGraph(t, x)
	_, _, err := g.AddIf(safe.Condition{})
	assert.ErrorIs(t, err, safe.ErrForeignNode)
	c, err := g.NewCondition(safe.ConditionOptions{})
	require.NoError(t, err)
	_, _, err = g.AddSwitch(c, 0)
	assert.ErrorIs(t, err, safe.ErrRange)
}

func addIf(g *safe.Graph, c safe.Condition, after safe.Node) (safe.Node, []*safe.Graph, error) {
	n, body, err := g.AddIf(c, after)
	return n, []*safe.Graph{body}, err
}

func addIfElse(g *safe.Graph, c safe.Condition, after safe.Node) (safe.Node, []*safe.Graph, error) {
	n, then, otherwise, err := g.AddIfElse(c, after)
	return n, []*safe.Graph{then, otherwise}, err
}

func addSwitch(g *safe.Graph, c safe.Condition, after safe.Node) (safe.Node, []*safe.Graph, error) {
	return g.AddSwitch(c, 3, after)
}

// supports tells whether the driver is for the given CUDA version or newer.
func supports(version int32) bool {
	var n int32
	return driver.CuDriverGetVersion(&n) == nil && n >= version
}

// TestConditionalCaptured fills a body by a capture.
func TestConditionalCaptured(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g := newGraph(t, x)
	c, err := g.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
	require.NoError(t, err)
	_, body, err := g.AddIf(c)
	require.NoError(t, err)
	require.NoError(t, s.CaptureTo(body, safe.CaptureToOptions{}, func() error { return y.FillAsync(s, 4) }))
	nodes, err := body.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 1)
	launch(t, executable(t, g), s)
	assert.EqualValues(t, 4, read(t, y))
}

// TestConditionSet tests conditions that kernels set.
func TestConditionSet(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	s, y, saxpy, ones := stream(t, x), buffer[float32](t, x, 10), kernel(t, x, "saxpy"), ones(t, x, 10)
	m, err := safe.LoadFile(x, "testdata/condition.ptx")
	require.NoError(t, err)
	closing(t, m)
	condition, err := m.Kernel("condition")
	require.NoError(t, err)
	left := buffer[uint32](t, x, 1)

	g := newGraph(t, x)
	c, err := g.NewCondition(safe.ConditionOptions{})
	require.NoError(t, err)
	count := safe.KernelNode(condition, one, c.Arg(), left.Arg())
	first := addNode(t, g, count, addNode(t, g, safe.FillNode(y, 0)))
	_, body, err := g.AddWhile(c, first)
	require.NoError(t, err)
	addNode(t, body, count, addNode(t, body, saxpyWork(saxpy, 1, ones, y)))
	e := executable(t, g)
	for _, times := range []uint32{0, 1, 5} {
		require.NoError(t, left.CopyFromHost([]uint32{times}))
		launch(t, e, s)
		assert.EqualValues(t, times, read(t, y))
	}
}
