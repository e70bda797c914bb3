package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestLoses(t *testing.T) {
	tests := []struct {
		name       string
		safe, peer float64
		count      bool
		want       bool
	}{
		{name: "faster", safe: 90, peer: 100},
		{name: "by a crossing and noise", safe: 145, peer: 100},
		{name: "by more", safe: 146, peer: 100, want: true},
		{name: "by 5 %", safe: 10_500, peer: 10_000},
		{name: "by more than 5 %", safe: 10_501, peer: 10_000, want: true},
		{name: "by a number", safe: 500, peer: 100, count: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &figures{Unit: "ns", Figure: map[string]float64{"C": 1, "raw": 1, "safe": tt.safe, "cupy": tt.peer, "torch": 1e9}}
			best := "cupy"
			if tt.count {
				f.Unit, best = "", ""
			}
			assert.Equal(t, best, f.best(tracked))
			assert.Equal(t, tt.want, f.loses("safe", 30))
			assert.False(t, f.loses("bulk", 30), "not measured")
		})
	}
	f := &figures{Unit: "ns", Figure: map[string]float64{"C": 1, "raw": 1, "safe": 1e6, "cudarc-nt": 1}}
	assert.Empty(t, f.best(tracked))
	assert.False(t, f.loses("safe", 30), "no peer")
}

// TestStarts: a row loses if it does in each start, and its spread is that of the one that differs most.
func TestStarts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		safe   []float64
		want   bool
		spread float64
	}{
		{"in each", []float64{200, 220, 210}, true, 0.1},
		{"not in one", []float64{200, 100, 210}, false, 1.1},
		{"less than its peer", []float64{100, 100, 100}, false, 0.05},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r results
			for i, ns := range tt.safe {
				r.add(row{name: "a", unit: "ns"}, map[string][]float64{"safe": {ns + 1, ns}, "cupy": {100 + 2.5*float64(i)}, "torch": {1000 * float64(i+1)}})
			}
			assert.Equal(t, tt.want, r.Rows[0].loses("safe", 30))
			assert.InDelta(t, tt.spread, r.Rows[0].spread(), 1e-9)
		})
	}
}

// example is a run with all that a table can have. Its figures are made up.
func example() *results {
	r := &results{
		GPU: "Some GPU", Driver: "580.1", CUDA: "13.0", CPUs: 16, Go: "go1.26", Date: "2026-01-02 03:04:05", Starts: 1, Crossing: 30,
		Contestants: []participant{
			{"C", "C", ""}, {"raw", "cudabind, package driver", ""}, {"safe", "cudabind, package safe", ""}, {"bulk", "many at once", ""},
			{"cudarc", "cudarc 0.1", ""}, {"cupy", "", "no module named 'cupy'"},
		},
	}
	of := func(ns ...float64) map[string][]float64 {
		all := map[string][]float64{}
		for i, name := range []string{"C", "raw", "safe", "cudarc", "bulk"}[:len(ns)] {
			all[name] = []float64{ns[i], ns[i] + 1, ns[i] - 1}
		}
		return all
	}
	r.add(row{name: "event record", unit: "ns"}, of(150, 180, 195, 160))
	r.add(row{name: "event query, done", unit: "ns"}, of(120, 150, 175, 90))
	r.add(row{name: "100 launches", unit: "µs"}, of(250_000, 260_000, 290_000, 255_000, 280_000))
	r.add(row{name: "100 launches", unit: "µs"}, of(251_000, 260_000, 300_000, 255_000, 282_000))
	r.add(row{name: "graph of 1: launch", unit: "µs"}, of(1000, 1100, 1149, 1200))
	r.add(row{name: "async alloc and free, 4 KiB", unit: "ns"}, of(1000, 1000, 1400, 1300))
	r.add(row{name: "a | b", unit: "ms"}, of(2e6, 2e6, 4e6, 3e6))
	r.add(row{name: "more threads"}, of(128, 110, 2, 128))
	r.add(row{name: "nothing measured", unit: "ns"}, nil)
	r.note(note{"cudarc", "stream query", none, false})
	r.note(note{"all", "a row", "no time left", false})
	r.note(note{"cudarc", "a row", "wrong result", true})
	r.note(note{"all", "the last row", "no time left", false})
	r.note(note{"all", "the last row", "no time left", false})
	return r
}

func TestTable(t *testing.T) {
	golden(t, "testdata/table.txt", example().text())
	golden(t, "testdata/page.md", example().page("page.svg"))
	golden(t, "testdata/page.svg", example().svg())
}

// TestFailed: what peers cannot do is no failure of the run.
func TestFailed(t *testing.T) {
	r := example()
	require.NoError(t, r.failed())
	r.note(note{"C", "a row", "cuInit: error 3", true})
	r.note(note{"safe", "a row", "5 of 50", false})
	r.Contestants[2].Absent = "no GPU"
	assert.EqualError(t, r.failed(), "safe: no GPU\nC, a row: cuInit: error 3")
}

func TestJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peers.json")
	require.NoError(t, example().writeFile(file))
	r, err := readResults(file)
	require.NoError(t, err)
	assert.Equal(t, example(), r)

	page := filepath.Join(t.TempDir(), "peers.md")
	var out, errs bytes.Buffer
	require.NoError(t, run([]string{"-from", file, "-page", page}, nil, &out, &errs))
	assert.Equal(t, example().text(), out.String())
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, example().page("peers.svg"), string(text))
	text, err = os.ReadFile(filepath.Join(filepath.Dir(page), "peers.svg"))
	require.NoError(t, err)
	assert.Equal(t, example().svg(), string(text))
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}
