package pip

import (
	"os"
	"os/exec"
	"path/filepath"
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

func TestIndex(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pip"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pip", "__init__.py"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pip", "__main__.py"), []byte(fakePip), 0o644))
	t.Setenv("PYTHONPATH", dir)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
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
	assert.Regexp(t, `^(\d+) index versions --only-binary=:all: --disable-pip-version-check --no-input --quiet --platform linux_one other\n`+
		`(\d+) index versions .* sample\n$`, string(log))

	// What comes before a package that is not there is found.
	got, err = Client{}.Index(t.Context(), nil, "other", "absent", "sample")
	require.ErrorIs(t, err, ErrNotPublished)
	assert.ErrorContains(t, err, "pip could not download other absent sample")
	assert.Equal(t, wheels("other"), got)
}
