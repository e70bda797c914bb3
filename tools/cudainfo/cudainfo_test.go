package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	assert.Contains(t, stdout, so+", CUDA 12.4: 2 of the package's 723 functions")
	assert.Contains(t, stdout, "no devices: CUDA_ERROR_NO_DEVICE")

	stdout, _, _ = cudainfo(t, "-driver", so, "-missing")
	assert.Contains(t, stdout, "no cuLaunchHostFunc_v2: it needs CUDA 13.2\n")

	stdout, _, _ = cudainfo(t, "-driver", so, "-missing", "-json")
	var m machine
	require.NoError(t, json.Unmarshal([]byte(stdout), &m))
	assert.Equal(t, "12.4", m.Driver.Version)
	assert.Len(t, m.Driver.Missing, 721)
	assert.Contains(t, m.Driver.Missing, symbol{"cuLaunchHostFunc_v2", "13.2"})
	assert.Len(t, m.Libraries, len(packages))
	assert.NotEmpty(t, m.NoDevices)
}

// TestMisfits has libraries beside a driver of CUDA 12.4.
func TestMisfits(t *testing.T) {
	so, libs := fakeDriver(t, someDriver), t.TempDir()
	fake := func(name, source string) {
		require.NoError(t, os.Rename(fakeDriver(t, source), filepath.Join(libs, name)))
	}
	pair := "int %s(unsigned *major, unsigned *minor) { *major = %d; *minor = %d; return 0; }"
	for _, tt := range []struct {
		name          string
		nvrtc, linker version
		want          string
		misfits       int
	}{
		{"same", version{12, 4}, version{12, 4}, "", 0},
		{"older", version{11, 8}, version{11, 8}, "", 0},
		{"newer minor", version{12, 9}, version{12, 9}, "PTX of this compiler needs a driver of CUDA 12.9; machine code works", 1},
		{"newer major", version{13, 5}, version{13, 5}, "PTX of this compiler needs a driver of CUDA 13.5, machine code one of 13.0", 2},
		{"linker of a newer major", version{13, 5}, version{13, 5}, "needs a driver of CUDA 13.0 or newer", 2},
		{"older linker", version{12, 4}, version{12, 3}, "LTO-IR of NVRTC 12.4 needs nvJitLink 12.4 or newer, of CUDA 12", 1},
		{"newer linker", version{12, 3}, version{12, 4}, "", 0},
		{"linker of another major", version{11, 8}, version{12, 4}, "LTO-IR of NVRTC 11.8 needs nvJitLink 11.8 or newer, of CUDA 11", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake("libnvrtc.so.13", fmt.Sprintf(pair, "nvrtcVersion", tt.nvrtc.major, tt.nvrtc.minor))
			fake("libnvJitLink.so.13", fmt.Sprintf(pair, "nvJitLinkVersion", tt.linker.major, tt.linker.minor))
			stdout, stderr, code := cudainfo(t, "-driver", so, "-libs", libs)
			require.Zero(t, code, stderr)
			assert.Contains(t, stdout, "nvrtc     "+libs+"/libnvrtc.so.13, CUDA "+tt.nvrtc.String()+": 1 of the package's ")
			assert.Contains(t, stdout, "nvjitlink "+libs+"/libnvJitLink.so.13, CUDA "+tt.linker.String()+": 1 of the package's ")
			assert.Contains(t, stdout, tt.want)

			stdout, _, _ = cudainfo(t, "-driver", so, "-libs", libs, "-json")
			var m machine
			require.NoError(t, json.Unmarshal([]byte(stdout), &m))
			n := 0
			for _, l := range m.Libraries {
				if l.Package == "nvrtc" || l.Package == "nvjitlink" {
					n += len(l.Misfits)
				}
			}
			assert.Equal(t, tt.misfits, n)
		})
	}
}

func TestUsage(t *testing.T) {
	_, stderr, code := cudainfo(t, "extra")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, `unexpected argument "extra"`)
}
