package main

import (
	"cmp"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldens are small headers of our own, one for each kind of declaration, and
// the files that show what becomes of them.
var goldens = []struct {
	name, api string
	files     []string
}{
	{"function", "driver", []string{"zthing.go", "ztable.go", "zcall.c", "zprotos.h", "ztypes.h"}},
	{"result", "runtime", []string{"zthing.go", "zprotos.h", "ztypes.h", "zstatus.go"}},
	{"enum", "driver", []string{"zenums.go", "zconsts.go", "ztypes.h"}},
	{"struct", "driver", []string{"zstructs.go", "ztypes.h"}},
	{"union", "driver", []string{"zstructs.go", "ztypes.h"}},
	{"handle", "driver", []string{"ztypes.go", "zconsts.go", "ztypes.h", "zprotos.h"}},
	{"scalar", "driver", []string{"ztypes.go", "ztypes.h", "zprotos.h"}},
	{"alias", "driver", []string{"ztypes.go", "zstructs.go", "zconsts.go", "zthing.go", "ztypes.h"}},
	{"callback", "driver", []string{"ztypes.go", "zthing.go", "ztypes.h"}},
	{"constant", "driver", []string{"zconsts.go"}},
	{"aligned", "driver", []string{"zstructs.go", "ztypes.h"}},
	{"chapter", "driver", []string{"ztwowords.go", "zbox.go", "zboxdeprecated.go", "zdriver.go", "zdriverentrypoint.go"}},
}

func TestGolden(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			got := golden(t, g.name, g.api)
			var names []string
			for _, name := range g.files {
				require.NotNil(t, got[name], name)
				path := filepath.Join("testdata", "golden", g.name, "want", name)
				if *update {
					require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
					require.NoError(t, os.WriteFile(path, got[name], 0o666))
				}
				want, err := os.ReadFile(path)
				require.NoError(t, err, "go test ./gen -update writes it")
				assert.Equal(t, string(want), string(got[name]), "%s; where that is right, run go test ./gen -update", path)
				names = append(names, path)
			}
			there, err := filepath.Glob(filepath.Join("testdata", "golden", g.name, "want", "*"))
			require.NoError(t, err)
			assert.ElementsMatch(t, names, there, "a golden file that no test reads")
		})
	}
}

// golden generates the package of a golden header.
func golden(tb testing.TB, name, api string) map[string][]byte {
	tb.Helper()
	headers := map[string]string{}
	paths, err := filepath.Glob(filepath.Join("testdata", "golden", name, "*.h"))
	require.NoError(tb, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(tb, err)
		headers[filepath.Base(path)] = string(text)
	}
	c := smallConfig(include(tb, "", headers))
	c.api = api
	files, _, err := generate(c, nil, io.Discard)
	require.NoError(tb, err)
	return files
}

// TestGoldenBuilds compiles what becomes of the golden headers, for systems
// with and without CUDA.
func TestGoldenBuilds(t *testing.T) {
	module := folder(t, map[string]string{"go.mod": "module example.com/small\n\ngo 1.24\n"})
	for _, g := range goldens {
		require.NoError(t, write(filepath.Join(module, g.name), golden(t, g.name, g.api)))
	}
	for _, env := range [][]string{{"GOOS=linux", "GOARCH=arm64"}, {"GOOS=windows"}, {"GOOS=darwin"}} {
		t.Run(strings.Join(env, ","), func(t *testing.T) {
			goTool(t, module, append(env, "CGO_ENABLED=0"), "vet", "./...")
		})
	}
	for _, g := range goldens {
		t.Run("C side of "+g.name, func(t *testing.T) {
			cc := exec.Command(cCompiler(t), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "zcall.c")
			cc.Dir = filepath.Join(module, g.name)
			out, err := cc.CombinedOutput()
			assert.NoError(t, err, string(out))
		})
	}
}

func cCompiler(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err != nil {
		tb.Skipf("no C compiler: %v", err)
	}
	return path
}
