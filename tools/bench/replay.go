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
		graph, err := g.stream.CaptureExecutable(driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 0, func() error {
			return times(func() error { return g.nothing.Launch(g.stream, one) })(kernels)
		})
		if err != nil {
			return nil, err
		}
		defer graph.Close()
		more, err := replaysOf(g, e, graph, kernels)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// replaysOf measures the replays of a graph by the meter of the rows.
func replaysOf(g *gpu, e effort, graph *safe.GraphExec, kernels int) ([]*line, error) {
	fn, synchronize := g.fn("cuGraphLaunch"), g.fn("cuStreamSynchronize")
	x, s := uintptr(graph.Raw()), uintptr(g.stream.Raw())
	raw := func() error { return driver.CuGraphLaunch(graph.Raw(), g.stream.Raw()) }
	own := func() error { return graph.Launch(g.stream) }
	name := "1 kernel"
	if kernels > 1 {
		name = fmt.Sprintf("%d kernels", kernels)
	}
	lines := []*line{newLine(name, "C"), newLine(name, "raw"), newLine(name, "safe")}
	for _, r := range []row{
		{
			name: "launch", batch: max(1, queue/kernels), prepare: g.idle,
			c: loop(cloop.GraphLaunch, fn, x, s), raw: times(raw), safe: times(own),
		},
		{
			name: "launch + wait", prepare: g.idle,
			c: loop(cloop.GraphAndWait, fn, synchronize, x, s), raw: then(raw, g.synchronizeRaw), safe: then(own, g.stream.Synchronize),
		},
	} {
		result, err := e.meter.measure(&r)
		if err != nil {
			return nil, err
		}
		for i, f := range []*figures{result.C, result.Raw, result.Safe} {
			lines[i].Values[r.name+" µs"] = f.Median / 1000
			lines[i].ratio(r.name+"/C", r.name+" µs", lines[0])
		}
		lines[2].atMost(r.name+"/C", 1.05)
	}
	return lines, nil
}
