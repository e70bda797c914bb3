package main

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
	"github.com/cudabind/cudabind/internal/process"
)

// waiting is one goroutine that launches a kernel and waits for it.
var waiting = group{
	name:    "wait",
	columns: []string{"p50 µs", "p99 µs", "CPU µs", "p50/C", "CPU/C"},
	plot:    []string{"p50/C", "CPU/C"},
	run:     waits,
}

// sampled is a way of doing something. do does it once for each of ns, and says
// there how long that took.
type sampled struct {
	name string
	do   func(ns []int64) error

	ns  []int64
	cpu time.Duration
}

// timed does f, a call of Go's, again and again.
func timed(f func() error) func(ns []int64) error {
	return func(ns []int64) error {
		for i := range ns {
			start := time.Now()
			if err := f(); err != nil {
				return err
			}
			ns[i] = int64(time.Since(start))
		}
		return nil
	}
}

// timedLoop does what a loop of C does once, again and again.
func timedLoop(l cloop.Loop, args ...uintptr) func(ns []int64) error {
	return func(ns []int64) error {
		if code := l.Timed(ns, args...); code != 0 {
			return driver.CUresult(code)
		}
		return nil
	}
}

// current has the context current meanwhile.
func (g *gpu) current(do func(ns []int64) error) func(ns []int64) error {
	return func(ns []int64) error { return g.ctx.WithCurrent(func() error { return do(ns) }) }
}

// round does it n times more. The first few do not count: a stream has to learn
// how long its kernels take.
func (w *sampled) round(n int) error {
	var first [3]int64
	if err := w.do(first[:]); err != nil {
		return err
	}
	ns := make([]int64, n)
	start := process.CPUTime()
	if err := w.do(ns); err != nil {
		return err
	}
	w.cpu += process.CPUTime() - start
	w.ns = append(w.ns, ns...)
	return nil
}

// waits measures each way of waiting, in turns.
func waits(g *gpu, e effort) ([]*line, error) {
	var lines []*line
	for _, kernel := range []struct{ micros, times int }{{0, 400}, {20, 200}, {200, 100}, {2000, 40}} {
		ways := waysToWait(g, time.Duration(kernel.micros)*time.Microsecond)
		for range e.of(5, 1) {
			for _, w := range ways {
				if err := w.round(e.of(kernel.times, 3)); err != nil {
					return nil, fmt.Errorf("%s: %w", w.name, err)
				}
			}
		}
		lines = append(lines, waitLines(fmt.Sprintf("%d µs", kernel.micros), ways)...)
	}
	return lines, nil
}

// waitLines are one for each way, the first of which is C's.
func waitLines(name string, ways []*sampled) []*line {
	var lines []*line
	for _, w := range ways {
		l := newLine(name, w.name)
		l.Values["p50 µs"] = micros(percentile(w.ns, 50))
		l.Values["p99 µs"] = micros(percentile(w.ns, 99))
		l.Values["CPU µs"] = micros(w.cpu) / float64(len(w.ns))
		lines = append(lines, l)
		l.ratio("p50/C", "p50 µs", lines[0])
		l.ratio("CPU/C", "CPU µs", lines[0])
		if w.name == "Stream.Synchronize" {
			l.atMost("p50/C", 1.10)
			if name == "2000 µs" {
				l.atMost("CPU/C", 0.25)
			}
		}
	}
	return lines
}

// waysToWait are all ways, for kernels that take so long.
func waysToWait(g *gpu, kernel time.Duration) []*sampled {
	ns := uint64(kernel)
	arg := safe.Val(ns)
	launched := func(wait func() error) func(ns []int64) error {
		return timed(func() error {
			if err := g.spin.Launch(g.stream, one, arg); err != nil {
				return err
			}
			return wait()
		})
	}
	raw := timed(func() error {
		value := ns
		params := [...]unsafe.Pointer{unsafe.Pointer(&value)}
		if err := driver.CuLaunchKernel(g.spin.Raw(), 1, 1, 1, 1, 1, 1, 0, g.stream.Raw(), &params[0], nil); err != nil {
			return err
		}
		return g.synchronizeRaw()
	})
	return []*sampled{
		{name: "C cuStreamSynchronize", do: g.current(timedLoop(cloop.LaunchAndWait,
			g.fn("cuLaunchKernel"), g.fn("cuStreamSynchronize"), uintptr(g.spin.Raw()), uintptr(g.stream.Raw()), uintptr(ns)))},
		{name: "raw CuStreamSynchronize", do: g.current(raw)},
		{name: "Stream.Synchronize", do: launched(g.stream.Synchronize)},
		{name: "Stream.SynchronizeBlocking", do: launched(g.stream.SynchronizeBlocking)},
		{name: "Event.Synchronize", do: launched(func() error {
			if err := g.stream.Record(g.event); err != nil {
				return err
			}
			return g.event.Synchronize()
		})},
		{name: "Stream.Completion", do: launched(func() error { return g.completed(g.stream.Completion()) })},
		{name: "Stream.LaunchHostFunc", do: launched(func() error {
			f, err := g.stream.LaunchHostFunc(func() {})
			if err != nil {
				return err
			}
			return g.completed(f)
		})},
	}
}

func (g *gpu) completed(f *safe.Future[struct{}]) error {
	_, err := f.Wait(context.Background())
	return err
}
