package main

import (
	"fmt"
	"slices"
)

// row is what all contestants are asked to do.
type row struct {
	name   string
	item   string
	arg    int
	unit   string  // ns, µs or ms; "" for a number
	rounds int     // for each start of the contestants
	ms     float64 // of a round
	usual  bool    // whether the figure is the median of the rounds, and not the fastest
}

// figure sums the rounds up: the fastest one for the cost of a call, which machines only make slower, and the median
// for waits and counts.
func (r row) figure(rounds []float64) float64 {
	if r.usual {
		return median(rounds)
	}
	return slices.Min(rounds)
}

// rows are the operations, in this order.
func rows() []row {
	all := []row{
		{name: "event record", item: "event_record"},
		{name: "event query, done", item: "event_query"},
		{name: "stream query", item: "stream_query"},
		{name: "launch, no arguments", item: "launch_0"},
		{name: "launch, 3 arguments", item: "launch_3"},
		{name: "launch, 16 arguments", item: "launch_16"},
		{name: "100 launches", item: "launch_100", unit: "µs"},
		{name: "stream create and close", item: "stream_create"},
		{name: "async alloc and free, 4 KiB", item: "async_alloc"},
		{name: "alloc and free, 4 KiB", item: "buf_alloc", arg: 4 << 10},
		{name: "alloc and free, 1 MiB", item: "buf_alloc", arg: 1 << 20},
		{name: "copy 4 KiB to device, and wait", item: "h2d", arg: 4 << 10, unit: "µs"},
		{name: "copy 64 MiB to device, and wait", item: "h2d", arg: largest, unit: "µs", rounds: 2},
		{name: "copy 4 KiB to host, and wait", item: "d2h", arg: 4 << 10, unit: "µs"},
		{name: "copy 64 MiB to host, and wait", item: "d2h", arg: largest, unit: "µs", rounds: 2},
		{name: "empty graph", item: "graph_empty"},
	}
	for _, kernels := range []int{1, 10, 100, 1000} {
		all = append(all, graphRows(kernels)...)
	}
	all = append(all,
		row{name: "pipeline, 256 pieces of 1 MiB", item: "pipe_1m", unit: "ms", rounds: 2, ms: 30},
		row{name: "pipeline, 2048 pieces of 16 KiB", item: "pipe_16k", unit: "ms", rounds: 2, ms: 30},
	)
	for i := range all {
		r := &all[i]
		if r.unit == "" {
			r.unit = "ns"
		}
		if r.rounds == 0 {
			r.rounds = 3
		}
		if r.ms == 0 {
			r.ms = 15
		}
	}
	return all
}

// graphRows are about graphs of so many kernels with 3 arguments, each after the one before.
func graphRows(kernels int) []row {
	var all []row
	for _, r := range []row{
		{name: "build", item: "graph_build"},
		{name: "capture and instantiate", item: "graph_capture"},
		{name: "instantiate", item: "graph_inst"},
		{name: "update", item: "graph_update"},
		{name: "set all of the graph", item: "graph_node_set"},
		{name: "set all of the executable", item: "graph_set"},
		{name: "launch", item: "graph_launch"},
		{name: "launch and wait", item: "graph_wait"},
	} {
		if kernels == 1000 && r.item == "graph_launch" {
			continue // the queue of a stream holds too few
		}
		r.name = fmt.Sprintf("graph of %d: %s", kernels, r.name)
		r.arg, r.unit, r.rounds, r.ms = kernels, "µs", 2, 12
		all = append(all, r)
	}
	return all
}

// waits are kernels of so many microseconds, with the wait for each.
var waits = []int{0, 20, 200, 2000}

// crowds are how many workers launch kernels of 500 µs and wait for them, 50 times each.
var crowds = []int{128, 1024}

// waitRows and crowdRows name the figures of these.
func waitRows(us int) []row {
	name := fmt.Sprintf("launch and wait, %d µs", us)
	return []row{{name: name + ": median", unit: "µs", usual: true}, {name: name + ": p99", unit: "µs", usual: true}, {name: name + ": CPU", unit: "µs", usual: true}}
}

func crowdRows(workers int) []row {
	name := fmt.Sprintf("%d workers, 50 waits each", workers)
	return []row{{name: name + ": wall", unit: "ms"}, {name: name + ": CPU", unit: "ms"}, {name: name + ": more threads", usual: true}}
}

// nanoseconds is what one of a unit has.
var nanoseconds = map[string]float64{"ns": 1, "µs": 1e3, "ms": 1e6}
