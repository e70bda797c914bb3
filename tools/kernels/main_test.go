package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nvrtcFolder returns the folder with a version of NVRTC, which make libraries fetches.
func nvrtcFolder(t *testing.T, version string) string {
	t.Helper()
	folder, err := filepath.Abs("../../.cache/libnvrtc/" + version)
	require.NoError(t, err)
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("no NVRTC %s: make libraries", version)
	}
	return folder
}

var built struct {
	sync.Once
	file string
	err  error
	out  []byte
}

// tool builds the command, as a process uses one NVRTC alone.
func tool(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "kernels"); built.err == nil {
			built.file = filepath.Join(dir, "kernels")
			built.out, built.err = exec.Command("go", "build", "-o", built.file, ".").CombinedOutput()
		}
	})
	require.NoError(t, built.err, "%s", built.out)
	return built.file
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.file != "" {
		os.RemoveAll(filepath.Dir(built.file))
	}
	os.Exit(code)
}

// flagsOfHard are those of go generate in the folder hard.
var flagsOfHard = []string{"-package", "hard", "-doubles", "-I", "include", "-kernels", "asked<float>", "-kernels", "asked<Box<int>>", "-flag", "-device-int128"}

// TestSameOutput tests that every version of NVRTC gives what is committed.
func TestSameOutput(t *testing.T) {
	for _, version := range []string{"12.0", "12.4", "12.9", "13.0", "13.5"} {
		t.Run(version, func(t *testing.T) {
			args := append([]string{"-check", "-nvrtc", nvrtcFolder(t, version)}, flagsOfHard...)
			args = append(args, "hard.cu", "shapes.cu")
			if version >= "12.9" {
				args = append(args, "newer.cu")
			}
			c := exec.Command(tool(t), args...)
			c.Dir = "hard"
			out, err := c.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
}
