package main

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// rawNode is what a node of a chain launches.
type rawNode struct {
	address driver.CUdeviceptr
	count   uint32
	value   float32
	args    [3]unsafe.Pointer
	params  driver.CUDA_KERNEL_NODE_PARAMS
}

// rawChain is two graphs of as many kernels, each after the one before, and
// executables.
type rawChain struct {
	kernels int
	graphs  [2]driver.CUgraph
	exec    driver.CUgraphExec   // to change
	fresh   driver.CUgraphExec   // to launch
	nodes   []driver.CUgraphNode // of the first graph
}

func (r *raw) graphItems() map[string]item {
	n := &rawNode{address: r.memory, count: 1, value: 2}
	r.pin.Pin(n)
	n.args = [...]unsafe.Pointer{unsafe.Pointer(&n.address), unsafe.Pointer(&n.count), unsafe.Pointer(&n.value)}
	n.params = driver.CUDA_KERNEL_NODE_PARAMS{
		Func: r.three, GridDimX: 1, GridDimY: 1, GridDimZ: 1, BlockDimX: 1, BlockDimY: 1, BlockDimZ: 1, KernelParams: &n.args[0],
	}
	r.node = n
	with := func(f func(c *rawChain)) item {
		return item{prepare: func(kernels int) func() {
			r.prepare(kernels)
			return func() { f(&r.chain) }
		}}
	}
	launch := with(func(c *rawChain) { check(driver.CuGraphLaunch(c.fresh, r.stream)) })
	launch.queue = graphQueue
	return map[string]item{
		"graph_empty":   always(func() { check(driver.CuGraphDestroy(r.build(0, nil))) }),
		"graph_build":   with(func(c *rawChain) { check(driver.CuGraphDestroy(r.build(c.kernels, nil))) }),
		"graph_inst":    with(func(c *rawChain) { check(driver.CuGraphExecDestroy(instantiateRaw(c.graphs[0]))) }),
		"graph_capture": {prepare: r.capture},
		"graph_update":  with(updateRaw),
		"graph_set": with(func(c *rawChain) {
			for _, n := range c.nodes {
				check(driver.CuGraphExecKernelNodeSetParams(c.exec, n, &r.node.params))
			}
		}),
		"graph_node_set": with(func(c *rawChain) {
			for _, n := range c.nodes {
				check(driver.CuGraphKernelNodeSetParams(n, &r.node.params))
			}
		}),
		"graph_launch": launch,
		"graph_wait": with(func(c *rawChain) {
			check(driver.CuGraphLaunch(c.fresh, r.stream))
			check(driver.CuStreamSynchronize(r.stream))
		}),
	}
}

// graphQueue is how many launches of a graph of so many kernels a stream gets before it is waited
// for.
func graphQueue(kernels int) int { return max(4, queue/kernels) }

func (r *raw) prepare(kernels int) {
	c := &r.chain
	if c.kernels == kernels {
		return
	}
	if c.kernels > 0 {
		check(driver.CuGraphExecDestroy(c.exec))
		check(driver.CuGraphExecDestroy(c.fresh))
		check(driver.CuGraphDestroy(c.graphs[0]))
		check(driver.CuGraphDestroy(c.graphs[1]))
	}
	c.kernels, c.nodes = kernels, make([]driver.CUgraphNode, kernels)
	c.graphs[0], c.graphs[1] = r.build(kernels, c.nodes), r.build(kernels, nil)
	c.exec, c.fresh = instantiateRaw(c.graphs[0]), instantiateRaw(c.graphs[0])
}

// build fills out with the nodes, unless it is nil.
func (r *raw) build(kernels int, out []driver.CUgraphNode) (g driver.CUgraph) {
	check(driver.CuGraphCreate(&g, 0))
	var node driver.CUgraphNode
	for i := range kernels {
		last := node
		check(driver.CuGraphAddKernelNode(&node, g, &last, uint64(min(i, 1)), &r.node.params))
		if out != nil {
			out[i] = node
		}
	}
	return g
}

func instantiateRaw(g driver.CUgraph) (x driver.CUgraphExec) {
	check(driver.CuGraphInstantiateWithFlags(&x, g, 0))
	return x
}

func (r *raw) capture(kernels int) func() {
	return func() {
		check(driver.CuStreamBeginCapture(r.stream, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
		for range kernels {
			r.launch3()
		}
		var g driver.CUgraph
		check(driver.CuStreamEndCapture(r.stream, &g))
		check(driver.CuGraphExecDestroy(instantiateRaw(g)))
		check(driver.CuGraphDestroy(g))
	}
}

func updateRaw(c *rawChain) {
	var info driver.CUgraphExecUpdateResultInfo
	check(driver.CuGraphExecUpdate(c.exec, c.graphs[1], &info))
}
