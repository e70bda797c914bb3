//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A graph of four nodes: the kernel waits for a copy and a fill, which may run at the same
// time, and another copy waits for the kernel.
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

// One node of an executable is changed before the launch.
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

// A graph is added to another as two child nodes.
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

// The graph allocates and frees the temporary memory of its nodes.
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

// Inspect the nodes of a graph: each type has its own parameters.
func ExampleNode_Params() {
	_, err := withLine([]float32{1, 2, 3}, func(l *line) error {
		if _, err := l.add(10); err != nil {
			return err
		}
		nodes, err := l.graph.Nodes()
		if err != nil {
			return err
		}
		for _, n := range nodes {
			text, err := parameters(n)
			if err != nil {
				return err
			}
			fmt.Println(text)
		}
		return nil
	})
	fmt.Println(err)
	// Unordered output:
	// copy of 12 bytes
	// fill of 3 elements
	// kernel with 1 block of 256 threads
	// copy of 12 bytes
	// <nil>
}

// parameters describes a node by its parameters.
func parameters(n safe.Node) (string, error) {
	p, err := n.Params()
	switch n.Type() {
	case driver.CU_GRAPH_NODE_TYPE_KERNEL:
		k := p.Kernel()
		return fmt.Sprintf("kernel with %d block of %d threads", k.GridDimX, k.BlockDimX), err
	case driver.CU_GRAPH_NODE_TYPE_MEMCPY:
		c := p.Memcpy().CopyParams
		return fmt.Sprintf("copy of %d bytes", c.WidthInBytes*c.Height*c.Depth), err
	case driver.CU_GRAPH_NODE_TYPE_MEMSET:
		f := p.Memset()
		return fmt.Sprintf("fill of %d elements", f.Width*f.Height), err
	}
	return n.Type().String(), err
}

// List the nodes of a graph.
func ExampleGraph_Nodes() {
	_, err := withLine([]float32{1, 2, 3}, func(l *line) error {
		if _, err := l.add(10); err != nil {
			return err
		}
		lines, err := describe(l.graph)
		for _, text := range lines {
			fmt.Println(text)
		}
		return err
	})
	fmt.Println(err)
	// Unordered output:
	// CU_GRAPH_NODE_TYPE_MEMCPY: 0 dependencies
	// CU_GRAPH_NODE_TYPE_MEMSET: 0 dependencies
	// CU_GRAPH_NODE_TYPE_KERNEL: 2 dependencies
	// CU_GRAPH_NODE_TYPE_MEMCPY: 1 dependencies
	// <nil>
}

// A line has the objects of the graph examples, which compute out = factor * in + 1 and
// similar.
type line struct {
	x       *safe.Context
	graph   *safe.Graph
	stream  *safe.Stream
	saxpy   *safe.Kernel // y += a * x
	in, out *safe.Pinned[float32]
	u, v    *safe.Buffer[float32]
}

// add adds nodes that compute out = factor * in + 1. It returns the kernel node.
func (l *line) add(factor float32) (scaled safe.Node, err error) {
	copied, err := l.graph.Add(safe.CopyNode(l.u, l.in))
	if err != nil {
		return scaled, err
	}
	filled, err := l.graph.Add(safe.FillNode(l.v, 1)) // independent of the copy
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

// scale returns a node for v += factor * u.
func (l *line) scale(factor float32) safe.NodeParams {
	n := l.u.Len()
	cfg := safe.LaunchConfig{Grid: safe.Blocks(n, 256), Block: safe.Dim{X: 256}}
	return safe.KernelNode(l.saxpy, cfg, safe.Val(uint32(n)), safe.Val(factor), l.u.Arg(), l.v.Arg())
}

// once instantiates the graph and launches it.
func (l *line) once() error {
	exec, err := l.graph.Instantiate()
	if err != nil {
		return err
	}
	defer exec.Close()
	return l.replay(exec)
}

// replay launches an executable and waits for it.
func (l *line) replay(exec *safe.GraphExec) error {
	if err := exec.Launch(l.stream); err != nil {
		return err
	}
	return l.stream.Synchronize()
}

// retune launches an executable with another factor. scaled is the kernel node of the graph
// that it was instantiated from.
func (l *line) retune(exec *safe.GraphExec, scaled safe.Node, factor float32) error {
	if err := exec.Set(scaled, l.scale(factor)); err != nil {
		return err
	}
	return l.replay(exec)
}

// addTwice adds a graph as two child nodes, one after the other, between copies.
func (l *line) addTwice(child *safe.Graph) error {
	copied, err := l.graph.Add(safe.CopyNode(l.u, l.in))
	if err != nil {
		return err
	}
	zeroed, err := l.graph.Add(safe.FillNode(l.v, 0))
	if err != nil {
		return err
	}
	first, err := l.graph.Add(safe.ChildGraphNode(child), copied, zeroed)
	if err != nil {
		return err
	}
	second, err := l.graph.Add(safe.ChildGraphNode(child), first)
	if err != nil {
		return err
	}
	_, err = l.graph.Add(safe.CopyNode(l.out, l.v), second)
	return err
}

// addOwnMemory adds nodes that compute out = factor * in with memory that is allocated only
// while the graph runs.
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
	zeroed, err := l.graph.Add(safe.FillNode(l.v, 0))
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

// describe lists the type of each node, and how many nodes it depends on.
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
		lines = append(lines, fmt.Sprintf("%v: %d dependencies", n.Type(), len(before)))
	}
	return lines, nil
}

// withLine creates a line for the values, calls f, and returns the content of out.
func withLine(in []float32, f func(*line) error) ([]float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	l := &line{x: x}
	module, err := safe.LoadFile(x, "testdata/kernels.ptx")
	if err != nil {
		return nil, err
	}
	defer module.Close()
	if l.saxpy, err = module.Kernel("saxpy"); err != nil {
		return nil, err
	}
	if l.stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	defer l.stream.Close()
	for _, h := range []**safe.Pinned[float32]{&l.in, &l.out} {
		if *h, err = safe.NewPinned[float32](x, len(in)); err != nil {
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
