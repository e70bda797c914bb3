//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package generated_test

// Whom the loader believes: not the environment of a program with elevated privileges, and no cache in which
// others can write.

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/internal/command"
)

// planted is an NVRTC whose code runs as soon as it is loaded.
const planted = `#include <stdio.h>
__attribute__((constructor)) static void run(void) { puts("PLANTED"); fflush(stdout); }
int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }`

const asTest = "CUDABIND_TEST_RIGHTS"

// TestRaisedRights runs this test as a program with root's rights that the user nobody starts. Each of
// the variables leads to a library that is planted.
func TestRaisedRights(t *testing.T) {
	if path := os.Getenv(asTest); path != "" {
		folders := nvrtc.Folders()
		t.Log("folders:", len(folders), "error:", nvrtc.Open(strings.TrimPrefix(path, "usual")))
		return
	}
	if os.Geteuid() != 0 || os.Getenv(command.Wrapper) != "" {
		t.Skip("needs root, who can make a program that others run with its rights, and no emulator: run it as root, for example in a container")
	}
	root := outside(t)
	for _, file := range []string{
		"LD_LIBRARY_PATH/libnvrtc.so.13", "CUDA_HOME/lib64/libnvrtc.so.13", "CUDA_PATH/lib64/libnvrtc.so.13",
		"VIRTUAL_ENV/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "CONDA_PREFIX/lib/libnvrtc.so.13",
		"XDG_CACHE_HOME/cudabind/libs/nvrtc/13.0+cu13/libnvrtc.so.13", "HOME/.cache/cudabind/libs/nvrtc/13.0+cu13/libnvrtc.so.13",
	} {
		sharedLibrary(t, filepath.Join(root, file), planted)
	}
	program := func(name string, mode os.FileMode) string {
		file := filepath.Join(root, name)
		copyFile(t, "/proc/self/exe", file)
		require.NoError(t, os.Chmod(file, 0o755|mode))
		return file
	}
	own, raised := program("own", 0), map[string]string{"setuid": program("setuid", os.ModeSetuid), "setgid": program("setgid", os.ModeSetgid)}
	if file := program("capable", 0); exec.Command("setcap", "cap_sys_nice+ep", file).Run() == nil {
		raised["capability"] = file
	}
	start := func(t *testing.T, program, open string, env ...string) string {
		t.Helper()
		cmd := exec.Command(program, "-test.v", "-test.run=^TestRaisedRights$")
		cmd.Dir, cmd.Env = root, append(env, asTest+"="+open)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	installed := strings.Contains(start(t, own, "usual"), "error: <nil>") // the system's loader finds an NVRTC, and goes first
	for _, variable := range []string{"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "HOME"} {
		t.Run(variable, func(t *testing.T) {
			env := variable + "=" + filepath.Join(root, variable)
			if !installed || variable == "LD_LIBRARY_PATH" {
				assert.Contains(t, start(t, own, "usual", env), "PLANTED", "the user's own program loads it")
			}
			for name, program := range raised {
				out := start(t, program, "usual", env)
				assert.NotContains(t, out, "PLANTED", name)
				assert.Contains(t, out, "folders: 0 ", name)
				if !installed {
					assert.Contains(t, out, "looked in the system's library path alone, as this program has more rights than whoever starts it", name)
				}
			}
		})
	}
	for name, program := range raised {
		assert.Contains(t, start(t, program, filepath.Join(root, "CUDA_HOME")), "PLANTED", "%s: the program itself names it", name)
	}
}

// outside is a folder that every user can read, as t.TempDir is not.
func outside(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rights")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}

// TestSharedCache: nothing is loaded from a cache that others can change, and the error says so.
func TestSharedCache(t *testing.T) {
	const version = "XDG_CACHE_HOME/cudabind/libs/nvrtc/13.1+cu13"
	for _, test := range []struct {
		name, folder string
		change       func(dir string) error
		says         string
	}{
		{"version", version, func(dir string) error { return os.Chmod(dir, 0o777) }, "can write to it (mode 0777): run chmod go-w on it"},
		{"library", filepath.Dir(version), func(dir string) error { return os.Chmod(dir, 0o775) }, "can write to it (mode 0775)"},
		{"libraries", "XDG_CACHE_HOME/cudabind/libs", func(dir string) error { return os.Chmod(dir, 0o757) }, "can write to it (mode 0757)"},
		{"cudabind", "XDG_CACHE_HOME/cudabind", func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, "can write to it (mode 0777)"},
		{"another user's", version, func(dir string) error { return os.Chown(dir, 65534, 65534) }, "it belongs to another user"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "another user's" && os.Geteuid() != 0 {
				t.Skip("only root can give a folder away: run it as root, for example in a container")
			}
			root := t.TempDir()
			if drivertest.InParent() {
				sharedLibrary(t, filepath.Join(root, version, "libnvrtc.so.13"), planted)
			}
			drivertest.InChild(t, func(t *testing.T) {
				root := os.Getenv("ROOT")
				require.Contains(t, nvrtc.Folders(), filepath.Join(root, version))
				require.NoError(t, test.change(filepath.Join(root, test.folder)))
				assert.NotContains(t, nvrtc.Folders(), filepath.Join(root, version))
				if file, _, err := nvrtc.Library(); err == nil {
					assert.NotContains(t, file, root)
					return
				} else {
					assert.ErrorContains(t, err, filepath.Join(root, test.folder)+" is left out: ")
					assert.ErrorContains(t, err, test.says)
				}
			}, append(nowhere(root), "ROOT="+root)...)
		})
	}
}
