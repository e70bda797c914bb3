package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/parse"
)

// unbound are the functions that the libraries export and no package binds. docs/coverage.md
// lists them.
var unbound = []struct {
	api     string
	pattern *regexp.Regexp
	reason  string
}{
	{"driver", regexp.MustCompile(`^cudbg`), "the debugger's own"},
	{"driver", regexp.MustCompile(`^cuEGLApiInit$`), "no header declares it"},
	{"driver", regexp.MustCompile(`^cuMemGetAttribute(_v2)?$`), "no header declares it"},
	{"runtime", regexp.MustCompile(`^__cuda`), "for code that nvcc compiles"},
	{"runtime", regexp.MustCompile(`^cudaSubgrid`), "no header declares it"},
}

// TestPackagesBind: every function that NVIDIA's libraries export is in the package for them, but
// for those of the table above, each of which some library has. The figures are those of
// docs/coverage.md.
func TestPackagesBind(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository(t), "docs", "coverage.md"))
	require.NoError(t, err)
	needed := map[string]bool{}
	for _, p := range []struct{ name, api, cuda, files string }{
		{"driver", "driver", "13.5", "libcuda/*/libcuda.so.*.*"},
		{"cudart12", "runtime", "12.9", "libcudart/12.*/libcudart.so.*"},
		{"cudart13", "runtime", "13.5", "libcudart/13.*/libcudart.so.*"},
	} {
		t.Run(p.name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(repository(t), ".cache", filepath.FromSlash(p.files)))
			require.NoError(t, err)
			if len(files) == 0 {
				t.Skip("no such library: make libraries gets some")
			}
			a, err := parse.Parse(os.DirFS(fetched(t, p.cuda)), p.api)
			require.NoError(t, err)
			bound := map[string]bool{}
			for _, f := range a.Funcs {
				bound[f.Symbol] = true
			}
			for _, file := range files {
				exported := exports(t, file)
				left := leftOut(t, p.api, exported, bound, needed)
				line := fmt.Sprintf("| %s | %d | %d | %d |", libraryName(file), len(exported), len(exported)-left, left)
				assert.Truef(t, strings.Contains(string(page), line), "docs/coverage.md lacks %s", line)
			}
		})
	}
	for _, u := range unbound {
		if needed[u.api] {
			assert.True(t, needed[u.pattern.String()], "no library exports %s: remove it from the table", u.pattern)
		}
	}
}

// leftOut counts the exported functions that are not bound, each of which the table must know.
// It notes in needed which rows were.
func leftOut(t *testing.T, api string, exported, bound, needed map[string]bool) (n int) {
	needed[api] = true
	for symbol := range exported {
		if bound[symbol] {
			continue
		}
		n++
		known := false
		for _, u := range unbound {
			if u.api == api && u.pattern.MatchString(symbol) {
				known, needed[u.pattern.String()] = true, true
			}
		}
		assert.True(t, known, "%s is exported, and no package binds it", symbol)
	}
	return n
}

// libraryName is a library's name with its version: that of the file, or of the folder that
// make libraries put it into.
func libraryName(file string) string {
	name := filepath.Base(file)
	if strings.Count(name, ".") > 3 {
		return name
	}
	return name + " of CUDA " + filepath.Base(filepath.Dir(file))
}
