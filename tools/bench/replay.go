package main

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// replays are of captured graphs: the launch alone, and with the wait for its
// end.
var replays = group{
	name:    "graph replay",
	columns: []string{"launch µs", "launch + wait µs", "launch/C", "launch + wait/C"},
	plot:    []string{"launch µs", "launch/C", "launch + wait/C"},
	run:     replay,
}

func replay(g *gpu, e effort) ([]*line, error) {
	var lines []*line
	for _, kernels := range []int{1, 10, 100} {
		graph, err := g.stream.CaptureExecutable(func() error {
			return times(func() error { return g.nothing.Launch(g.stream, one) })(kernels)
		})
		if err != nil {
			return nil, err
		}
		defer graph.Close()
		more := threeWays(kernelsName(kernels))
		launch, wait := launched(g, graph, kernels), replayed(g, graph)
		for _, r := range []*row{&launch, &wait} {
			if err := e.compare(more, r, 1, 1.05); err != nil {
				return nil, err
			}
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func kernelsName(n int) string {
	if n == 1 {
		return "1 kernel"
	}
	return fmt.Sprintf("%d kernels", n)
}

// launched is the launch of a graph of so many kernels.
func launched(g *gpu, graph *safe.GraphExec, kernels int) row {
	return row{
		name: "launch", batch: max(1, queue/kernels), prepare: g.idle,
		c:    loop(cloop.GraphLaunch, g.fn("cuGraphLaunch"), uintptr(graph.Raw()), uintptr(g.stream.Raw())),
		raw:  times(func() error { return driver.CuGraphLaunch(graph.Raw(), g.stream.Raw()) }),
		safe: times(func() error { return graph.Launch(g.stream) }),
	}
}

// replayed is the launch of a graph, and the wait for its end.
func replayed(g *gpu, graph *safe.GraphExec) row {
	return row{
		name: "launch + wait", prepare: g.idle,
		c:    loop(cloop.GraphAndWait, g.fn("cuGraphLaunch"), g.fn("cuStreamSynchronize"), uintptr(graph.Raw()), uintptr(g.stream.Raw())),
		raw:  then(func() error { return driver.CuGraphLaunch(graph.Raw(), g.stream.Raw()) }, g.synchronizeRaw),
		safe: then(func() error { return graph.Launch(g.stream) }, g.stream.Synchronize),
	}
}

// threeWays are the lines that compare fills.
func threeWays(name string) []*line {
	return []*line{newLine(name, "C"), newLine(name, "raw"), newLine(name, "safe")}
}

// compare measures a row by the meter of the rows. It fills a column with the time
// of one of the parts that an operation has, and one with the share of C's, which
// for the safe way should not be above most.
func (e effort) compare(lines []*line, r *row, parts int, most float64) error {
	result, err := e.meter.measure(r)
	if err != nil {
		return err
	}
	for i, f := range []*figures{result.C, result.Raw, result.Safe} {
		lines[i].Values[r.name+" µs"] = f.Median / 1000 / float64(parts)
		lines[i].ratio(r.name+"/C", r.name+" µs", lines[0])
	}
	lines[2].atMost(r.name+"/C", most)
	return nil
}
