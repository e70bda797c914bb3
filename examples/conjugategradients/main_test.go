//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProgram builds the program and runs it on the simulated driver. The program compares the
// results with the host.
func TestProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "conjugategradients")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	dir := t.TempDir()
	_, err = sim.Build(dir, sim.Newest)
	require.NoError(t, err)
	_, err = sim.BuildNVRTC(dir, sim.Newest)
	require.NoError(t, err)
	kernels, err := os.ReadFile("testdata/kernels.c")
	require.NoError(t, err)

	for _, c := range []struct {
		name, was, is string // is replaces was in the kernels
		says          []string
	}{
		{"right", "", "", []string{
			`loop in a graph   28 iterations, relative residual \d\.\de-09, .*s each\n`,
			`loop on the host  28 iterations, relative residual \d\.\de-09, .*s each\n$`,
		}},
		{"wrong step", "x[i] += alpha", "x[i] -= alpha", []string{`loop in a graph   28 iterations, relative residual 2`, `is 2.*, above 2e-08`}},
		{"wrong condition", "s->rr > s->goal", "s->iterations < 5", []string{`loop in a graph   5 iterations`, `above 2e-08`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "kernels.c")
			require.Contains(t, string(kernels), c.was)
			require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(kernels), c.was, c.is)), 0o666))
			_, err = sim.BuildKernels(dir, file)
			require.NoError(t, err)
			cmd := command.Built(program, "-edge=16")
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "XDG_CACHE_HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			assert.Equal(t, c.was == "", err == nil, "%v", err)
			for _, s := range c.says {
				assert.Regexp(t, s, string(out))
			}
		})
	}
}

// TestSource compiles the kernels by NVIDIA's compiler.
func TestSource(t *testing.T) {
	if _, _, err := nvrtc.Library(); err != nil {
		if err := nvrtc.Open("../../.cache/libnvrtc/13.5"); err != nil { // where make libraries puts it
			t.Skip(err)
		}
	}
	source, err := kernelsFiles.ReadFile("kernels.cu")
	require.NoError(t, err)
	for _, arch := range []string{"sm_75", "sm_90"} {
		image, err := compile.Compile(context.Background(), string(source), compile.Options{Arch: arch, CacheFolder: t.TempDir()})
		require.NoError(t, err, arch)
		assert.Equal(t, "\x7fELF", string(image.Code[:4]), arch)
	}
}
