//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Functions that docs/graphs.md shows and that no sample has.

// overlap adds a programmatic dependency: the kernel of node second starts when the
// blocks of first allow it, instead of after first has completed. Kernel second waits
// for the data it needs itself, with griddepcontrol.wait of PTX.
func overlap(g *safe.Graph, first, second safe.Node) error {
	early := driver.CUgraphEdgeData{
		From_port: driver.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
		Type:      uint8(driver.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC),
	}
	return g.AddEdges(safe.Edge{From: first, To: second, Data: early})
}

// without launches an executable once with a node disabled.
func without(exec *safe.GraphExec, n safe.Node, s *safe.Stream) error {
	if err := exec.SetEnabled(n, false); err != nil {
		return err
	}
	err := exec.Launch(s) // enabling the node again does not change this launch
	return errors.Join(err, exec.SetEnabled(n, true))
}

func TestGraphGuide(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	defer x.Close()
	m, err := safe.Load(x, kernels)
	require.NoError(t, err)
	defer m.Close()
	sum, err := m.Kernel("sum")
	require.NoError(t, err)
	streams, err := newStreams(x, 1)
	require.NoError(t, err)
	defer closeAll(streams)
	b, err := safe.NewBuffer[float32](x, 1)
	require.NoError(t, err)
	defer b.Close()
	value := func() float32 {
		t.Helper()
		var got [1]float32
		require.NoError(t, b.CopyToHost(got[:]))
		return got[0]
	}

	t.Run("edges", func(t *testing.T) {
		g, err := safe.NewGraph(x)
		require.NoError(t, err)
		defer g.Close()
		var nodes [2]safe.Node
		for i := range nodes {
			nodes[i], err = g.Add(safe.KernelNode(sum, one, b.Arg(), b.Arg(), safe.Val(uint32(1))))
			require.NoError(t, err)
		}
		err = overlap(g, nodes[0], nodes[1])
		if errors.Is(err, safe.ErrNotSupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		edges, err := g.Edges()
		require.NoError(t, err)
		require.Len(t, edges, 1)
		assert.EqualValues(t, driver.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, edges[0].Data.Type)
		exec, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, exec.Close())
	})
	t.Run("left out", func(t *testing.T) {
		g, err := safe.NewGraph(x)
		require.NoError(t, err)
		defer g.Close()
		first, err := g.Add(safe.FillNode(b, 1))
		require.NoError(t, err)
		two, err := safe.NewBuffer[float32](x, 1)
		require.NoError(t, err)
		defer two.Close()
		require.NoError(t, two.Fill(2))
		second, err := g.Add(safe.CopyNode[float32](b, two), first)
		require.NoError(t, err)
		exec, err := g.Instantiate()
		require.NoError(t, err)
		defer exec.Close()
		require.NoError(t, without(exec, second, streams[0]))
		assert.EqualValues(t, 1, value())
		require.NoError(t, exec.Launch(streams[0]))
		assert.EqualValues(t, 2, value())
	})
}
