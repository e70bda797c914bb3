//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/cuda/safe"
)

// A graph is made of nodes, and of which node waits for which. Copy and fill do
// not wait for each other.
func ExampleGraph_Add() {
	out, err := withLine([]float32{1, 2, 3}, func(l *line) error {
		if _, err := l.add(10); err != nil {
			return err
		}
		return l.once()
	})
	fmt.Println(out, err)
	// Output: [11 21 31] <nil>
}

// An executable is changed in one node, and launched again.
func ExampleGraphExec_Set() {
	out, err := withLine([]float32{1, 2, 3}, func(l *line) error {
		scaled, err := l.add(10)
		if err != nil {
			return err
		}
		exec, err := l.graph.Instantiate()
		if err != nil {
			return err
		}
		defer exec.Close()
		return l.retune(exec, scaled, 100)
	})
	fmt.Println(out, err)
	// Output: [101 201 301] <nil>
}

// A graph becomes a node of another, here two.
func ExampleChildGraphNode() {
	out, err := withLine([]float32{1, 2, 3}, func(l *line) error {
		scale, err := safe.NewGraph(l.x)
		if err != nil {
			return err
		}
		defer scale.Close()
		if _, err := scale.Add(l.scale(10)); err != nil {
			return err
		}
		if err := l.addTwice(scale); err != nil {
			return err
		}
		return l.once()
	})
	fmt.Println(out, err)
	// Output: [20 40 60] <nil>
}

// Memory that a graph needs for itself is allocated by the graph.
func ExampleAddAlloc() {
	out, err := withLine([]float32{1, 2, 3}, func(l *line) error {
		if err := l.addOwnMemory(10); err != nil {
			return err
		}
		return l.once()
	})
	fmt.Println(out, err)
	// Output: [10 20 30] <nil>
}

// What a graph is made of can be listed, and drawn.
func ExampleGraph_SVG() {
	_, err := withLine([]float32{1, 2, 3}, func(l *line) error {
		if _, err := l.add(10); err != nil {
			return err
		}
		lines, err := describe(l.graph)
		if err != nil {
			return err
		}
		for _, said := range lines {
			fmt.Println(said)
		}
		drawn, err := l.graph.SVG() // for a file, or a page
		fmt.Println(strings.Count(drawn, "<rect"), "boxes")
		return err
	})
	fmt.Println(err)
	// Unordered output:
	// CU_GRAPH_NODE_TYPE_MEMCPY waits for 0, has 1 behind it
	// CU_GRAPH_NODE_TYPE_MEMSET waits for 0, has 1 behind it
	// CU_GRAPH_NODE_TYPE_KERNEL waits for 2, has 1 behind it
	// CU_GRAPH_NODE_TYPE_MEMCPY waits for 1, has 0 behind it
	// 4 boxes
	// <nil>
}

// A line is what the examples of graphs work with: factor * in + 1, and the like.
type line struct {
	x       *safe.Context
	graph   *safe.Graph
	stream  *safe.Stream
	saxpy   *safe.Kernel // y += a * x
	in, out *safe.Pinned[float32]
	u, v    *safe.Buffer[float32]
}

// add adds nodes that make out = factor * in + 1. The kernel's is returned.
func (l *line) add(factor float32) (scaled safe.Node, err error) {
	copied, err := l.graph.Add(safe.CopyNode(l.u, l.in))
	if err != nil {
		return scaled, err
	}
	filled, err := l.graph.Add(safe.FillNode(l.v, 1)) // does not wait for the copy
	if err != nil {
		return scaled, err
	}
	scaled, err = l.graph.Add(l.scale(factor), copied, filled)
	if err != nil {
		return scaled, err
	}
	_, err = l.graph.Add(safe.CopyNode(l.out, l.v), scaled)
	return scaled, err
}

// scale is v += factor * u.
func (l *line) scale(factor float32) safe.NodeParams {
	n := l.u.Len()
	cfg := safe.LaunchConfig{Grid: safe.Blocks(n, 256), Block: safe.Dim{X: 256}}
	return safe.KernelNode(l.saxpy, cfg, safe.Val(uint32(n)), safe.Val(factor), l.u.Arg(), l.v.Arg())
}

// once makes an executable of the graph, and launches that.
func (l *line) once() error {
	exec, err := l.graph.Instantiate()
	if err != nil {
		return err
	}
	defer exec.Close()
	return l.replay(exec)
}

// replay launches an executable, and waits for it.
func (l *line) replay(exec *safe.GraphExec) error {
	if err := exec.Launch(l.stream); err != nil {
		return err
	}
	return l.stream.Synchronize()
}

// retune replays an executable with another factor. scaled is a node of the graph
// that it was made of.
func (l *line) retune(exec *safe.GraphExec, scaled safe.Node, factor float32) error {
	if err := exec.Set(scaled, l.scale(factor)); err != nil {
		return err
	}
	return l.replay(exec)
}

// addTwice adds all of a graph two times, one behind the other, between copies.
func (l *line) addTwice(part *safe.Graph) error {
	copied, err := l.graph.Add(safe.CopyNode(l.u, l.in))
	if err != nil {
		return err
	}
	zeroed, err := l.graph.Add(safe.ZeroNode(l.v))
	if err != nil {
		return err
	}
	first, err := l.graph.Add(safe.ChildGraphNode(part), copied, zeroed)
	if err != nil {
		return err
	}
	second, err := l.graph.Add(safe.ChildGraphNode(part), first)
	if err != nil {
		return err
	}
	_, err = l.graph.Add(safe.CopyNode(l.out, l.v), second)
	return err
}

// addOwnMemory adds nodes that make out = factor * in, by way of memory that is there
// only while the graph runs.
func (l *line) addOwnMemory(factor float32) error {
	n := l.in.Len()
	own, allocated, err := safe.AddAlloc[float32](l.graph, n)
	if err != nil {
		return err
	}
	copied, err := l.graph.Add(safe.CopyNode(own, l.in), allocated)
	if err != nil {
		return err
	}
	zeroed, err := l.graph.Add(safe.ZeroNode(l.v))
	if err != nil {
		return err
	}
	cfg := safe.LaunchConfig{Grid: safe.Blocks(n, 256), Block: safe.Dim{X: 256}}
	scaled, err := l.graph.Add(safe.KernelNode(l.saxpy, cfg, safe.Val(uint32(n)), safe.Val(factor), own.Arg(), l.v.Arg()), copied, zeroed)
	if err != nil {
		return err
	}
	if _, err := l.graph.Add(safe.FreeNode(own), scaled); err != nil {
		return err
	}
	_, err = l.graph.Add(safe.CopyNode(l.out, l.v), scaled)
	return err
}

// describe says of each node what it does, and how many others it waits for.
func describe(g *safe.Graph) (lines []string, err error) {
	nodes, err := g.Nodes()
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		before, err := n.Dependencies()
		if err != nil {
			return nil, err
		}
		behind, err := n.Dependents()
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%v waits for %d, has %d behind it", n.Type(), len(before), len(behind)))
	}
	return lines, nil
}

// withLine calls f for these values, and returns what is in out then.
func withLine(in []float32, f func(*line) error) ([]float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	l := &line{x: x}
	module, err := safe.LoadFile(x, "testdata/kernels.ptx", safe.LoadOptions{})
	if err != nil {
		return nil, err
	}
	defer module.Close()
	if l.saxpy, err = module.Kernel("saxpy"); err != nil {
		return nil, err
	}
	if l.stream, err = safe.NewStream(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	defer l.stream.Close()
	for _, h := range []**safe.Pinned[float32]{&l.in, &l.out} {
		if *h, err = safe.NewPinned[float32](x, len(in), safe.PinnedOptions{}); err != nil {
			return nil, err
		}
		defer (*h).Close()
	}
	for _, b := range []**safe.Buffer[float32]{&l.u, &l.v} {
		if *b, err = safe.NewBuffer[float32](x, len(in)); err != nil {
			return nil, err
		}
		defer (*b).Close()
	}
	if l.graph, err = safe.NewGraph(x); err != nil {
		return nil, err
	}
	defer l.graph.Close()
	copy(l.in.Data(), in)
	if err := f(l); err != nil {
		return nil, err
	}
	return slices.Clone(l.out.Data()), nil
}
