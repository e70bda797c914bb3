package main

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// otherHeader declares a library that has nothing to do with CUDA, except for one function that other.h gives a name of C's.
const otherHeader = `#include "other_types.h"
typedef struct other_ctx *other_ctx_t;
typedef int other_ids[4];
typedef struct other_color { struct { int r, g; }; union { int all; float weight; }; } other_color;
typedef void (*other_visit_fn)(void *user);
typedef void (*other_done_fn)(void *user);
int other_open(other_ctx_t *ctx);
int other_visit(other_ctx_t ctx, other_visit_fn visit, void *user);
int other_later(other_ctx_t ctx, other_done_fn done, void *user);
int other_take(other_ids ids, other_color *color);
`

// TestOtherLibrary: nothing in the package of a library that is not CUDA's speaks of CUDA's functions or of NVIDIA's text,
// and gen names the functions in a header that the row does not have.
func TestOtherLibrary(t *testing.T) {
	dir := folder(t, map[string]string{
		"include/other.h":       otherHeader,
		"include/other_types.h": "int other_types_init(void);\nint strange(void);\nint other_types_init(void);\n",
		"other.json":            `{"api": "other", "headers": ["other.h"], "prefix": "other", "release": "1.0", "callback": "the calling thread, inside the call", "library": {"names": ["libother.so.1"]}}`,
		"quirks.json":           `[{"api": "other", "quirk": "callback", "name": "other_done_fn", "thread": "a thread of its own", "go": true, "reason": "measured"}]`,
	})
	out := filepath.Join(dir, "out")
	var notice bytes.Buffer
	require.NoError(t, run([]string{"-row", filepath.Join(dir, "other.json"), "-headers", filepath.Join(dir, "include"), "-quirks", filepath.Join(dir, "quirks.json"),
		"-docs", "header", "-out", out, "-import", "example.com/other", "-package", "other", "-cc", "none"}, &notice))
	assert.Contains(t, notice.String(), "gen: left out, as other_types.h is not in \"own\": other_types_init\n")
	assert.Contains(t, notice.String(), "gen: the comments of example.com/other are the header's text: its licence says where")
	require.NoError(t, run([]string{"-row", filepath.Join(dir, "other.json"), "-headers", filepath.Join(dir, "include"), "-quirks", filepath.Join(dir, "quirks.json"),
		"-out", out, "-import", "example.com/other", "-package", "other", "-cc", "none"}, &notice))
	all := ""
	files := contents(t, out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all += string(files[name])
	}
	all = strings.ReplaceAll(words(all), "// ", "")
	for _, want := range []string{
		"Other_ctx_t is a handle, other_ctx_t in C; 0 is none.",
		"Other_ids is other_ids in C.",
		"The library runs it on the calling thread, inside the call: it must not be a Go function",
		"The library runs it on a thread of its own, so it may also be a Go function exported to C. What",
		"R is the member r, where it lies in u.",
		"Weight is the member weight of the union, where it lies in u.",
		`such as "other_open": nil`,
		`return "other: " + e.Library`,
	} {
		assert.Contains(t, all, want)
	}
	for _, not := range []string{"CUDA's", "CUDA function", "CUDA runs", "cuStream", `"cuda: `, "NVIDIA's"} {
		assert.NotContains(t, all, not)
	}
}
