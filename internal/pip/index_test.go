package pip

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakePip is a pip that knows the packages sample and other, for Python to run.
const fakePip = `
import os, sys
with open(os.environ["PIP_CALLS"], "a") as f:
    f.write(str(os.getpid()) + " " + " ".join(sys.argv[1:3] + sys.argv[5:]) + "\n")
name = sys.argv[-1]
if name not in ("sample", "other"):
    sys.exit("ERROR: No matching distribution found for " + name)
with open(sys.argv[sys.argv.index("--log") + 1], "a") as f:
    for v in ("1.0", "2.0.1"):
        f.write("2026-01-02T03:04:05,678   Found link https://files.test/a/" + name + "_x-" + v +
            "-py3-none-any.whl (from https://index.test/simple/) (requires-python:>=3), version: " + v + "\n")
    f.write("2026-01-02T03:04:05,678   Skipping link: not a file: https://index.test/simple/" + name + "/\n")
    f.write("2026-01-02T03:04:05,678   Found link file:///wheels/" + name + "_x-3-py3-none-any.whl, version: 3\n")
sys.exit(0)
`

// pipOf makes Python run source as pip. It returns the folder of that pip.
func pipOf(t *testing.T, source string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pip"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pip", "__init__.py"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pip", "__main__.py"), []byte(source), 0o644))
	t.Setenv("PYTHONPATH", dir)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	return dir
}

func TestIndex(t *testing.T) {
	calls := filepath.Join(pipOf(t, fakePip), "calls")
	t.Setenv("PIP_CALLS", calls)
	wheels := func(name string) []Wheel {
		file := "/" + name + "_x-"
		return []Wheel{
			{Name: name + "-x", Version: "1.0", URL: "https://files.test/a" + file + "1.0-py3-none-any.whl"},
			{Name: name + "-x", Version: "2.0.1", URL: "https://files.test/a" + file + "2.0.1-py3-none-any.whl"},
			{Name: name + "-x", Version: "3", URL: "file:///wheels" + file + "3-py3-none-any.whl"},
		}
	}
	got, err := Client{}.Index(t.Context(), []string{"linux_one"}, "other", "sample")
	require.NoError(t, err)
	assert.Equal(t, append(wheels("other"), wheels("sample")...), got)
	log, err := os.ReadFile(calls)
	require.NoError(t, err)
	assert.Regexp(t, `^(\d+) index versions --retries 1 --only-binary=:all: --disable-pip-version-check --no-input --quiet --platform linux_one other\n`+
		`(\d+) index versions .* sample\n$`, string(log))

	// What comes before a package that is not there is found.
	got, err = Client{}.Index(t.Context(), nil, "other", "absent", "sample")
	require.ErrorIs(t, err, ErrNotPublished)
	assert.ErrorContains(t, err, "pip could not download other absent sample")
	assert.Equal(t, wheels("other"), got)
}

// seeingPip notes where it runs, and imports what a pip imports.
const seeingPip = `
import os, sys
import json, logging, urllib.request
with open(os.environ["PIP_CALLS"], "a") as f:
    f.write(os.getcwd() + " " + sys.argv[1] + "\n")
open(sys.argv[sys.argv.index("--log") + 1], "w") if "--log" in sys.argv else None
if "--dest" in sys.argv:
    open(sys.argv[sys.argv.index("--dest") + 1] + "/a.whl", "w")
if "--report" in sys.argv:
    open(sys.argv[sys.argv.index("--report") + 1], "w").write("{}")
`

// TestCurrentFolderRunsNothing: Python imports no module from the current folder, but pip runs in it,
// where relative paths of its settings lead to.
func TestCurrentFolderRunsNothing(t *testing.T) {
	dir := pipOf(t, seeingPip)
	here := t.TempDir()
	t.Chdir(here)
	for _, module := range []string{"pip", "runpy", "os", "json", "logging", "urllib", "sitecustomize", "usercustomize"} {
		require.NoError(t, os.WriteFile(module+".py", []byte("open('"+here+"/planted', 'w')"), 0o644))
	}
	for _, path := range []struct{ name, python string }{
		{"as usual", dir},
		{"an empty entry first", ":" + dir},
		{"a dot first", ".:" + dir},
	} {
		for _, call := range []struct {
			name string
			call func(c Client) error
		}{
			{"download", func(c Client) error { _, err := c.Download(t.Context(), t.TempDir(), nil, "sample==1"); return err }},
			{"install", func(c Client) error { _, err := c.Locate(t.Context(), true, nil, "sample==1"); return err }},
			{"index", func(c Client) error { _, err := c.Index(t.Context(), nil, "sample"); return err }},
		} {
			t.Run(path.name+"/"+call.name, func(t *testing.T) {
				calls := filepath.Join(t.TempDir(), "calls")
				t.Setenv("PIP_CALLS", calls)
				t.Setenv("PYTHONPATH", path.python)
				require.NoError(t, call.call(Client{}))
				assert.NoFileExists(t, filepath.Join(here, "planted"))
				ran, err := os.ReadFile(calls)
				require.NoError(t, err)
				got, err := filepath.EvalSymlinks(strings.Fields(string(ran))[0])
				require.NoError(t, err)
				want, err := filepath.EvalSymlinks(here)
				require.NoError(t, err)
				assert.Equal(t, want, got)
			})
		}
	}
}

// TestPythonOfTheCurrentFolder: no python3 of the current folder runs, though PATH has it.
func TestPythonOfTheCurrentFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("python3", []byte("#!/bin/sh\ntouch planted\n"), 0o755))
	for _, path := range []string{".", "", ":/absent"} {
		t.Setenv("PATH", path)
		_, err := Client{What: "it"}.Download(t.Context(), t.TempDir(), nil, "sample")
		assert.ErrorContains(t, err, "there is no python3 in PATH", path)
		assert.NoFileExists(t, "planted", path)
	}
}
