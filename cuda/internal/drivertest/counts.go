//go:build cgo && linux

package drivertest

import (
	"flag"
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
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Counted is a call whose costs [Counts] counts.
type Counted struct {
	Name string
	F    func() error
}

var update = flag.Bool("update", false, "write testdata/counts.txt")

// Counts compares the crossings into C, the allocations and the calls of the simulated driver that calls take with
// testdata/counts.txt. Where a change is meant, -update writes the file. idle waits for the work of the calls. Counts
// skips with another driver than that for CUDA 13.0, which takes other calls.
func Counts(t *testing.T, idle func() error, calls []Counted) {
	t.Helper()
	var version int32
	require.NoError(t, driver.CuDriverGetVersion(&version))
	if version != 13000 {
		t.Skip("the counts are those with a driver for CUDA 13.0")
	}
	const file = "testdata/counts.txt"
	names := ofDriver(t)
	text := "# What calls take: crossings into C, allocations of Go, and calls of the driver.\n"
	for _, call := range calls {
		require.NoError(t, call.F(), call.Name) // the first time may be another
		text += call.Name + ": " + taken(t, names, idle, call.F) + "\n"
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}

// taken returns what a call takes. It is the least of several calls, as others happen beside them now and then, such as
// the mark of a stream's work. Each begins when there is no work, as calls on a full stream wait for room.
func taken(t *testing.T, names []string, idle, f func() error) string {
	t.Helper()
	var calls map[string]int
	var crossings int64
	fewest := math.MaxInt
	for range 30 {
		require.NoError(t, idle())
		before, crossed := simulatedCalls(names), runtime.NumCgoCall()
		err := f()
		crossed = runtime.NumCgoCall() - crossed
		require.NoError(t, err)
		now := simulatedCalls(names)
		maps.DeleteFunc(now, func(name string, n int) bool { return n == before[name] })
		total := int(crossed)
		for name := range now {
			now[name] -= before[name]
			total += now[name]
		}
		if total < fewest {
			fewest, calls, crossings = total, now, crossed
		}
	}
	allocations := math.Inf(1)
	for range 20 {
		require.NoError(t, idle())
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

// simulatedCalls returns how often each function of the simulated driver was called.
func simulatedCalls(names []string) map[string]int {
	all := map[string]int{}
	for _, name := range names {
		if n := (sim.Control{}).Calls(name); n > 0 {
			all[name] = n
		}
	}
	return all
}

// ofDriver returns the functions of the simulated driver.
func ofDriver(t *testing.T) (names []string) {
	t.Helper()
	const file = "tools/simdriver/sim/c/functions.h"
	text, err := os.ReadFile("../../" + file)
	if err != nil {
		text, err = os.ReadFile("../../../" + file)
	}
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\tF\((\w+)\)`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}
