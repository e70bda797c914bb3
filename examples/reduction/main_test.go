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
	program := built(t)
	dir := t.TempDir()
	_, err := sim.Build(dir, sim.Newest)
	require.NoError(t, err)
	_, err = sim.BuildNVRTC(dir, sim.Newest)
	require.NoError(t, err)
	kernels, err := os.ReadFile("testdata/kernels.c")
	require.NoError(t, err)

	for _, c := range []struct {
		name, n, was, is string // is replaces was in the kernels
		says             string
	}{
		{"many values", "1000000", "", "", `^1000000 values: sum [45]\d{5}\.?\d*, maximum 0\.99\d*\n$`},
		{"fewer values than blocks", "3", "", "", `^3 values: sum .*, maximum 0\.\d+\n$`},
		{"wrong sum", "1000000", "return a + b", "return a + 2 * b", `on the host: sum `},
		{"wrong maximum", "1000000", "a > b ? a : b", "a > b ? b : a", `on the host: .*maximum 0\.99`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "kernels.c")
			require.Contains(t, string(kernels), c.was)
			require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(kernels), c.was, c.is)), 0o666))
			_, err := sim.BuildKernels(dir, file)
			require.NoError(t, err)
			cmd := command.Built(program, "-n="+c.n)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "XDG_CACHE_HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			assert.Equal(t, c.was == "", err == nil, "%v", err)
			assert.Regexp(t, c.says, string(out))
		})
	}
}

// TestWithoutCUB: NVRTC of CUDA 12 has no CUB in it, and the program says where to get it.
func TestWithoutCUB(t *testing.T) {
	older, err := filepath.Abs("../../.cache/libnvrtc/12.9") // where make libraries puts it
	require.NoError(t, err)
	if _, err := os.Stat(older); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	_, err = sim.Build(dir, sim.Newest)
	require.NoError(t, err)
	cmd := command.Built(built(t))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir+":"+older, "XDG_CACHE_HOME="+t.TempDir())
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), "block_reduce.cuh") {
		t.Skip("CUB is on this machine")
	}
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Contains(t, string(out), "cub/block/block_reduce.cuh")
	assert.Contains(t, string(out), "get NVRTC 13.3 or newer, which has them in itself")
}

// TestSource compiles the kernels by NVIDIA's compiler.
func TestSource(t *testing.T) {
	if testing.Short() {
		t.Skip("NVRTC compiles CUB for seconds; make test-race runs it")
	}
	if err := nvrtc.Open("../../.cache/libnvrtc/13.5"); err != nil { // where make libraries puts it
		t.Skip(err)
	}
	source, err := kernelsFiles.ReadFile("kernels.cu")
	require.NoError(t, err)
	image, err := compile.Compile(context.Background(), string(source), compile.Options{Arch: "sm_90", CacheFolder: t.TempDir()})
	require.NoError(t, err)
	assert.Equal(t, "\x7fELF", string(image.Code[:4]))
}

func built(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "reduction")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}
