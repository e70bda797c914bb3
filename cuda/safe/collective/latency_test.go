//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// How long all-reduces take, on GPUs: of goroutines of one process, and of processes. On the
// simulated driver the same code runs briefly, and says nothing.

package collective

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// latencySizes are what latencies are measured with, in bytes.
func latencySizes() []int {
	if !onGPU {
		return []int{8, 1 << 10}
	}
	return []int{8, 64 << 10, 1 << 20, 16 << 20, 256 << 20}
}

// latencies measures all-reduces of one rank. All ranks call it at once. The figures are in µs:
// medians of single ones, and means of those without a wait between them.
func latencies(c *Comm, s *safe.Stream, bytes int) (string, error) {
	ctx := context.Background()
	times := 200
	switch {
	case !onGPU:
		times = 2
	case bytes > 100<<20:
		times = 20
	}
	b, err := safe.NewBuffer[float32](s.Context(), bytes/4)
	if err != nil {
		return "", err
	}
	defer b.Close()
	once := func() error { return AllReduce(c, s, b, b, Sum) }
	wait := func() error { return c.Wait(ctx, s) }
	var call, whole, graph []time.Duration
	for range 20 + times {
		from := time.Now()
		if err := once(); err != nil {
			return "", err
		}
		call = append(call, time.Since(from))
		if err := wait(); err != nil {
			return "", err
		}
		whole = append(whole, time.Since(from))
	}
	many, err := mean(times, wait, once)
	if err != nil {
		return "", err
	}
	grouped, err := mean(times/2, wait, func() error {
		return Group(func(g *Calls) error {
			for range 5 {
				if err := AllReduce(c.In(g), s, b, b, Sum); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return "", err
	}
	e, err := s.CaptureExecutable(once)
	if err != nil {
		return "", err
	}
	defer e.Close()
	for range 20 + times {
		from := time.Now()
		if err := e.Launch(s); err != nil {
			return "", err
		}
		if err := wait(); err != nil {
			return "", err
		}
		graph = append(graph, time.Since(from))
	}
	return fmt.Sprintf("%9d bytes: call %6.1f, call and wait %6.1f, back to back %6.1f, in groups of 5 %6.1f each, launch of a graph and wait %6.1f µs",
		bytes, median(call[20:]), median(whole[20:]), many, grouped/5, median(graph[20:])), nil
}

// mean returns how many microseconds f takes if it is called so many times, with one wait.
func mean(times int, wait, f func() error) (float64, error) {
	from := time.Now()
	for range times {
		if err := f(); err != nil {
			return 0, err
		}
	}
	err := wait()
	return float64(time.Since(from).Nanoseconds()) / 1e3 / float64(times), err
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1e3
}

func TestLatency(t *testing.T) {
	w := newWorld(t)
	for _, bytes := range latencySizes() {
		var ranks sync.WaitGroup
		for i, c := range w.comms {
			ranks.Go(func() {
				text, err := latencies(c, w.streams[i], bytes)
				assert.NoError(t, err)
				if i == 0 {
					t.Logf("%d goroutines: %s", len(w.comms), text)
				}
			})
		}
		ranks.Wait()
	}
}

// TestLatencyOfProcesses needs two GPUs: the double knows one process.
func TestLatencyOfProcesses(t *testing.T) {
	if !onGPU {
		t.Skip("needs two GPUs")
	}
	all := start(t, "latency", "latency")
	for range latencySizes() {
		t.Logf("%d processes: %s", len(all), all[0].says(t, "measured"))
		all[1].says(t, "measured")
	}
	for _, p := range all {
		p.says(t, "done")
		require.NoError(t, p.Wait())
	}
}

// sayLatencies is the role "latency".
func sayLatencies(c *Comm, s *safe.Stream, _ *safe.Buffer[float32]) error {
	for _, bytes := range latencySizes() {
		text, err := latencies(c, s, bytes)
		if err != nil {
			return err
		}
		say("measured", text)
	}
	return c.Shutdown(context.Background())
}
