package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
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

// TestFolders compares a pinned version with a folder that has none of its libraries, and one function more.
func TestFolders(t *testing.T) {
	dir, err := headers.Find("13.0")
	if err != nil {
		t.Skipf("needs the headers that make generate fetches: %v", err)
	}
	toolkit := t.TempDir()
	include := filepath.Join(toolkit, "include")
	require.NoError(t, os.CopyFS(include, os.DirFS(dir)))
	for _, library := range []string{"nvrtc.h", "nvml.h"} {
		require.NoError(t, os.Remove(filepath.Join(include, library)))
	}
	main := filepath.Join(include, "cuda.h")
	text, err := os.ReadFile(main)
	require.NoError(t, err)
	text = bytes.Replace(text, []byte("CUresult CUDAAPI cuInit("), []byte("CUresult CUDAAPI cuNothing(void);\nCUresult CUDAAPI cuInit("), 1)
	require.NoError(t, os.Chmod(main, 0o644))
	require.NoError(t, os.WriteFile(main, text, 0o644))
	var out, errs bytes.Buffer
	require.NoError(t, run([]string{"-json", "13.0", toolkit}, &out, &errs))
	var changes []change
	require.NoError(t, json.Unmarshal(out.Bytes(), &changes))
	assert.Equal(t, []change{{"driver", "function", "added", "cuNothing", "", "CUresult cuNothing(void)"}}, changes)
	assert.Equal(t, "apidiff: left out nvrtc, which "+toolkit+" does not have\napidiff: left out nvml, which "+toolkit+" does not have\n", errs.String())
	assert.ErrorContains(t, run([]string{"-api", "nvrtc", toolkit, "13.0"}, io.Discard, io.Discard), "no nvrtc.h")
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
		{"no such folder", []string{"./none", "./none"}, "./none is no folder: "},
		{"a folder without headers", []string{".", "."}, ". has no cuda.h, nor does its folder include"},
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
