package tools_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/cudabind/cudabind/"

// mayImport says what each package may import beside the standard library: the
// pipeline flows one way. A row is for the packages below its path; the longest
// path counts.
var mayImport = map[string][]string{
	"headers":                  {"internal/pip", "internal/trust"},
	"gen":                      {"headers", "internal/replace", "gen/model", "gen/parse", "gen/doc", "gen/emit", "golang.org/x/mod/modfile", "golang.org/x/mod/module"},
	"gen/model":                {},
	"gen/parse":                {"gen/model", "modernc.org/cc/v4"},
	"gen/doc":                  {"gen/model"},
	"gen/doc/programs":         rawPackages,
	"gen/emit":                 {"gen/model", "github.com/dave/jennifer/jen"},
	"cuda/generated":           {purego},
	"cuda/generated/nccl":      {purego, "cuda/generated/driver"},
	"cuda/generated/cublas":    {purego, "cuda/generated/driver", "cuda/generated/librarytypes"},
	"cuda/generated/cublaslt":  {purego, "cuda/generated/driver", "cuda/generated/librarytypes", "cuda/generated/cublas"},
	"cuda/generated/cufft":     {purego, "cuda/generated/driver", "cuda/generated/librarytypes"},
	"cuda/generated/curand":    {purego, "cuda/generated/driver", "cuda/generated/librarytypes"},
	"cuda/generated/cupti":     {purego, "cuda/generated/driver"},
	"internal/cloop":           {},
	"internal/command":         {},
	"internal/double":          {"cuda/generated/driver", "cuda/safe/dtype", "internal/command", "tools/simdriver/sim"},
	"internal/loopback":        {},
	"internal/replace":         {},
	"internal/pip":             {},
	"internal/process":         {},
	"internal/trust":           {},
	"internal/pip/piptest":     {"github.com/stretchr/testify/require"},
	"cuda/ffi":                 {},
	"cuda/internal/rt":         {purego, "cuda/generated/driver"},
	"cuda/internal/drivertest": {"cuda/ffi", "cuda/generated/driver", purego, "internal/command", "tools/simdriver/sim", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"},
	"cuda/internal/lifetime":   {"cuda/internal/rt"},
	"cuda/internal/admit":      {"cuda/internal/lifetime", "cuda/internal/rt"},
	"cuda/safe":                {"cuda/ffi", "cuda/safe/dtype", "cuda/internal/admit", "cuda/internal/lifetime", "cuda/internal/rt", "cuda/generated/driver"},
	"cuda/safe/dtype":          {},
	"cuda/vector":              {},
	"cuda/safe/library":        {"cuda/safe", "cuda/internal/lifetime", "cuda/internal/rt", "cuda/generated/driver"},
	"cuda/safe/blas":           {"cuda/ffi", "cuda/safe", "cuda/safe/dtype", "cuda/safe/library", "cuda/generated/driver", "cuda/generated/cublas", "cuda/generated/cublaslt", "cuda/generated/librarytypes"},
	"cuda/safe/fft":            {"cuda/ffi", "cuda/safe", "cuda/safe/dtype", "cuda/safe/library", "cuda/generated/driver", "cuda/generated/cufft", "cuda/generated/librarytypes"},
	"cuda/safe/compile":        {"cuda/ffi", "internal/trust", "cuda/safe", "cuda/generated/driver", "cuda/generated/nvrtc", "cuda/generated/nvjitlink"},
	"cuda/internal/activity":   {},
	"cuda/internal/nvtx":       {purego, "internal/trust"},
	"cuda/safe/profile":        {"cuda/ffi", "cuda/safe", "cuda/internal/activity", "cuda/internal/admit", "cuda/internal/nvtx", "cuda/internal/rt", "cuda/generated/driver", "cuda/generated/cupti", "github.com/ianlancetaylor/demangle"},
	"cuda/safe/random":         {"cuda/ffi", "cuda/safe", "cuda/safe/library", "cuda/generated/driver", "cuda/generated/curand"},
	"cuda/safe/collective":     {"cuda/ffi", "cuda/safe", "cuda/safe/dtype", "cuda/internal/lifetime", "cuda/internal/rt", "cuda/generated/driver", "cuda/generated/nccl"},
	"examples":                 {"cuda/ffi", "cuda/safe", "cuda/safe/blas", "cuda/safe/collective", "cuda/safe/compile", "cuda/safe/fft", "cuda/safe/profile", "cuda/generated/driver", "cuda/generated/nvml", "cuda/vector", "cuda/safe/dtype", "cuda/safe/random", "examples/internal/plot", "examples/internal/ranks"},
	"tools":                    append([]string{"cuda/ffi", "headers", "gen/model", "gen/parse", "gen/doc", "gen/emit", "cuda/safe", "cuda/safe/fft", "cuda/safe/random", "internal/cloop", "internal/command", "internal/pip", "internal/process", "internal/replace", "internal/trust", "tools/simdriver/sim"}, rawPackages...),
	"tools/bench/collective":   {"cuda/generated/nccl", "cuda/safe", "cuda/safe/collective"},
	"tools/storm":              append([]string{"cuda/ffi", "cuda/safe", "cuda/safe/blas", "cuda/safe/fft", "cuda/safe/random", "internal/command", "internal/double", "tools/simdriver/sim"}, rawPackages...),
	"examples/internal":        {"cuda/safe", "cuda/safe/collective"},
	"tools/kernels":            {"golang.org/x/mod/module", "internal/replace", "tools/kernels/read", "tools/kernels/model", "tools/kernels/emit", "cuda/safe/compile", "cuda/generated/nvrtc"},
	"tools/kernels/read":       {"github.com/ianlancetaylor/demangle"},
	"tools/kernels/model":      {"tools/kernels/read"},
	"tools/kernels/emit":       {"tools/kernels/model", "github.com/dave/jennifer/jen"},
	"tools/kernels/hard":       {"cuda/safe", "cuda/safe/compile", "cuda/safe/dtype", "cuda/vector"},
	"tools/simdriver/sim":      {purego, "cuda/generated/driver", "cuda/generated/nvrtc", "gen/model", "internal/command", "internal/trust"},
}

// purego lets programs without cgo load libraries, and is linked by a build tag alone.
const purego = "github.com/ebitengine/purego"

// rawPackages are those with functions, and the types that they share.
var rawPackages = []string{
	"cuda/generated/driver", "cuda/generated/cudart12", "cuda/generated/cudart13", "cuda/generated/librarytypes",
	"cuda/generated/nvrtc", "cuda/generated/nvjitlink", "cuda/generated/nccl", "cuda/generated/cublas",
	"cuda/generated/cublaslt", "cuda/generated/cufft", "cuda/generated/curand", "cuda/generated/cupti", "cuda/generated/nvml",
}

// cgo is a build with the C side of the raw packages.
var cgo = []string{"CGO_ENABLED=1", "GOOS=linux", "GOARCH=amd64"}

type pkg struct {
	ImportPath string
	Imports    []string
	CgoFiles   []string
}

// packages lists the packages of this module as a build with env sees them.
func packages(t *testing.T, env ...string) []pkg {
	t.Helper()
	list := exec.Command("go", "list", "-json=ImportPath,Imports,CgoFiles", module+"...")
	list.Env = append(os.Environ(), env...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		all = append(all, p)
	}
	require.Greater(t, len(all), 10)
	return all
}

func TestImports(t *testing.T) {
	all := append(packages(t, cgo...), packages(t, "CGO_ENABLED=0", "GOOS=windows")...)
	all = append(all, packages(t, "CGO_ENABLED=0", "GOFLAGS=-tags=cudabind_nocgo")...)
	for _, p := range all {
		path := strings.TrimPrefix(p.ImportPath, module)
		rule := longest(path)
		if !assert.NotEmptyf(t, rule, "%s: no rule says what it may import", path) {
			continue
		}
		for _, imp := range p.Imports {
			if imp == "C" || !strings.Contains(strings.Split(imp, "/")[0], ".") {
				continue // the standard library
			}
			imp = strings.TrimPrefix(imp, module)
			assert.Truef(t, slices.Contains(mayImport[rule], imp), "%s must not import %s", path, imp)
		}
	}
}

// longest is the rule for a package.
func longest(path string) string {
	best := ""
	for rule := range mayImport {
		if (path == rule || strings.HasPrefix(path, rule+"/")) && len(rule) > len(best) {
			best = rule
		}
	}
	return best
}

// TestPurego: only the build tag links it.
func TestPurego(t *testing.T) {
	for env, want := range map[string]bool{"GOFLAGS=": false, "GOFLAGS=-tags=cudabind_nocgo": true} {
		for _, cgo := range []string{"CGO_ENABLED=0", "CGO_ENABLED=1"} {
			for _, p := range packages(t, env, cgo, "GOOS=linux", "GOARCH=amd64") {
				if p.ImportPath == module+"cuda/generated/driver" {
					assert.Equal(t, want && cgo == "CGO_ENABLED=0", slices.Contains(p.Imports, purego), "%s %s", env, cgo)
				}
			}
		}
	}
}

// TestCgo: C is entered from below cuda/, by the loops to compare with, by
// what tells the simulated driver what to do and by the example of a library in
// C; and in one file of a generated package, beside which stands its twin for
// builds without cgo.
func TestCgo(t *testing.T) {
	n := 0
	for _, p := range packages(t, cgo...) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if path == "cuda/generated/librarytypes" { // no functions
			assert.Empty(t, p.CgoFiles)
		} else if strings.HasPrefix(path, "cuda/generated/") {
			assert.Equal(t, []string{"zcall_cgo.go"}, p.CgoFiles, path)
			n++
		} else if !strings.HasPrefix(path, "cuda/") && path != "internal/cloop" && path != "tools/simdriver/sim" && path != "examples/tour/own" && path != "tools/gpu/shared" {
			assert.Empty(t, p.CgoFiles, path)
		}
	}
	assert.Equal(t, len(rawPackages)-1, n, "generated packages")
}
