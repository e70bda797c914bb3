package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/headers"
)

// command runs a command line and returns what it printed and its status.
func command(t *testing.T, args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	err := run(t.Context(), args, &out, &errs)
	status = report(err, &errs)
	return out.String(), errs.String(), status
}

func TestUsage(t *testing.T) {
	tests := []struct{ name, args, want string }{
		{"no command", "", "no command"},
		{"unknown command", "get 12.9", `unknown command "get"`},
		{"fetch nothing", "fetch", "fetch which version?"},
		{"unknown flag", "fetch -to x 12.9", "flag provided but not defined: -to"},
		{"from without folder", "fetch -from", "flag needs an argument: -from"},
		{"from for all", "fetch -from x all", "a toolkit is of one version"},
		{"from for two", "fetch -from x 12.8 12.9", "a toolkit is of one version"},
		{"list something", "list 12.9", "list takes no arguments"},
		{"add nothing", "add", "add which version?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := command(t, strings.Fields(tt.args)...)
			assert.Equal(t, 2, status)
			assert.Empty(t, stdout)
			assert.Equal(t, "headers: "+tt.want+"\n"+usage, stderr)
		})
	}
	for _, args := range []string{"help", "-h", "--help", "fetch -h", "list -help", "add -h"} {
		t.Run(args, func(t *testing.T) {
			stdout, stderr, status := command(t, strings.Fields(args)...)
			assert.Zero(t, status)
			assert.Equal(t, usage, stdout)
			assert.Empty(t, stderr)
		})
	}
}

func TestReport(t *testing.T) {
	var stderr bytes.Buffer
	assert.Zero(t, report(nil, &stderr))
	assert.Zero(t, report(flag.ErrHelp, &stderr))
	assert.Empty(t, stderr.String())
	assert.Equal(t, 1, report(errors.New("no luck"), &stderr))
	assert.Equal(t, "headers: no luck\n", stderr.String())
}

func TestFetchFails(t *testing.T) {
	t.Setenv(headers.EnvDir, t.TempDir())
	t.Setenv("PATH", t.TempDir())
	tests := []struct {
		name, want string
		args       []string
	}{
		{"unknown version", "headers: CUDA 12.7 is not a known version; known are 11.8, ", []string{"fetch", "12.7"}},
		{"no python", "headers: CUDA 12.9: there is no python3 in PATH", []string{"fetch", "12.9"}},
		{"no python, all", ": there is no python3 in PATH", []string{"fetch", "all"}},
		{"no toolkit", "is no CUDA toolkit", []string{"fetch", "-from", t.TempDir(), "12.9"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := command(t, tt.args...)
			assert.Equal(t, 1, status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.want)
		})
	}
}

func TestList(t *testing.T) {
	t.Setenv(headers.EnvDir, t.TempDir())
	stdout, stderr, status := command(t, "list")
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	releases := headers.Releases()
	require.Len(t, lines, 1+len(releases))
	assert.Equal(t, []string{"CUDA", "PACKAGE", "VERSION", "LIBRARIES", "HEADERS"}, strings.Fields(lines[0]))
	for i, r := range releases {
		var libraries []string
		for _, l := range r.Libraries {
			libraries = append(libraries, l.Name)
		}
		assert.Equal(t, []string{r.Version, r.Wheel, r.WheelVersion, strings.Join(libraries, ","), "-"}, strings.Fields(lines[i+1]))
	}
}

// TestFetchPresent needs real headers, but no network.
func TestFetchPresent(t *testing.T) {
	dir, err := headers.Find("12.9")
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("PATH", "")
	stdout, stderr, status := command(t, "fetch", "12.9")
	assert.Zero(t, status)
	assert.Equal(t, dir+"\n", stdout)
	assert.Empty(t, stderr)

	listed, _, status := command(t, "list")
	assert.Zero(t, status)
	assert.Contains(t, listed, dir+"\n")

	t.Setenv(headers.EnvDir, t.TempDir())
	stdout, stderr, status = command(t, "fetch", "-from", dir, "12.9")
	assert.Zero(t, status)
	assert.Equal(t, filepath.Join(os.Getenv(headers.EnvDir), "12.9")+"\n", stdout)
	assert.Empty(t, stderr)
}

// checkout makes a module with a manifest, and a pip that downloads a wheel
// with headers of our own.
func checkout(t *testing.T, module, wheelName, cudaVersion string) (manifest string) {
	if runtime.GOOS == "windows" {
		t.Skip("the python3 of the test is a shell script")
	}
	root, bin := t.TempDir(), t.TempDir()
	t.Setenv(headers.EnvDir, t.TempDir())
	t.Setenv("GOWORK", "off")
	write(t, filepath.Join(root, "go.mod"), "// A comment.\nmodule "+module+" // another\n\ngo 1.26.0\n")
	manifest = filepath.Join(root, "headers", "manifest.json")
	data, err := headers.FormatManifest(headers.Releases())
	require.NoError(t, err)
	write(t, manifest, string(data))

	wheel := filepath.Join(t.TempDir(), wheelName)
	write(t, wheel, packedHeaders(t, cudaVersion))
	write(t, filepath.Join(bin, "python3"), `#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" = --dest ] && cp "`+wheel+`" "$2"; shift; done
`)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Chdir(filepath.Join(root, "headers")) // anywhere in the module will do
	write(t, sinceTable(manifest), "old")
	facts = func(context.Context, []headers.Release, io.Writer) (string, error) { return "new", nil }
	t.Cleanup(func() { facts = factsOf })
	return manifest
}

// sinceTable is the table of facts beside a manifest.
func sinceTable(manifest string) string {
	return filepath.Join(filepath.Dir(manifest), "..", "gen", "model", "since.txt")
}

func write(t *testing.T, name, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o755))
}

func packedHeaders(t *testing.T, cudaVersion string) string {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range []string{"cuda.h", "cuda_runtime_api.h", "cudaTypedefs.h", "nvrtc.h", "nvJitLink.h", "library_types.h", "cublas_v2.h", "cublasLt.h", "cufftXt.h", "curand.h", "nccl.h", "nvml.h", "cudaProfiler.h", "cuda_profiler_api.h"} {
		f, err := w.Create("nvidia/sample/include/" + name)
		require.NoError(t, err)
		_, err = f.Write([]byte("#define CUDA_VERSION " + cudaVersion + "\n"))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.String()
}

func versionsIn(t *testing.T, manifest string) map[string]string {
	data, err := os.ReadFile(manifest)
	require.NoError(t, err)
	releases, err := headers.ParseManifest(data)
	require.NoError(t, err)
	versions := map[string]string{}
	for _, r := range releases {
		versions[r.Version] = r.WheelVersion
	}
	return versions
}

func TestAddNew(t *testing.T) {
	manifest := checkout(t, module, "sample-99.1.5-py3-none-manylinux2014_x86_64.whl", "99010")
	want := versionsIn(t, manifest)
	want["99.1"] = "99.1.5"

	stdout, stderr, status := command(t, "add", "99.1")
	require.Zero(t, status, stderr)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "CUDA 99.1: pinning nvidia-cuda-runtime 99.1.5\n")
	assert.Contains(t, stderr, "CUDA 99.1: pinning nvidia-cuda-nvrtc 99.1.5\n")
	assert.Equal(t, want, versionsIn(t, manifest))
	table, err := os.ReadFile(sinceTable(manifest))
	require.NoError(t, err)
	assert.Equal(t, "new", string(table))
	assert.FileExists(t, filepath.Join(os.Getenv(headers.EnvDir), "99.1", "cuda.h"))
	assert.FileExists(t, filepath.Join(os.Getenv(headers.EnvDir), "99.1", "nvrtc.h"))

	t.Run("again", func(t *testing.T) {
		before, err := os.ReadFile(manifest)
		require.NoError(t, err)
		_, stderr, status := command(t, "add", "99.1")
		assert.Zero(t, status, stderr)
		assert.Contains(t, stderr, "CUDA 99.1: 99.1.5 is the newest, nothing changed\n")
		after, err := os.ReadFile(manifest)
		require.NoError(t, err)
		assert.Equal(t, string(before), string(after))
	})
	entries, err := os.ReadDir(filepath.Dir(manifest))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary file is left")
}

func TestAddNewerPatch(t *testing.T) {
	manifest := checkout(t, module, "sample-12.9.999-py3-none-manylinux2014_x86_64.whl", "12090")
	want := versionsIn(t, manifest)
	want["12.9"] = "12.9.999"
	_, stderr, status := command(t, "add", "12.9")
	require.Zero(t, status, stderr)
	assert.Equal(t, want, versionsIn(t, manifest))
}

func TestAddFails(t *testing.T) {
	const good = "sample-99.1.5-py3-none-manylinux2014_x86_64.whl"
	tests := []struct {
		name, module, wheel, version, want string
		change                             func(t *testing.T, manifest string)
	}{
		{"another module", "example.com/other", good, "99.1", "run it in a checkout of that", nil},
		{"no version", module, good, "newest", `"newest" is no CUDA version`, nil},
		{"bad wheel", module, "sample.whl", "99.1", "does not have the name of a wheel", nil},
		{"bad manifest", module, good, "99.1", "manifest.json: manifest of headers: it has no releases",
			func(t *testing.T, manifest string) { write(t, manifest, "{}") }},
		{"no manifest", module, good, "99.1", "manifest.json",
			func(t *testing.T, manifest string) { require.NoError(t, os.Remove(manifest)) }},
		{"headers that are no C", module, good, "99.1", "CUDA 99.1: cuda.h:1: what is this?; manifest.json and since.txt are as they were",
			func(*testing.T, string) {
				facts = func(_ context.Context, releases []headers.Release, _ io.Writer) (string, error) {
					return "", fmt.Errorf("CUDA %s: cuda.h:1: what is this?", releases[len(releases)-1].Version)
				}
			}},
		{"no place for the table", module, good, "99.1", "since.txt are as they were",
			func(t *testing.T, manifest string) {
				model := filepath.Dir(sinceTable(manifest))
				require.NoError(t, os.Rename(model, model+"-away"))
				t.Cleanup(func() { require.NoError(t, os.Rename(model+"-away", model)) })
			}},
		{"the second of two versions", module, good, "99.1 99.2", "CUDA 99.2: ", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			manifest := checkout(t, tt.module, tt.wheel, "99010")
			if tt.change != nil {
				tt.change(t, manifest)
			}
			before, _ := os.ReadFile(manifest)
			_, stderr, status := command(t, append([]string{"add"}, strings.Fields(tt.version)...)...)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, tt.want)
			if table, err := os.ReadFile(sinceTable(manifest)); !errors.Is(err, fs.ErrNotExist) {
				assert.Equal(t, "old", string(table))
			}
			entries, _ := os.ReadDir(filepath.Dir(manifest))
			assert.LessOrEqual(t, len(entries), 1, "no temporary file is left")
			after, _ := os.ReadFile(manifest)
			assert.Equal(t, string(before), string(after))
		})
	}
}

// What add writes is JSON with each release on lines of its own, so that a
// change shows as what it is.
func TestManifestIsReadable(t *testing.T) {
	data, err := headers.FormatManifest(headers.Releases())
	require.NoError(t, err)
	assert.True(t, json.Valid(data))
	assert.Contains(t, string(data), "\n\t\t\t\"version\": \"12.9\",\n")
	assert.True(t, bytes.HasSuffix(data, []byte("}\n")))
}

// TestFacts makes the table of facts from the real headers: it is the one that
// is committed.
func TestFacts(t *testing.T) {
	if testing.Short() {
		t.Skip("it parses every header")
	}
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("parses every header: make proofs runs it, without the race detector")
	}
	for _, r := range headers.Releases() {
		if _, err := r.Find(); err != nil {
			t.Skipf("%v (make generate fetches them all)", err)
		}
	}
	got, err := factsOf(t.Context(), headers.Releases(), io.Discard)
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join("..", "..", "gen", "model", "since.txt"))
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}
