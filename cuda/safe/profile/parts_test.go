//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPlainName(t *testing.T) {
	for symbol, want := range map[string]string{
		"saxpy":                "saxpy",
		"_Z6kernelIfEvPT_i":    "kernel<float>",
		"_Z3addPfi":            "add",
		"_ZN2ns1KIiE3runEPi":   "ns::K<int>::run",
		"_ZN2at6native3fooEPf": "at::native::foo",
		"":                     "",
	} {
		assert.Equal(t, want, plainName(symbol), symbol)
	}
}

func TestClock(t *testing.T) {
	c := clock{first: sample{1000, 5_000_000}, last: sample{2_001_000, 9_000_000}, start: 500}
	assert.EqualValues(t, 500, c.host(5_000_000))
	assert.EqualValues(t, 2_000_500, c.host(9_000_000), "the clocks differ in their rate, too")
	assert.EqualValues(t, 1_000_500, c.host(7_000_000))
	c = clock{first: sample{1000, 5000}, last: sample{3000, 6000}}
	assert.EqualValues(t, 2000, c.host(6000), "too short to tell a rate")
}

// TestPieces: what grows keeps its elements where they are, as moving a million takes long.
func TestPieces(t *testing.T) {
	var p pieces[int]
	p.add(0)
	first := &p.last[0]
	for i := 1; i <= 2*piece; i++ {
		p.add(i)
	}
	assert.Equal(t, 2*piece+1, p.len())
	assert.Same(t, first, &p.full[0][0])
	all := p.take()
	assert.Len(t, all, 2*piece+1)
	for i, v := range all {
		assert.Equal(t, i, v)
	}
	assert.Zero(t, p.len())
	assert.Empty(t, p.take())
}

func TestIdle(t *testing.T) {
	w := func(device int, name string, start, end time.Duration) Work {
		return Work{Device: device, Name: name, Start: start, End: end}
	}
	tl := &Timeline{Duration: 100, Work: []Work{
		w(0, "a", 10, 20), w(1, "x", 12, 13), w(0, "b", 15, 30), w(0, "c", 16, 18), w(0, "d", 50, 60), w(0, "e", 65, 70),
	}}
	assert.Equal(t, []Idle{
		{Device: 0, Busy: 35, Before: 10, Between: 25, After: 30, Gaps: 2, Longest: Gap{30, 50, "b", "d"}},
		{Device: 1, Busy: 1, Before: 12, After: 87},
	}, tl.Idle())
}

// TestOccupancy: what CUDA's own calculation says for GPUs with compute capability 9.0.
func TestOccupancy(t *testing.T) {
	r := room{threads: 2048, blocks: 32, registers: 65536, shared: 233472, reserved: 1024, warp: 32}
	for _, row := range []struct {
		name                       string
		threads, registers, shared int
		want                       float64
	}{
		{"full", 256, 32, 0, 1},
		{"registers", 256, 64, 0, 0.5},
		{"shared memory", 256, 32, 100 << 10, 0.25},
		{"blocks", 32, 16, 0, 0.5},
		{"one block", 1024, 64, 0, 0.5},
		{"unknown", 0, 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.InDelta(t, row.want, r.occupancy(row.threads, row.registers, row.shared), 0.001)
		})
	}
	assert.Zero(t, room{}.occupancy(256, 32, 0))
}

// TestLanes: bars that overlap take tracks of their own, up to a limit.
func TestLanes(t *testing.T) {
	var l lanes
	assert.Equal(t, []int{0, 1, 0, 0}, []int{l.place(0, 10), l.place(5, 20), l.place(10, 15), l.place(20, 30)})
	for range 2 * mostLanes {
		l.place(0, 1000)
	}
	assert.Len(t, l, mostLanes)
}

// TestAttribute: calls stay within their range, a wait that outlives a range of its thread is another goroutine's, and a
// call has one arrow.
func TestAttribute(t *testing.T) {
	tl := &Timeline{
		Duration: 10_000,
		Ranges:   []Span{{Name: "inner", Start: 1200, End: 1800, Thread: 1}, {Name: "outer", Start: 1000, End: 2000, Thread: 1}, {Name: "other", Start: 0, End: 9000, Thread: 2}},
		Calls:    []Call{{Name: "a", Start: 990, End: 1100, Thread: 1, correlation: 1}, {Name: "b", Start: 1300, End: 1400, Thread: 1, correlation: 2}, {Name: "c", Start: 3000, End: 3100, Thread: 1, correlation: 3}},
		Waits:    []Wait{{Name: "w", Start: 1500, End: 1700, thread: 1}, {Name: "w", Start: 1500, End: 5000, thread: 1}},
		Work:     []Work{{Name: "k", Start: 1500, End: 1600, correlation: 2}, {Name: "k", Start: 1550, End: 1700, correlation: 2}, {Name: "k", Start: 3200, End: 3300, correlation: 9}},
	}
	threads := tl.nest()
	tl.attribute(threads)
	assert.Equal(t, []string{"other", "outer", "inner"}, []string{tl.Ranges[0].Name, tl.Ranges[1].Name, tl.Ranges[2].Name})
	assert.Equal(t, []int{-1, -1, 1}, []int{tl.Ranges[0].Parent, tl.Ranges[1].Parent, tl.Ranges[2].Parent})
	assert.EqualValues(t, 1000, tl.Calls[0].Start)
	assert.Equal(t, []int{1, 2, -1}, []int{tl.Calls[0].Range, tl.Calls[1].Range, tl.Calls[2].Range})
	assert.Equal(t, []int{2, -1}, []int{tl.Waits[0].Range, tl.Waits[1].Range})
	assert.Equal(t, []int{1, 1, -1}, []int{tl.Work[0].Call, tl.Work[1].Call, tl.Work[2].Call})
	arrows := 0
	for _, e := range written(t, tl) {
		if e.Ph == "s" {
			arrows++
		}
	}
	assert.Equal(t, 1, arrows)
}
