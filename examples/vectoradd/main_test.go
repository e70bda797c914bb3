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

// TestVectorAdd builds the program and runs it on the simulated driver.
func TestVectorAdd(t *testing.T) {
	program := filepath.Join(t.TempDir(), "vectoradd")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	dir := t.TempDir()
	_, err = sim.Build(dir, sim.Newest)
	require.NoError(t, err)

	for _, c := range []struct {
		name, devices string
		exit          int
		says          string
		complains     string
	}{
		{"a GPU", "1", 0, "1000 sums are correct: 999 + 1998 = 2997\n", ""},
		{"no GPU", "0", 2, "", "no GPU here: cuda: Open: CUDA_ERROR_NO_DEVICE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			cmd := command.Built(program)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "CUDABIND_SIM_DEVICES="+c.devices)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			require.NotNil(t, cmd.ProcessState, "%v", err)
			assert.Equal(t, c.exit, cmd.ProcessState.ExitCode())
			assert.Equal(t, c.says, stdout.String())
			assert.Contains(t, stderr.String(), c.complains)
		})
	}
}

// TestMusl: a program of another C library than glibc, or a static one, says why it finds
// no GPU. CI installs musl-gcc.
func TestMusl(t *testing.T) {
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
			assert.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
			assert.Contains(t, string(out), c.says)
		})
	}
}
