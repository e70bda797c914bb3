package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain runs the command itself where a test asks for it in a process of its
// own, since a process keeps the library that it has loaded.
func TestMain(m *testing.M) {
	if os.Getenv("CUDAINFO_RUN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// cudainfo runs the command.
func cudainfo(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := command.Built(self, args...)
	cmd.Env = append(os.Environ(), "CUDAINFO_RUN=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit status is looked at
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// fakeDriver compiles a driver that has the functions in source alone.
func fakeDriver(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "lib.c"), filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(c, []byte(source), 0o666))
	cc := command.CC("-shared", "-fPIC", "-o", so, c)
	if cc.Err != nil {
		t.Skip("no C compiler: ", cc.Err)
	}
	out, err := cc.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return so
}

func TestNoDriver(t *testing.T) {
	tests := []struct{ name, path, want string }{
		{"a folder without one", t.TempDir(), "cannot open shared object file"},
		{"the toolkit's stub", fakeDriver(t, "int cuDriverGetVersion(int *v) { return 34; }"), "is the CUDA toolkit's stub"},
		{"some other library", fakeDriver(t, "int other(void) { return 0; }"), "is not the CUDA driver"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, code := cudainfo(t, "-driver", tt.path)
			assert.Equal(t, 1, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, bytes.Count([]byte(stderr), []byte("\n")), "one sentence: %s", stderr)
		})
	}
}

const someDriver = `
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuInit(unsigned flags) { return 100; }
`

func TestSomeDriver(t *testing.T) {
	so := fakeDriver(t, someDriver)
	stdout, stderr, code := cudainfo(t, "-driver", so)
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, so+", CUDA 12.4: 2 of the package's 685 functions")
	assert.Contains(t, stdout, "no devices: CUDA_ERROR_NO_DEVICE")

	stdout, _, _ = cudainfo(t, "-driver", so, "-missing")
	assert.Contains(t, stdout, "no cuLaunchHostFunc_v2: it needs CUDA 13.2\n")

	stdout, _, _ = cudainfo(t, "-driver", so, "-missing", "-json")
	var m machine
	require.NoError(t, json.Unmarshal([]byte(stdout), &m))
	assert.Equal(t, "12.4", m.Driver.Version)
	assert.Len(t, m.Driver.Missing, 683)
	assert.Contains(t, m.Driver.Missing, symbol{"cuLaunchHostFunc_v2", "13.2"})
	assert.Len(t, m.Runtimes, 2)
	assert.NotEmpty(t, m.NoDevices)
}

func TestUsage(t *testing.T) {
	_, stderr, code := cudainfo(t, "extra")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, `unexpected argument "extra"`)
}
