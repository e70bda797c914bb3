package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/process"
)

// late is goroutines that launch a kernel each and wait for it, beside threads that spin: how much later they go on, and
// what that costs. The kernels take the same time again and again, or by turns this time and twice that.
var late = group{
	name:    "late",
	columns: []string{"p50 µs", "p99 µs", "later µs", "CPU µs", "CPU/spin"},
	plot:    []string{"later µs", "CPU/spin"},
	run:     lateWaits,
}

func lateWaits(g *gpu, e effort) ([]*line, error) {
	sizes := []int{1, e.of(16, 2), e.of(1024, 4)}
	streams, err := newStreams(g, sizes[len(sizes)-1])
	if err != nil {
		return nil, err
	}
	defer closeAll(streams)
	var lines []*line
	for _, waiters := range sizes {
		for _, kernel := range []time.Duration{20 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond} {
			for _, alternating := range []bool{false, true} {
				c := &lateCase{g: g, streams: streams[:waiters], kernel: kernel, alternating: alternating, times: e.of(max(4, 400/waiters), 2)}
				two, err := c.measure(e.of(5, 1))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", c, err)
				}
				lines = append(lines, two...)
			}
		}
	}
	return lines, nil
}

// lateCase is one number of waiters, and one kind of kernels.
type lateCase struct {
	g           *gpu
	streams     []*safe.Stream
	kernel      time.Duration
	alternating bool
	times       int // that each waits in a round
}

func (c *lateCase) String() string {
	name := fmt.Sprintf("%d x %v", len(c.streams), c.kernel)
	if c.alternating {
		name += fmt.Sprintf(", %v", 2*c.kernel)
	}
	return name
}

// measure has both ways wait in turns. The first few waits of each stream do not count.
func (c *lateCase) measure(rounds int) ([]*line, error) {
	spin, ours := &sampled{name: "spinning threads"}, &sampled{name: "Stream.Synchronize"}
	for range rounds {
		for _, w := range []struct {
			*sampled
			threads bool
			wait    func(*safe.Stream) error
		}{{spin, true, c.spin}, {ours, false, (*safe.Stream).Synchronize}} {
			if err := c.round(w.sampled, w.threads, w.wait); err != nil {
				return nil, err
			}
		}
	}
	var lines []*line
	for _, w := range []*sampled{spin, ours} {
		l := newLine(c.String(), w.name)
		l.Values["p50 µs"], l.Values["p99 µs"] = micros(percentile(w.ns, 50)), micros(percentile(w.ns, 99))
		l.Values["CPU µs"] = micros(w.cpu) / float64(len(w.ns))
		lines = append(lines, l)
		l.Values["later µs"] = l.Values["p50 µs"] - lines[0].Values["p50 µs"]
		l.ratio("CPU/spin", "CPU µs", lines[0])
	}
	if len(c.streams) == 1 && c.kernel == 200*time.Microsecond && !c.alternating {
		lines[1].atMost("later µs", 5)
		lines[1].atMost("CPU/spin", 0.5)
	}
	return lines, nil
}

// round has each waiter wait a few times, and then so many times.
func (c *lateCase) round(w *sampled, threads bool, wait func(*safe.Stream) error) error {
	const few = 4
	all := make([][]int64, len(c.streams))
	var cpu time.Duration
	for _, n := range []int{few, c.times} {
		start := process.CPUTime()
		err := together(len(c.streams), func(i int) (err error) {
			if threads {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				return c.g.ctx.WithCurrent(func() error { all[i], err = c.waits(c.streams[i], n, wait); return err })
			}
			all[i], err = c.waits(c.streams[i], n, wait)
			return err
		})
		if err != nil {
			return err
		}
		cpu = process.CPUTime() - start
	}
	w.cpu += cpu
	for _, ns := range all {
		w.ns = append(w.ns, ns...)
	}
	return nil
}

// waits launches and waits n times. Of a longer kernel it returns how long that would have taken with the shorter one.
func (c *lateCase) waits(s *safe.Stream, n int, wait func(*safe.Stream) error) ([]int64, error) {
	ns := make([]int64, n)
	for i := range ns {
		kernel := c.kernel
		if c.alternating && i%2 == 1 {
			kernel *= 2
		}
		start := time.Now()
		if err := c.g.spin.Launch(s, one, safe.Val(uint64(kernel))); err != nil {
			return nil, err
		}
		if err := wait(s); err != nil {
			return nil, err
		}
		ns[i] = int64(time.Since(start) - kernel + c.kernel)
	}
	return ns, nil
}

// spin asks until the work is done. The context is current.
func (c *lateCase) spin(s *safe.Stream) error {
	if len(c.streams) > runtime.GOMAXPROCS(0) { // the driver yields
		return driver.CuStreamSynchronize(s.Raw())
	}
	for {
		if err := driver.CuStreamQuery(s.Raw()); err != driver.CUDA_ERROR_NOT_READY {
			return err
		}
	}
}
