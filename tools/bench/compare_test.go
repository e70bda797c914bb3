package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// later is a run with one row, whose C takes c ns, and one group with a line.
func later(c, raw, safe float64, values map[string]float64) *report {
	r := &report{Header: example().Header}
	r.add(&result{Name: "event record", C: some(c, 0), Raw: some(raw, 0), Safe: some(safe, 0)}, nil)
	r.Groups = []*grouped{{
		Name: "peers", Columns: []string{"GB/s", "launch µs", "wall ms", "GB/s/C", "launch/C", "wall/raw"},
		Lines: []*line{{Case: "0 to 1", Way: "safe", Values: values}},
	}}
	return r
}

func TestCompare(t *testing.T) {
	const head = "\ncompared with Some GPU, driver 580.1, CUDA 13.0, 2026-01-02 03:04:05\n"
	const same = "no ratio differs by more than 10 % and 15 ns\n"
	values := func(column string, v float64) map[string]float64 { return map[string]float64{column: v} }
	tests := []struct {
		name     string
		old, now *report
		want     string
		err      string
	}{
		{"the same", later(100, 150, 200, nil), later(100, 150, 200, nil), same, ""},
		{"a slower machine", later(100, 150, 200, nil), later(200, 300, 400, nil), same, ""},
		{"at the limit", later(1000, 1500, 2000, nil), later(1000, 1500, 2200, nil), same, ""},
		{"beyond the limit", later(1000, 1500, 2000, nil), later(1000, 1500, 2201, nil), "slower  event record, safe/C: 2.20, was 2.00\n", "ratios that got worse by more than 10 % since 2026-01-02 03:04:05: 1"},
		{"beyond the limit, of few nanoseconds", later(50, 50, 60, nil), later(50, 50, 74, nil), same, ""},
		{"of one nanosecond more", later(50, 50, 60, nil), later(50, 50, 76, nil), "slower  event record, safe/C: 1.52, was 1.20\n", "ratios that got worse by more than 10 % since 2026-01-02 03:04:05: 1"},
		{"faster", later(1000, 1500, 2000, nil), later(1000, 1500, 1800, nil), "faster  event record, safe/C: 1.80, was 2.00\n", ""},
		{"as much of C, which is faster", later(1000, 1500, 2000, nil), later(500, 1500, 1000, nil), "slower  event record, raw/C: 3.00, was 1.50\n", "ratios that got worse by more than 10 % since 2026-01-02 03:04:05: 1"},
		{
			"less bandwidth", later(1, 1, 1, values("GB/s/C", 1)), later(1, 1, 1, values("GB/s/C", 0.9)),
			"slower  peers: 0 to 1, safe, GB/s/C: 0.90, was 1.00\n", "ratios that got worse by more than 10 % since 2026-01-02 03:04:05: 1",
		},
		{
			"more bandwidth", later(1, 1, 1, values("GB/s/C", 0.8)), later(1, 1, 1, values("GB/s/C", 1)),
			"faster  peers: 0 to 1, safe, GB/s/C: 1.00, was 0.80\n", "",
		},
		{
			"a group's microseconds", later(1, 1, 1, values("launch/C", 1)),
			later(1, 1, 1, map[string]float64{"launch/C": 1.2, "launch µs": 1.2}), "slower  peers: 0 to 1, safe, launch/C: 1.20, was 1.00\n", "ratios that got worse by more than 10 % since 2026-01-02 03:04:05: 1",
		},
		{
			"a group's few nanoseconds", later(1, 1, 1, values("launch/C", 1)),
			later(1, 1, 1, map[string]float64{"launch/C": 1.2, "launch µs": 0.06}), same, "",
		},
		{
			"only before", later(1, 1, 1, values("wall/raw", 1)), later(1, 1, 1, nil),
			"only before  peers: 0 to 1, safe\n" + same, "",
		},
		{
			"only now", later(1, 1, 1, values("wall/raw", 1)), later(1, 1, 1, map[string]float64{"wall/raw": 1, "launch/C": 1}),
			"only now  peers: 0 to 1, safe, launch/C\n" + same, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := tt.now.compare(&out, tt.old, 10)
			assert.Equal(t, head+tt.want, out.String())
			if tt.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.err)
			}
		})
	}
}

func TestCompareWithAnother(t *testing.T) {
	old := later(1, 1, 1, nil)
	old.Header.GPU = "Other GPU"
	var out bytes.Buffer
	require.NoError(t, later(1, 1, 1, nil).compare(&out, old, 10))
	assert.Contains(t, out.String(), "another GPU or driver: ")
}

// TestOnly: what -run and -group leave out is not missing.
func TestOnly(t *testing.T) {
	old := example()
	old.Groups = append(old.Groups, exampleGroup())
	rows := old.only(choice{rows: regexp.MustCompile("^event")})
	require.Len(t, rows.Rows, 2)
	assert.Equal(t, emptyCall, rows.Rows[0].Name)
	assert.Equal(t, "event record", rows.Rows[1].Name)
	assert.Empty(t, rows.Groups)
	groups := old.only(choice{groups: regexp.MustCompile("some")})
	assert.Empty(t, groups.Rows)
	assert.Len(t, groups.Groups, 1)
}

func TestReadReport(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"no JSON", "some text", "want a file that bench -json wrote"},
		{"cut off", `{"header": {"gpu": "x"}, "rows": [`, "want a file that bench -json wrote"},
		{"another program's", `{"versions": {"C": "C"}}`, "it has no header, or neither rows nor groups"},
		{"nothing measured", `{"header": {"gpu": "x"}}`, "it has no header, or neither rows nor groups"},
		{"no time", `{"header": {"gpu": "x"}, "rows": [{"name": "a", "c": {"medianNs": 5}, "raw": {}}]}`, "a, raw/C is 0"},
		{"nothing in its lists", `{"header": {"gpu": "x"}, "rows": [null], "groups": [null, {"columns": ["a/C"], "lines": [null]}]}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "old.json")
			require.NoError(t, os.WriteFile(file, []byte(tt.text), 0o666))
			r, err := readReport(file)
			if tt.want == "" {
				require.NoError(t, err)
				assert.Empty(t, r.shares())
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, file)
		})
	}
	_, err := readReport(filepath.Join(t.TempDir(), "none.json"))
	assert.ErrorIs(t, err, os.ErrNotExist)

	r, err := readReport("testdata/example.json")
	require.NoError(t, err)
	assert.NotEmpty(t, r.shares())
}
