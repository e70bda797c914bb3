package main

import (
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// hostFunctions is how long it takes until a function runs that an idle stream
// was given, and what each takes of many that are on one stream.
var hostFunctions = group{
	name:    "host function",
	columns: []string{"p50 µs", "p99 µs", "queued µs each", "p50/C", "queued/C"},
	plot:    []string{"p50 µs", "p99 µs", "queued µs each"},
	run:     hostFuncs,
}

func hostFuncs(g *gpu, e effort) ([]*line, error) {
	n := e.of(10_000, 20)
	fn, s := g.fn("cuLaunchHostFunc"), uintptr(g.stream.Raw())
	c := &sampled{name: "C cuLaunchHostFunc", do: g.current(timedLoop(cloop.HostFunc, fn, s))}
	own := &sampled{name: "Stream.LaunchHostFunc", do: func(ns []int64) error { return untilRun(g, ns) }}
	inTurns := []struct {
		*sampled
		queue func(n int) error
		each  []float64
	}{
		{sampled: c, queue: func(n int) error {
			return g.ctx.WithCurrent(func() error { return loop(cloop.HostFunc, fn, s)(n) })
		}},
		{sampled: own, queue: func(n int) error { return queueHostFuncs(g, n) }},
	}
	for range e.of(3, 1) {
		for i := range inTurns {
			w := &inTurns[i]
			if err := g.idle(); err != nil {
				return nil, err
			}
			if err := w.round(e.of(500, 5)); err != nil {
				return nil, err
			}
			start := time.Now()
			if err := w.queue(n); err != nil {
				return nil, err
			}
			w.each = append(w.each, micros(time.Since(start))/float64(n))
		}
	}
	var lines []*line
	for _, w := range inTurns {
		l := newLine("", w.name)
		l.Values["p50 µs"], l.Values["p99 µs"] = micros(percentile(w.ns, 50)), micros(percentile(w.ns, 99))
		l.Values["queued µs each"] = median(w.each)
		lines = append(lines, l)
		l.ratio("p50/C", "p50 µs", lines[0])
		l.ratio("queued/C", "queued µs each", lines[0])
	}
	return lines, nil
}

// untilRun measures until the function has run, not until its future completes.
func untilRun(g *gpu, ns []int64) error {
	for i := range ns {
		start := time.Now()
		f, err := g.stream.LaunchHostFunc(func() { ns[i] = int64(time.Since(start)) })
		if err != nil {
			return err
		}
		if err := g.completed(f); err != nil {
			return err
		}
	}
	return nil
}

// queueHostFuncs gives the stream n functions at once, and waits for the last.
func queueHostFuncs(g *gpu, n int) error {
	ran := 0 // they run one after another
	var last *safe.Future[struct{}]
	for range n {
		var err error
		if last, err = g.stream.LaunchHostFunc(func() { ran++ }); err != nil {
			return err
		}
	}
	if err := g.completed(last); err != nil {
		return err
	}
	if ran != n {
		return driver.CUDA_ERROR_UNKNOWN
	}
	return nil
}
