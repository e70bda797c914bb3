package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/emit"
	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
)

// repository is the root of this module.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	return root
}

// userModule is a module of a user's, with files.
func userModule(t *testing.T, files map[string]string) string {
	t.Helper()
	all := map[string]string{"go.mod": "module example.com/user\n\ngo 1.26.0\n"}
	maps.Copy(all, files)
	return folder(t, all)
}

// TestDeterminism: the same bytes come out of a second run, on one processor,
// and where no other program can be found.
func TestDeterminism(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	fetched(t, newest)
	dir := userModule(t, nil)
	gen := filepath.Join(t.TempDir(), "gen")
	goTool(t, repository(t), nil, "build", "-o", gen, "./gen")
	run := func(env ...string) map[string][]byte {
		out := filepath.Join(dir, "driver")
		require.NoError(t, os.RemoveAll(out))
		cmd := command.Built(gen, "-cuda", newest, "-api", "driver", "-out", out, "-package", "driver")
		cmd.Env = append(os.Environ(), env...)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return contents(t, out)
	}
	first := run()
	require.Greater(t, len(first), 40)
	assert.True(t, same(first, run()), "a second run")
	assert.True(t, same(first, run("GOMAXPROCS=1", "PATH=")), "one processor and an empty PATH")
}

// needed is a place for headers with those that the generator fetches for a package, and no others.
func needed(t *testing.T, p model.Published) string {
	dir, place := fetched(t, p.Version), t.TempDir()
	release, err := lookup(config{cuda: p.Version}, model.RowOf(p.API))
	require.NoError(t, err)
	files := release.Headers
	for _, l := range release.Libraries {
		files = append(files, l.Headers...)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Path))
		require.NoError(t, err)
		to := filepath.Join(place, p.Version, f.Path)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o777))
		require.NoError(t, os.WriteFile(to, text, 0o666))
	}
	return place
}

// TestNeeded: the generator fetches no library that the package has nothing to do with.
func TestNeeded(t *testing.T) {
	for api, want := range map[string][]string{
		"driver": {"profiler"}, "runtime": {"profiler"}, "library_types": nil, "nvrtc": {"nvrtc", "profiler"},
		"cublaslt": {"cublas", "profiler"}, "nvml": {"nvml", "profiler"},
	} {
		t.Run(api, func(t *testing.T) {
			release, err := lookup(config{cuda: newest}, model.RowOf(api))
			require.NoError(t, err)
			var names []string
			for _, l := range release.Libraries {
				names = append(names, l.Name)
			}
			assert.Equal(t, want, names)
			assert.NotEmpty(t, release.Headers)
		})
	}
}

// TestUpToDate: the committed packages are what the generator prints now, from the headers that it fetches for each.
func TestUpToDate(t *testing.T) {
	for _, p := range model.Packages() {
		t.Run(p.Name, func(t *testing.T) {
			t.Setenv(headers.EnvDir, needed(t, p))
			dir := filepath.Join(repository(t), "cuda", "generated", p.Name)
			frozen, err := readFrozen(filepath.Join(dir, "names.txt"))
			require.NoError(t, err)
			files, _, err := generate(config{cuda: p.Version, api: p.API, pkg: p.Name, importPath: "github.com/cudabind/cudabind/cuda/generated/" + p.Name, docs: "own"}, frozen, os.Stderr)
			require.NoError(t, err)
			committed := contents(t, dir)
			for name, data := range files {
				assert.Truef(t, bytes.Equal(data, committed[name]), "%s is not what the generator prints: run make generate", name)
				line, _, _ := bytes.Cut(data, []byte("\n"))
				assert.Regexp(t, `^`+emit.Marker+` from \w+\.h \(CUDA `+p.Version+`\); DO NOT EDIT\.$`, string(line), name)
			}
			for name := range committed {
				if strings.HasPrefix(name, "z") {
					assert.Containsf(t, files, name, "%s is not generated any more", name)
				}
			}
		})
	}
}

// TestGenerateLines: go generate makes each published package from the headers of its version.
func TestGenerateLines(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository(t), "cuda", "generated", "generate.go"))
	require.NoError(t, err)
	for _, p := range model.Packages() {
		line := fmt.Sprintf("gen -cuda %s -api %s -out %s -package %s", p.Version, p.API, p.Name, p.Name)
		assert.Truef(t, strings.Contains(string(text), line),
			"gen/model/row.go says that %s is from CUDA %s, and cuda/generated/generate.go does not: set the version in both", p.Name, p.Version)
	}
	assert.Equal(t, len(model.Packages()), strings.Count(string(text), "//go:generate "))
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string][]byte{}
	for _, e := range entries {
		if e.Type().IsRegular() {
			out[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
		}
	}
	return out
}

func same(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			return false
		}
	}
	return true
}

// TestUnknownVersion: a version that is not pinned works from its include
// folder, with a notice.
func TestUnknownVersion(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(fetched(t, newest))))
	file := filepath.Join(dir, "cuda.h")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte("CUDA_VERSION 13050"), []byte("CUDA_VERSION 13990"), 1), 0o666))
	_, err = headers.Lookup("13.99")
	require.Error(t, err)
	var notice bytes.Buffer
	out := filepath.Join(userModule(t, nil), "driver")
	require.NoError(t, run([]string{"-headers", dir, "-package", "driver", "-out", out}, &notice))
	assert.Contains(t, notice.String(), "CUDA 13.99 is not among the versions")
	assert.Contains(t, string(contents(t, out)["zinitialize.go"]), "(CUDA 13.99)")
}
