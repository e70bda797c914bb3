package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func some(ns, allocs float64) *figures {
	return &figures{Median: ns, Min: ns - 1, Operations: 10, Allocs: allocs}
}

// example is a report with all that a row can have.
func example() *report {
	r := &report{Header: header{GPU: "Some GPU", Driver: "580.1", CUDA: "13.0", Library: "/lib/libcuda.so.1", CPUs: 16, Go: "go1.26", Date: "2026-01-02 03:04:05"}}
	r.add(&result{Name: emptyCall, C: some(1.5, 0), Raw: some(37, 0)}, nil)
	r.add(&result{Name: "event record", C: some(144, 0), Raw: some(198, 0), Safe: some(260, 0)}, []target{rawCall, safeCall})
	r.add(&result{Name: "copy 64 MiB to device", Bytes: largest, C: some(1_220_000, 0), Raw: some(1_221_000, 0), Safe: some(1_220_500, 0.25)}, []target{bandwidth})
	r.add(&result{Name: "async alloc and free", Error: "cuda: NewBufferAsync: CUDA_ERROR_NOT_SUPPORTED", unsupported: true}, []target{safeCall})
	return r
}

// exampleGroup has two ways in each of two cases, and a figure that is missing.
func exampleGroup() *grouped {
	p := &grouped{Name: "some <group>", Columns: []string{"p50 µs", "threads", "p50/C"}, plot: []string{"p50 µs", "p50/C"}}
	for _, c := range []struct {
		name string
		c, g float64
	}{{"short", 9.876, 14}, {"long", 2000, 2100}} {
		inC, inGo := newLine(c.name, "C & co"), newLine(c.name, "Go")
		inC.Values["p50 µs"], inGo.Values["p50 µs"] = c.c, c.g
		inGo.Values["threads"] = 3
		inC.ratio("p50/C", "p50 µs", inC)
		inGo.ratio("p50/C", "p50 µs", inC)
		inGo.atMost("p50/C", 1.1)
		p.Lines = append(p.Lines, inC, inGo)
	}
	return p
}

func TestTable(t *testing.T) {
	r := example()
	var out bytes.Buffer
	table := newTable(&out, []row{{name: "copy 64 MiB to device"}, {name: emptyCall}})
	require.NoError(t, table.begin(&r.Header))
	require.NoError(t, table.columns())
	for _, result := range r.Rows {
		require.NoError(t, table.line(result))
	}
	require.NoError(t, table.group(exampleGroup()))
	require.NoError(t, table.group(&grouped{Name: "other", Error: "broken"}))
	assert.Equal(t, strings.TrimPrefix(`
Some GPU, driver 580.1, CUDA 13.0 (/lib/libcuda.so.1)
16 CPUs, go1.26, 2026-01-02 03:04:05

                            C ns     raw ns    safe ns  safe/C  safe-raw  allocs          GB/s  targets
empty cgo call               1.5       37.0                                  0/-
event record               144.0      198.0      260.0    1.81      62.0     0/0                raw <= C + cgo + 20 ok, safe <= raw + 50 missed
copy 64 MiB to device    1220000    1221000    1220500    1.00    -500.0  0/0.25         55/55  safe >= 0.99 of C's GB/s ok
async alloc and free   cuda: NewBufferAsync: CUDA_ERROR_NOT_SUPPORTED

some <group>    p50 µs  threads    p50/C  targets
short, C & co     9.88              1.00
short, Go         14.0        3     1.42  p50/C <= 1.1 missed
long, C & co      2000              1.00
long, Go          2100        3     1.05  p50/C <= 1.1 ok

other  broken
`, "\n"), out.String())
}

func TestJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	r := example()
	r.Groups = append(r.Groups, exampleGroup())
	require.NoError(t, r.writeFile(file))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	golden(t, "testdata/example.json", got)
}

func TestTargets(t *testing.T) {
	tests := []struct {
		name         string
		target       target
		c, raw, safe *figures
		want         bool
	}{
		{"raw call, at the limit", rawCall, some(100, 0), some(157, 0), nil, true},
		{"raw call, beyond", rawCall, some(100, 0), some(158, 0), nil, false},
		{"raw call that allocates", rawCall, some(100, 0), some(101, 0.01), nil, false},
		{"safe call, at the limit", safeCall, nil, some(100, 0), some(150, 0), true},
		{"safe call, beyond", safeCall, nil, some(100, 0), some(151, 0), false},
		{"safe call that allocates", safeCall, nil, some(100, 0), some(100, 1), false},
		{"launch, at the limit", launch, some(2000, 0), nil, some(2200, 0), true},
		{"launch, beyond", launch, some(2000, 0), nil, some(2201, 0), false},
		{"launch that allocates", launch, some(2000, 0), nil, some(2000, 1), false},
		{"launch with 3 arguments, at the limit", launch3, some(2000, 0), nil, some(2140, 0), true},
		{"launch with 3 arguments, beyond", launch3, some(2000, 0), nil, some(2141, 0), false},
		{"batch, at the limit", batch, some(10_000, 0), nil, some(10_200, 5), true},
		{"batch, beyond", batch, some(10_000, 0), nil, some(10_201, 0), false},
		{"copy, at the limit", bandwidth, some(99, 0), nil, some(100, 9), true},
		{"copy, beyond", bandwidth, some(98, 0), nil, some(100, 9), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, tt.target.met(&result{C: tt.c, Raw: tt.raw, Safe: tt.safe}, 37))
		})
	}
}

func TestFailedRows(t *testing.T) {
	r := example()
	assert.Zero(t, r.failed(), "what the machine lacks is no failure")
	r.add(&result{Name: "event query", Error: "broken"}, []target{rawCall})
	assert.Equal(t, 1, r.failed())
	assert.Empty(t, r.Rows[len(r.Rows)-1].Targets)
	r.Groups = append(r.Groups, &grouped{Error: "broken"}, &grouped{Error: "not here", unsupported: true})
	assert.Equal(t, 2, r.failed())
}

func TestCommandLine(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
		use  bool
	}{
		{"an argument", []string{"extra"}, `unexpected argument "extra"`, true},
		{"a broken pattern", []string{"-run", "("}, "missing closing )", true},
		{"a broken pattern of groups", []string{"-group", "("}, "missing closing )", true},
		{"no rounds", []string{"-rounds", "0"}, "-rounds 0", true},
		{"a threshold of nothing", []string{"-threshold", "0"}, "-threshold 0", true},
		{"nothing to compare with", []string{"-compare", filepath.Join(t.TempDir(), "old.json")}, "old.json: no such file", false},
		{"no driver", []string{"-lib", t.TempDir()}, "cuda: ", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			err := run(tt.args, &out, &errs)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.use, errors.As(err, new(usageError)))
			assert.Empty(t, out.String())
		})
	}
}
