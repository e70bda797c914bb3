//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// event is an event of the Trace Event Format, which Perfetto and chrome://tracing read, with the fields that it may have here.
type event struct {
	Ph, Name, Cat, BP string
	PID, TID, ID      *int64
	TS, Dur           *float64
	Args              map[string]any
}

// track is where a bar is.
type track struct{ pid, tid int64 }

// written reads a trace as written, and checks it: what each event must have, that the bars of a track nest, and that
// arrows lead from a bar to a later one.
func written(t testing.TB, tl *Timeline) []event {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, tl.WriteTrace(&b))
	var trace struct {
		DisplayTimeUnit string
		OtherData       map[string]any
		TraceEvents     []event
	}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&trace))
	require.False(t, d.More())
	require.Contains(t, []string{"ms", "ns"}, trace.DisplayTimeUnit)
	bars := map[track][]event{}
	from, to := map[int64]event{}, map[int64]event{}
	for _, e := range trace.TraceEvents {
		require.NotNil(t, e.PID, e)
		if e.Ph != "M" {
			require.NotNil(t, e.TID, e)
			require.NotNil(t, e.TS, e)
			require.Less(t, *e.TID, int64(1)<<31, e)
		}
		switch e.Ph {
		case "M":
			argument, known := map[string]string{
				"process_name": "name", "thread_name": "name", "process_labels": "labels", "process_sort_index": "sort_index", "thread_sort_index": "sort_index",
			}[e.Name]
			require.True(t, known, e.Name)
			require.Len(t, e.Args, 1, e)
			switch value := e.Args[argument]; argument {
			case "sort_index":
				require.IsType(t, 0.0, value, e)
			default:
				require.IsType(t, "", value, e)
			}
			require.Equal(t, strings.HasPrefix(e.Name, "thread_"), e.TID != nil, e)
		case "X":
			require.NotNil(t, e.Dur, e)
			require.GreaterOrEqual(t, *e.Dur, 0.0, e)
			require.NotEmpty(t, e.Name, e)
			at := track{*e.PID, *e.TID}
			bars[at] = append(bars[at], e)
		case "s":
			require.NotContains(t, from, *e.ID)
			from[*e.ID] = e
		case "f":
			require.Equal(t, "e", e.BP)
			require.NotContains(t, to, *e.ID)
			to[*e.ID] = e
		default:
			require.Fail(t, "an event of another kind", e.Ph)
		}
	}
	for at, all := range bars {
		nested(t, at, all)
	}
	require.Len(t, to, len(from))
	for id, s := range from {
		f := to[id]
		require.NotNil(t, f.TS, "an arrow leads nowhere")
		require.Equal(t, []string{s.Name, s.Cat}, []string{f.Name, f.Cat}, "the ends of an arrow belong together by these, too")
		assert.LessOrEqual(t, *s.TS, *f.TS+20, "an arrow leads back")
		for _, e := range []event{s, f} {
			assert.True(t, slices.ContainsFunc(bars[track{*e.PID, *e.TID}], func(b event) bool { return *b.TS <= *e.TS && *e.TS <= *b.TS+*b.Dur }), "an arrow has no bar")
		}
	}
	return trace.TraceEvents
}

// nested checks that bars contain each other or lie apart.
func nested(t testing.TB, at track, bars []event) {
	t.Helper()
	slices.SortStableFunc(bars, func(a, b event) int { return cmp.Or(cmp.Compare(*a.TS, *b.TS), cmp.Compare(*b.Dur, *a.Dur)) })
	var around []float64 // when they end
	for _, b := range bars {
		end := *b.TS + *b.Dur
		for len(around) > 0 && around[len(around)-1] <= *b.TS+0.0005 {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			require.LessOrEqual(t, end, around[len(around)-1]+0.0015, "%v: %s crosses the bar around it", at, b.Name)
		}
		around = append(around, end)
	}
}
