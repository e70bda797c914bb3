//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVectorAdd builds the program and runs it on the simulated driver with the kernel in C
// that docs/testing.md shows.
func TestVectorAdd(t *testing.T) {
	page, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	right, err := os.ReadFile("testdata/kernels.c")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```c\n"+string(right)+"```\n")

	program := filepath.Join(t.TempDir(), "vectoradd")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, c := range []struct {
		name, devices, kernel string
		exit                  int
		says, complains       string
	}{
		{"a GPU", "1", string(right), 0, "[11 22 33 44]\n", ""},
		{"a wrong kernel", "1", strings.Replace(string(right), "a[i] + b[i]", "a[i] - b[i]", 1), 0, "[-9 -18 -27 -36]\n", ""},
		{"no GPU", "0", string(right), 1, "", "cuda: Open: CUDA_ERROR_NO_DEVICE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "kernels.c")
			require.NoError(t, os.WriteFile(file, []byte(c.kernel), 0o666))
			_, err := sim.BuildKernels(dir, file)
			require.NoError(t, err)
			_, err = sim.BuildNVRTC(dir, sim.Newest)
			require.NoError(t, err)
			_, err = sim.Build(dir, sim.Newest)
			require.NoError(t, err)
			var stdout, stderr strings.Builder
			cmd := command.Built(program)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "CUDABIND_SIM_DEVICES="+c.devices, "XDG_CACHE_HOME="+t.TempDir())
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err = cmd.Run()
			require.NotNil(t, cmd.ProcessState, "%v", err)
			assert.Equal(t, c.exit, cmd.ProcessState.ExitCode(), "%s", &stderr)
			assert.Equal(t, c.says, stdout.String())
			assert.Contains(t, stderr.String(), c.complains)
		})
	}
}

// TestMusl: a program of another C library than glibc, or a static one, says why it finds
// no GPU. CI installs musl-gcc.
func TestMusl(t *testing.T) {
	if testing.Short() {
		t.Skip("builds Go's own packages with another C library")
	}
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		t.Skip("no musl-gcc: ", err)
	}
	for _, c := range []struct{ name, ldflags, says string }{
		{"dynamic", "", "this program was built with another C library"},
		{"static", "-linkmode external -extldflags -static", "this program is statically linked and cannot load libraries"},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "vectoradd")
			build := exec.Command("go", "build", "-ldflags="+c.ldflags, "-o", program, ".")
			build.Env = append(os.Environ(), "CC=musl-gcc")
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			cmd := exec.Command(program)
			out, _ = cmd.CombinedOutput()
			assert.Equal(t, 1, cmd.ProcessState.ExitCode(), "%s", out)
			assert.Contains(t, string(out), c.says)
		})
	}
}
