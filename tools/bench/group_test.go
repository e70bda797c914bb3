package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func TestPercentile(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(100 - i) // 100 to 1
	}
	tests := []struct {
		name   string
		values []int64
		p      float64
		want   int64
	}{
		{"one value", []int64{7}, 99, 7},
		{"the middle of three", []int64{9, 1, 5}, 50, 5},
		{"the lower of two", []int64{9, 1}, 50, 1},
		{"half of a hundred", hundred, 50, 50},
		{"99 of a hundred", hundred, 99, 99},
		{"all", hundred, 100, 100},
		{"none", hundred, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			first := tt.values[0]
			assert.Equal(t, tt.want, percentile(tt.values, tt.p))
			assert.Equal(t, first, tt.values[0], "the values stay in order")
		})
	}
}

func TestLine(t *testing.T) {
	whole, part := newLine("", "whole"), newLine("case", "part")
	whole.Values["ms"], part.Values["ms"] = 4, 1
	part.ratio("share", "ms", whole)
	part.ratio("of nothing", "s", whole)
	assert.Equal(t, map[string]float64{"ms": 1, "share": 0.25}, part.Values)
	part.atMost("share", 0.25)
	part.atMost("ms", 0.9)
	part.atMost("of nothing", 1)
	part.Values["rate"] = 8
	part.atLeast("rate", 8)
	part.atLeast("rate", 8.1)
	part.atLeast("of nothing", 0)
	var met []bool
	for _, v := range part.Targets {
		met = append(met, v.Met)
	}
	assert.Equal(t, []bool{true, false, false, true, false, false}, met)
	assert.Equal(t, "share <= 0.25 ok, ms <= 0.9 missed, of nothing <= 1 missed, rate >= 8 ok, rate >= 8.1 missed, of nothing >= 0 missed",
		verdicts(part.Targets))
	assert.InDelta(t, 0.9, part.limit("ms"), 0)
	assert.InDelta(t, 8, part.limit("rate"), 0)
	assert.Zero(t, part.limit("other"))
	assert.Equal(t, []string{"whole", "case, part"}, []string{whole.name(), part.name()})
}

func TestGroupFails(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name        string
		err         error
		missing     error
		unsupported bool
	}{
		{"by itself", broken, nil, false},
		{"not supported", driver.CUDA_ERROR_NOT_SUPPORTED, nil, true},
		{"for a function that the driver lacks", nil, errors.ErrUnsupported, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := group{name: "some", run: func(*gpu, effort) ([]*line, error) { return []*line{newLine("", "way")}, tt.err }}
			result, err := p.measure(&gpu{missing: tt.missing}, effort{})
			require.Error(t, err)
			assert.Equal(t, err.Error(), result.Error)
			assert.Equal(t, tt.unsupported, result.unsupported)
			assert.Empty(t, result.Lines)
		})
	}
}

func TestChoose(t *testing.T) {
	some := []group{{name: "wait"}, {name: "waiters"}, {name: "graph replay"}}
	tests := []struct {
		name         string
		rows, groups string
		wantRows     bool
		want         []string
	}{
		{"everything", "", "", true, []string{"wait", "waiters", "graph replay"}},
		{"rows alone", "copy", "", true, nil},
		{"groups alone", "", "wait", false, []string{"wait", "waiters"}},
		{"both", "copy", "^wait$", true, []string{"wait"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := choose(tt.rows, tt.groups)
			require.NoError(t, err)
			assert.Equal(t, tt.wantRows, c.rows != nil)
			var got []string
			for _, p := range c.of(some) {
				got = append(got, p.name)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestTogether(t *testing.T) {
	broken := errors.New("broken")
	done := make([]bool, 10)
	err := together(len(done), func(i int) error {
		done[i] = true
		if i == 3 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	assert.NotContains(t, done, false)
}

func TestTimed(t *testing.T) {
	broken := errors.New("broken")
	n := 0
	w := sampled{do: timed(func() error {
		if n++; n > 8 {
			return broken
		}
		return nil
	})}
	require.NoError(t, w.round(5))
	assert.Len(t, w.ns, 5, "the first three do not count")
	require.ErrorIs(t, w.round(5), broken)
	assert.Len(t, w.ns, 5)
}

// golden compares with a file, which -update writes.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

func TestPlot(t *testing.T) {
	got := exampleGroup().svg(&example().Header)
	golden(t, "testdata/example.svg", got)
	for d := xml.NewDecoder(bytes.NewReader(got)); ; {
		_, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
}

func TestPlotsOfWhatWasMeasured(t *testing.T) {
	dir := t.TempDir() + "/new"
	r := &report{Groups: []*grouped{{Name: "not this one", Error: "broken"}, {Name: "this one"}}}
	require.NoError(t, r.writePlots(dir))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	assert.Equal(t, "this-one.svg", files[0].Name())
}

func TestMicrosAndMillis(t *testing.T) {
	assert.InDelta(t, 1.5, micros(int64(1500)), 0)
	assert.InDelta(t, 1500, micros(1500*time.Microsecond), 0)
	assert.InDelta(t, 1.5, millis(1500*time.Microsecond), 0)
}
