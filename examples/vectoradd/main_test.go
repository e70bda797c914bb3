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
