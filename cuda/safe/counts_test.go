//go:build cgo && linux && amd64 && !race

package safe_test

// What calls cost that does not depend on the machine. Runs on the simulated driver.

import (
	"errors"
	goflag "flag"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateCounts = goflag.Bool("update", false, "write testdata/counts.txt")

// TestCounts compares the crossings into C, the allocations and the calls of the driver that hot calls take with
// testdata/counts.txt. Where a change is meant, -update writes the file.
func TestCounts(t *testing.T) {
	needsSimulated(t)
	needsFiles(t)
	var version int32
	require.NoError(t, driver.CuDriverGetVersion(&version))
	if version != 13000 {
		t.Skip("the counts are those with a driver for CUDA 13.0")
	}
	x := open(t, 0)
	s, other, e := stream(t, x), stream(t, x), event(t, x)
	b, c, h, h2 := buffer[float32](t, x, 100), buffer[float32](t, x, 100), host[float32](t, x, 100), host[float32](t, x, 100)
	values, fill := make([]float32, 100), kernel(t, x, "fill")
	launch := func() error {
		return fill.Launch(s, perValue(100), safe.Val(uint32(100)), safe.Val(float32(1)), b.Arg())
	}
	g, err := s.Capture(launch)
	require.NoError(t, err)
	closing(t, g)
	exec, batch := executable(t, g), newBatch(t, x)
	for range 10 {
		require.NoError(t, batch.Launch(fill, perValue(100), safe.Val(uint32(100)), safe.Val(float32(1)), b.Arg()))
	}
	many := newGraph(t, x)
	for range 100 {
		addNode(t, many, safe.KernelNode(fill, perValue(100), safe.Val(uint32(100)), safe.Val(float32(1)), b.Arg()))
	}
	lines := []string{"# What calls take: crossings into C, allocations of Go, and calls of the driver."}
	for _, call := range []struct {
		name string
		f    func() error
	}{
		{"Kernel.Launch", launch},
		{"Kernel.Launch, then Stream.Synchronize", func() error { return errors.Join(launch(), s.Synchronize()) }},
		{"Stream.Record", func() error { return s.Record(e) }},
		{"Stream.WaitEvent", func() error { return other.WaitEvent(e) }},
		{"Stream.Query", func() error { _, err := s.Query(); return err }},
		{"Event.Query", func() error { _, err := e.Query(); return err }},
		{"Buffer.CopyFromAsync", func() error { return b.CopyFromAsync(s, c) }},
		{"Buffer.CopyFromHostAsync", func() error { return b.CopyFromHostAsync(s, h) }},
		{"Buffer.CopyFromHost", func() error { return b.CopyFromHost(values) }},
		{"Buffer.CopyToHost", func() error { return b.CopyToHost(values) }},
		{"Pinned.CopyFromAsync", func() error { return h.CopyFromAsync(s, h2) }},
		{"Buffer.FillAsync", func() error { return b.FillAsync(s, 1) }},
		{"Stream.EnqueueRaw", func() error { return s.EnqueueRaw(func(driver.CUstream) error { return nil }, b.Arg()) }},
		{"GraphExec.Launch", func() error { return exec.Launch(s) }},
		{"Batch.Submit of 10 launches", func() error { return batch.Submit(s) }},
		{"Stream.Capture of a launch, then Graph.Close", func() error {
			g, err := s.Capture(launch)
			if err != nil {
				return err
			}
			return g.Close()
		}},
		{"Graph.Instantiate of 100 kernels, then GraphExec.Close", func() error {
			x, err := many.Instantiate()
			if err != nil {
				return err
			}
			return x.Close()
		}},
		{"NewBufferAsync, then Buffer.Close", func() error {
			b, err := safe.NewBufferAsync[float32](s, 100)
			if err != nil {
				return err
			}
			return b.Close()
		}},
	} {
		require.NoError(t, call.f(), call.name) // the first time may be another
		lines = append(lines, call.name+": "+taken(t, call.f, s, other))
	}
	text := strings.Join(lines, "\n") + "\n"
	const file = "testdata/counts.txt"
	if *updateCounts {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}

// taken returns the least that a call takes: others happen beside it now and then, such as the mark of a stream's work.
func taken(t *testing.T, f func() error, streams ...*safe.Stream) string {
	t.Helper()
	var calls map[string]int
	crossings, fewest := int64(math.MaxInt64), math.MaxInt
	for range 30 {
		for _, s := range streams {
			require.NoError(t, s.Synchronize())
		}
		before := driverCalls(t)
		require.NoError(t, f())
		now := driverCalls(t)
		maps.DeleteFunc(now, func(name string, n int) bool { return n == before[name] })
		total := 0
		for name := range now {
			now[name] -= before[name]
			total += now[name]
		}
		if total < fewest {
			fewest, calls = total, now
		}
		start := runtime.NumCgoCall()
		require.NoError(t, f())
		crossings = min(crossings, runtime.NumCgoCall()-start)
	}
	allocations := math.Inf(1)
	for range 20 {
		allocations = min(allocations, testing.AllocsPerRun(1, func() { require.NoError(t, f()) }))
	}
	said := make([]string, 0, len(calls))
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if n := calls[name]; n > 1 {
			name = fmt.Sprintf("%d %s", n, name)
		}
		said = append(said, name)
	}
	return fmt.Sprintf("%d, %.0f, %s", crossings, allocations, strings.Join(said, " "))
}

// ofDriver returns the functions of the simulated driver.
func ofDriver(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../tools/simdriver/sim/c/functions.h")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\tF\((\w+)\)`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// driverCalls returns how often each function of the driver was called.
func driverCalls(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, name := range ofDriver(t) {
		if n := simulated.Calls(name); n > 0 {
			all[name] = n
		}
	}
	return all
}
