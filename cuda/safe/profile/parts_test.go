//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// TestClock: between samples the rate of the clocks is constant, and beyond them it is that beside.
func TestClock(t *testing.T) {
	const ms = 1_000_000
	for _, row := range []struct {
		name    string
		samples []sample // on the host, of CUPTI
		at      map[int64]int64
	}{
		{"the clocks differ in their rate", []sample{{1000, 5 * ms}, {2_001_000, 9 * ms}}, map[int64]int64{5 * ms: 500, 7 * ms: 1_000_500, 9 * ms: 2_000_500, 11 * ms: 3_000_500, 3 * ms: 500 - ms}},
		{"the rate changes", []sample{{0, 0}, {10 * ms, 10 * ms}, {30 * ms, 20 * ms}}, map[int64]int64{5 * ms: 5*ms - 500, 10 * ms: 10*ms - 500, 15 * ms: 20*ms - 500, 20 * ms: 30*ms - 500, 25 * ms: 40*ms - 500, -ms: -ms - 500}},
		{"too short to tell a rate", []sample{{1000, 5000}, {3000, 6000}}, map[int64]int64{6000: 1500}},
		{"CUPTI's clock is put back", []sample{{0, 50 * ms}, {10 * ms, 20 * ms}, {20 * ms, 70 * ms}}, map[int64]int64{60 * ms: 10*ms - 500}},
		{"one sample", []sample{{1000, 5000}}, map[int64]int64{6000: 1500}},
		{"none", nil, map[int64]int64{6000: 5500}},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := clock{start: 500}
			for _, s := range row.samples {
				c.add(s)
			}
			for at, want := range row.at {
				assert.Equal(t, want, c.host(at), "%d", at)
			}
		})
	}
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

// TestRecursion: ranges inside of others of their name count once, with the work that was enqueued in them.
func TestRecursion(t *testing.T) {
	tl := &Timeline{
		Ranges: []Span{
			{Name: "f", Start: 0, End: 100, Parent: -1}, {Name: "g", Start: 10, End: 90, Parent: 0}, {Name: "f", Start: 20, End: 80, Parent: 1},
			{Name: "g", Start: 30, End: 70, Parent: 2}, {Name: "f", Start: 200, End: 210, Parent: -1},
		},
		Work: []Work{{Start: 40, End: 45, Range: 3}, {Start: 205, End: 206, Range: 4}, {Start: 300, End: 301, Range: -1}},
	}
	host, device := tl.RangeStats()
	assert.Equal(t, []Stat{{Name: "f", Count: 2, Total: 110, Min: 10, Max: 100}, {Name: "g", Count: 1, Total: 80, Min: 80, Max: 80}}, host)
	assert.Equal(t, []Stat{{Name: "f", Count: 2, Total: 6, Min: 1, Max: 5}, {Name: "g", Count: 1, Total: 5, Min: 5, Max: 5}}, device)
}

// full is a file on a disk that is full.
type full struct{ writes int }

var errFull = errors.New("no space")

func (f *full) Write([]byte) (int, error) {
	f.writes++
	return 0, errFull
}

// TestNamesInTables: a name, which may come from a client of the program, is a part of one line, whatever it has.
func TestNamesInTables(t *testing.T) {
	names := []string{"tab\tname", "line\n100.0  forged", "\xffescape", "\x1b[2Jterminal", "form\ffeed", "größe"}
	tl := &Timeline{Duration: 100}
	for i, name := range names {
		tl.Ranges = append(tl.Ranges, Span{Name: name, End: time.Duration(10 - i), Parent: -1})
		tl.Work = append(tl.Work, Work{Kind: Copy, Name: name, Start: time.Duration(20 * i), End: time.Duration(20*i + 10 - i), Range: -1})
	}
	var b bytes.Buffer
	require.NoError(t, tl.WriteSummary(&b))
	for _, title := range []string{"copies", "ranges, on the host"} {
		_, table, _ := strings.Cut(b.String(), "\n"+title+"\n")
		rows := strings.Split(table, "\n")
		require.Greater(t, len(rows), len(names))
		at := strings.Index(rows[0], "name")
		for i, name := range []string{"tab\ufffdname", "line\ufffd100.0  forged", "\ufffdescape", "\ufffd[2Jterminal", "form\ufffdfeed", "größe"} {
			assert.Equal(t, name, rows[1+i][at:], rows[1+i])
		}
	}
	assert.Contains(t, b.String(), "after form\ufffdfeed and before größe\n")
}

// once is a file on a disk that is full for a moment.
type once struct{ bytes.Buffer }

func (o *once) Write(p []byte) (int, error) {
	if o.Cap() == 0 {
		o.Grow(1)
		return 0, errFull
	}
	return o.Buffer.Write(p)
}

// TestSummaryError: tables of which a part is not written are an error.
func TestSummaryError(t *testing.T) {
	tl := &Timeline{Duration: 100, Work: []Work{{Name: "k", End: 10, Range: -1}}}
	assert.ErrorIs(t, tl.WriteSummary(new(once)), errFull)
}

// TestWriteError: a trace ends with the first error, and what follows costs nothing.
func TestWriteError(t *testing.T) {
	for name, tl := range map[string]func(n int) *Timeline{
		"ranges": func(n int) *Timeline { return &Timeline{Ranges: make([]Span, n)} },
		"calls":  func(n int) *Timeline { return &Timeline{Calls: make([]Call, n)} },
		"waits":  func(n int) *Timeline { return &Timeline{Ranges: make([]Span, 1), Waits: make([]Wait, n)} },
		"work": func(n int) *Timeline {
			return &Timeline{Ranges: make([]Span, 1), Calls: make([]Call, 1), Work: make([]Work, n)}
		},
		"graphs": func(n int) *Timeline {
			t := &Timeline{Ranges: make([]Span, 20_000), Work: make([]Work, n)}
			for i := range t.Work {
				t.Work[i].Graph, t.Work[i].correlation = 1, uint32(i)
			}
			return t
		},
	} {
		t.Run(name, func(t *testing.T) {
			few, many := tl(20_000), tl(60_000)
			var f full
			require.ErrorIs(t, many.WriteTrace(&f), errFull)
			assert.Equal(t, 1, f.writes)
			cost := func(tl *Timeline) float64 {
				return testing.AllocsPerRun(1, func() { _ = tl.WriteTrace(new(full)) })
			}
			assert.InEpsilon(t, cost(few), cost(many), 0.1, "allocations")
		})
	}
}
