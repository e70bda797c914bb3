package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/safe"
)

// bulkBuilds are the same graphs as those of builds, made and set by one call of package safe
// for all nodes.
var bulkBuilds = group{
	name:    "graph build in bulk",
	columns: []string{"build µs", "set µs", "build/C", "set/C"},
	plot:    []string{"build/C", "set/C"},
	run:     buildInBulk,
}

func buildInBulk(g *gpu, e effort) ([]*line, error) {
	var lines []*line
	for _, size := range []struct {
		kernels int
		most    float64 // of C's time
	}{{10, 1.5}, {100, 1.15}, {1000, 1}} {
		c := &chain{g: g, kernels: size.kernels}
		more, err := c.measureInBulk(e, size.most)
		if err := errors.Join(err, c.close()); err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func (c *chain) measureInBulk(e effort, most float64) ([]*line, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	lines := threeWays(kernelsName(c.kernels))
	specs, changes := make([]safe.NodeSpec, c.kernels), make([]safe.NodeChange, c.kernels)
	for i, n := range c.nodes {
		changes[i].Node = n
		if i > 0 {
			specs[i].After = []int{i - 1}
		}
	}
	build, set := c.buildRow(func() error { return c.addAll(specs) }), c.setRow(func() error { return c.setAll(changes) })
	for _, r := range []*row{&build, &set} {
		if c.g.missing != nil {
			return nil, c.g.missing
		}
		if err := e.compare(lines, r, 1, most); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

func (c *chain) addAll(specs []safe.NodeSpec) error {
	graph, err := safe.NewGraph(c.g.ctx)
	if err != nil {
		return err
	}
	for i := range specs {
		specs[i].Params = c.work(i)
	}
	_, err = graph.AddAll(specs...)
	return errors.Join(err, graph.Close())
}

func (c *chain) setAll(changes []safe.NodeChange) error {
	for i := range changes {
		changes[i].Params = c.work(i)
	}
	return c.exec.SetAll(changes...)
}
