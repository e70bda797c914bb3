package main

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// builds are of graphs made by hand, of kernels with 3 arguments, each after the
// one before. All times are those of a whole graph: to build it and to destroy it,
// to make an executable of it and to destroy that, to update the executable by
// another graph, to set each of its nodes, and to launch it and wait.
var builds = group{
	name: "graph build",
	columns: []string{
		"build µs", "instantiate µs", "update µs", "set µs", "replay µs",
		"build/C", "instantiate/C", "update/C", "set/C", "replay/C",
	},
	plot: []string{"build/C", "instantiate/C", "update/C", "set/C", "replay/C"},
	run:  buildAll,
}

func buildAll(g *gpu, e effort) ([]*line, error) {
	var lines []*line
	for _, kernels := range []int{1, 10, 100, 1000} {
		c := &chain{g: g, kernels: kernels}
		more, err := c.measure(e)
		if err := errors.Join(err, c.close()); err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// chain is what there is of a number of kernels.
type chain struct {
	g       *gpu
	kernels int
	graphs  [2]*safe.Graph // alike
	exec    *safe.GraphExec
	nodes   []safe.Node // of the first graph
	handles []driver.CUgraphNode

	// For calls of package driver.
	pin     runtime.Pinner
	address driver.CUdeviceptr
	count   uint32
	value   float32
	args    [3]unsafe.Pointer
	params  driver.CUDA_KERNEL_NODE_PARAMS
}

func (c *chain) measure(e effort) ([]*line, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	lines := threeWays(kernelsName(c.kernels))
	x := uintptr(c.exec.Raw())
	first, second := uintptr(c.graphs[0].Raw()), uintptr(c.graphs[1].Raw())
	replay := replayed(c.g, c.exec)
	replay.name = "replay"
	for _, r := range []struct {
		row
		of   int // graphs in one operation
		most float64
	}{
		{c.buildRow(c.buildSafe), 1, 1.3},
		{row{
			name: "instantiate", raw: times(c.instantiateRaw), safe: times(c.instantiateSafe),
			c: loop(cloop.GraphInstantiate, c.g.fn("cuGraphInstantiateWithFlags"), c.g.fn("cuGraphExecDestroy"), first),
		}, 1, 1.3},
		{row{
			name: "update", raw: times(c.updateRaw), safe: times(c.updateSafe),
			c: loop(cloop.GraphUpdate, c.g.fn("cuGraphExecUpdate_v2"), x, second, first),
		}, 2, 1.3},
		{c.setRow(c.setSafe), 1, 1.3},
		{replay, 1, 1.05},
	} {
		if c.g.missing != nil {
			return nil, c.g.missing
		}
		if err := e.compare(lines, &r.row, r.of, r.most); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", r.name, lines[0].Case, err)
		}
	}
	return lines, nil
}

// buildRow builds the graph in one of the ways of package safe.
func (c *chain) buildRow(ours func() error) row {
	return row{
		name: "build", raw: times(c.buildRaw), safe: times(ours),
		c: loop(cloop.GraphBuild, c.g.fn("cuGraphCreate"), c.g.fn("cuGraphAddKernelNode_v2"), c.g.fn("cuGraphDestroy"),
			uintptr(c.g.three.Raw()), uintptr(c.address), uintptr(c.kernels)),
	}
}

// setRow sets all nodes of the executable in one of the ways of package safe.
func (c *chain) setRow(ours func() error) row {
	return row{
		name: "set", raw: times(c.setRaw), safe: times(ours),
		c: loop(cloop.GraphSet, c.g.fn("cuGraphExecKernelNodeSetParams_v2"),
			uintptr(c.exec.Raw()), uintptr(c.g.three.Raw()), uintptr(c.address), uintptr(unsafe.Pointer(&c.handles[0])), uintptr(c.kernels)),
	}
}

func (c *chain) open() (err error) {
	for i := range c.graphs {
		if c.graphs[i], err = c.build(); err != nil {
			return err
		}
	}
	if c.exec, err = c.graphs[0].Instantiate(); err != nil {
		return err
	}
	if c.nodes, err = c.graphs[0].Nodes(); err != nil {
		return err
	}
	for _, n := range c.nodes {
		c.handles = append(c.handles, n.Raw())
	}
	c.pin.Pin(&c.handles[0])
	c.pin.Pin(c)
	c.address, c.value = c.g.memory.Raw(), 2
	c.args = [...]unsafe.Pointer{unsafe.Pointer(&c.address), unsafe.Pointer(&c.count), unsafe.Pointer(&c.value)}
	c.params = driver.CUDA_KERNEL_NODE_PARAMS{
		Func: c.g.three.Raw(), GridDimX: 1, GridDimY: 1, GridDimZ: 1, BlockDimX: 1, BlockDimY: 1, BlockDimZ: 1, KernelParams: &c.args[0],
	}
	return nil
}

func (c *chain) close() error {
	c.pin.Unpin()
	return errors.Join(c.exec.Close(), c.graphs[0].Close(), c.graphs[1].Close())
}

// work returns the parameters of node i.
func (c *chain) work(i int) safe.NodeParams {
	return safe.KernelNode(c.g.three, one, c.g.memory.Arg(), safe.Val(uint32(i)), safe.Val(float32(2)))
}

func (c *chain) build() (*safe.Graph, error) {
	graph, err := safe.NewGraph(c.g.ctx)
	var last [1]safe.Node
	for i := 0; i < c.kernels && err == nil; i++ {
		last[0], err = graph.Add(c.work(i), last[:min(i, 1)]...)
	}
	if err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return graph, nil
}

func (c *chain) buildSafe() error {
	graph, err := c.build()
	if err != nil {
		return err
	}
	return graph.Close()
}

func (c *chain) buildRaw() error {
	var graph driver.CUgraph
	if err := driver.CuGraphCreate(&graph, 0); err != nil {
		return err
	}
	var err error
	var node driver.CUgraphNode
	for i := 0; i < c.kernels && err == nil; i++ {
		last := node
		c.count = uint32(i)
		err = driver.CuGraphAddKernelNode(&node, graph, &last, uint64(min(i, 1)), &c.params)
	}
	return errors.Join(err, driver.CuGraphDestroy(graph))
}

func (c *chain) instantiateSafe() error {
	x, err := c.graphs[0].Instantiate()
	if err != nil {
		return err
	}
	return x.Close()
}

func (c *chain) instantiateRaw() error {
	var x driver.CUgraphExec
	if err := driver.CuGraphInstantiateWithFlags(&x, c.graphs[0].Raw(), 0); err != nil {
		return err
	}
	return driver.CuGraphExecDestroy(x)
}

// updateSafe ends, as the other ways do, with the first graph.
func (c *chain) updateSafe() error {
	if err := c.exec.Update(c.graphs[1]); err != nil {
		return err
	}
	return c.exec.Update(c.graphs[0])
}

func (c *chain) updateRaw() error {
	var info driver.CUgraphExecUpdateResultInfo
	if err := driver.CuGraphExecUpdate(c.exec.Raw(), c.graphs[1].Raw(), &info); err != nil {
		return err
	}
	return driver.CuGraphExecUpdate(c.exec.Raw(), c.graphs[0].Raw(), &info)
}

func (c *chain) setSafe() error {
	for i, n := range c.nodes {
		if err := c.exec.Set(n, c.work(i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) setRaw() error {
	for i, n := range c.handles {
		c.count = uint32(i)
		if err := driver.CuGraphExecKernelNodeSetParams(c.exec.Raw(), n, &c.params); err != nil {
			return err
		}
	}
	return nil
}
