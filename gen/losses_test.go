package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a newer header lacks is told, and what the program wrote stays quiet.
func TestLosses(t *testing.T) {
	out := t.TempDir()
	frozen := filepath.Join(t.TempDir(), "names.txt")
	gen := func(declarations string) string {
		c := smallConfig(include(t, declarations, nil))
		c.out, c.frozen = out, frozen
		var notices bytes.Buffer
		require.NoError(t, build(c, &notices))
		return notices.String()
	}
	const kept = "int cuKeep(int x);\n"
	const other = "int cuOther(int x);\nint cuOtherResult(void);\nint cuSame(int x);\n"
	assert.Empty(t, gen(kept+other+"#define CU_GONE 1\n#define cuTake cuTake_v2\nint cuTake(int x);\nint cuGone(int x);\ntypedef struct CUgone_st { int x; } CUgone;\n"),
		"nothing was there before")
	require.NoError(t, os.WriteFile(filepath.Join(out, "own.go"), []byte("package small\n\nfunc Own() {}\n"), 0o666))

	got := gen(kept + "int cuOther(unsigned x);\nvoid cuOtherResult(void);\nint cuSame(int y);\n#define cuTake cuTake_v3\nint cuTake(int x);\nint cuRenamed(int x);\n#define CU_MAKE(x) ((x) + 1)\n#define _HIDDEN(x) x\nstatic inline int cuMake(void) { return cuKeep(1); }\n")
	assert.Equal(t, []string{
		"gen: left out, as they are no constants: CU_MAKE",
		"gen: left out, as the header defines them and no library exports them: cuMake",
		"gen: the package in " + out + " loses functions that this header does not declare: CuGone, CuTake_v2",
		"gen: the package in " + out + " loses types that this header does not declare: CUgone",
		"gen: the package in " + out + " loses values that this header does not declare: CU_GONE",
		"gen: the package in " + out + " changes functions that this header declares with other types: CuOther, CuOtherResult",
		"gen: the frozen name cuGone means nothing in this header",
		"gen: the name cuTake is frozen for cuTake_v2, which this header does not declare: it means cuTake_v3 now",
		"",
	}, strings.Split(got, "\n"))
	assert.FileExists(t, filepath.Join(out, "own.go"))
}

func TestList(t *testing.T) {
	var names []string
	for i := range 45 {
		names = append(names, fmt.Sprintf("N%02d", 44-i))
	}
	assert.Equal(t, "N00, N01", list([]string{"N01", "N00"}))
	assert.Regexp(t, "^N00, N01, .*, N39 and 5 more$", list(names))
}

// TestQuirksFile: on the day of a release a user gets past what the table does
// not know.
func TestQuirksFile(t *testing.T) {
	c := smallConfig(include(t, "typedef void (*CUthingFn)(int x);\nint cuTake(CUthingFn f);\n#define CU_NAME \"thing\"\n", nil))
	c.out = filepath.Join(t.TempDir(), "out")
	err := build(c, os.Stderr)
	require.ErrorContains(t, err, "callback type CUthingFn has no quirk row")
	assert.NoDirExists(t, c.out)

	dir := folder(t, map[string]string{
		"quirks.json": err.Error()[strings.Index(err.Error(), "[\n"):],
		"broken.json": "[\n{\"api\": \"drive\"}]",
	})
	c.quirks = filepath.Join(dir, "quirks.json")
	require.NoError(t, build(c, os.Stderr))
	assert.Contains(t, words(string(contents(t, c.out)["zthing.go"])), "CUDA runs it on a thread that CUDA does not name: it must not be a Go function")

	c.quirks = filepath.Join(dir, "broken.json")
	assert.ErrorContains(t, build(c, os.Stderr), `broken.json:2: "api" is "drive": it is driver or runtime`)
	c.quirks = filepath.Join(dir, "none.json")
	assert.ErrorContains(t, build(c, os.Stderr), "-quirks: open ")
}
