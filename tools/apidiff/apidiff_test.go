package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/headers"
)

func TestDiff(t *testing.T) {
	from := facts{
		{"function", "cuOld"}: "a", {"function", "cuKept"}: "b", {"function", "cuPlain"}: "p",
		{plainName, "cuMoved"}: "cuMoved_v2", {"enumerator", "E.V"}: "1", {"constant", "N_MAX"}: "3", {"constant", "M"}: "3",
	}
	to := facts{
		{"function", "cuNew"}: "c", {"function", "cuKept"}: "b", {"function", "cuPlain"}: "p",
		{plainName, "cuMoved"}: "cuMoved_v3", {plainName, "cuPlain"}: "cuPlain_v2", {"enumerator", "E.V"}: "2", {"constant", "N_MAX"}: "4", {"constant", "M"}: "4",
	}
	got := diff("driver", from, to)
	assert.Equal(t, []change{
		{"driver", "function", "added", "cuNew", "", "c"},
		{"driver", "function", "removed", "cuOld", "a", ""},
		{"driver", plainName, "remapped", "cuMoved", "cuMoved_v2", "cuMoved_v3"},
		{"driver", plainName, "remapped", "cuPlain", "cuPlain", "cuPlain_v2"},
		{"driver", "enumerator", "changed", "E.V", "1", "2"},
		{"driver", "constant", "changed", "M", "3", "4"},
		{"driver", "constant", "changed", "N_MAX", "3", "4"},
	}, got)
	assert.Empty(t, diff("driver", from, from))
}

// TestVersions compares two pinned versions whose differences are known.
func TestVersions(t *testing.T) {
	for _, v := range []string{"12.4", "13.0"} {
		if _, err := headers.Find(v); err != nil {
			t.Skipf("needs the headers that make generate fetches: %v", err)
		}
	}
	var out bytes.Buffer
	require.NoError(t, run([]string{"-json", "12.4", "13.0"}, &out, io.Discard))
	var changes []change
	require.NoError(t, json.Unmarshal(out.Bytes(), &changes))
	for _, want := range []change{
		{"driver", plainName, "remapped", "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v4"},
		{"driver", plainName, "remapped", "cuMemAdvise", "cuMemAdvise", "cuMemAdvise_v2"},
		{"runtime", "struct", "changed", "cudaDeviceProp", "1032 bytes, aligned to 8", "1008 bytes, aligned to 8"},
		{"runtime", "enumerator", "changed", "cudaDeviceAttr.cudaDevAttrMax", "135", "148"},
	} {
		assert.Contains(t, changes, want)
	}
	count := map[string]int{}
	for _, c := range changes {
		count[c.API+" "+c.Kind+" "+c.What]++
	}
	assert.Zero(t, count["driver function removed"], "the driver never lost a symbol")
	assert.Equal(t, 46, count["driver function added"])
	assert.NotZero(t, count["runtime function removed"])
	assert.NotZero(t, count["runtime function changed"])
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeHTML(&b, "1.0", "2.0", []change{{"driver", "function", "changed", "cuX", "int cuX(a<b>)", "int cuX(c)"}}))
	page := b.String()
	assert.Contains(t, page, "What changes from CUDA 1.0 to 2.0")
	assert.Contains(t, page, "int cuX(a&lt;b&gt;)")
	assert.NotRegexp(t, `(src|href)=`, page, "the page needs nothing beside it")
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"one version", []string{"12.4"}, "which two versions"},
		{"unknown version", []string{"12.4", "99.9"}, "99.9"},
		{"unknown API", []string{"-api", "nvcuvid", "12.4", "13.0"}, "driver or runtime"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "unknown version") {
				if _, err := headers.Find("12.4"); err != nil {
					t.Skipf("needs the headers that make generate fetches: %v", err)
				}
			}
			assert.ErrorContains(t, run(tt.args, io.Discard, io.Discard), tt.want)
		})
	}
}
