//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package generated_test

// Where the loader looks for a library. The libraries are made of C here, and tell
// the version that the row says.

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/internal/command"
)

// sharedLibrary compiles source to file, whose folders it makes.
func sharedLibrary(t *testing.T, file, source string, args ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	c := filepath.Join(t.TempDir(), "library.c")
	require.NoError(t, os.WriteFile(c, []byte(source), 0o666))
	cc := command.CC(append([]string{"-shared", "-fPIC", "-o", file, c}, args...)...)
	if cc.Err != nil {
		t.Skip("no C compiler: ", cc.Err)
	}
	out, err := cc.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// fakeNVRTC makes an NVRTC of a version such as 13.5.
func fakeNVRTC(t *testing.T, file, version string) {
	t.Helper()
	major, minor, _ := strings.Cut(version, ".")
	sharedLibrary(t, file, fmt.Sprintf("int nvrtcVersion(int *major, int *minor) { *major = %s; *minor = %s; return 0; }", major, minor))
}

// nowhere is an environment in which every variable that the loader reads leads
// to a folder below root.
func nowhere(root string) []string {
	var env []string
	for _, v := range []string{"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "HOME"} {
		env = append(env, v+"="+filepath.Join(root, v))
	}
	return env
}

// loadsNVRTC has a process with the libraries below root load the one that is wanted.
func loadsNVRTC(t *testing.T, root, want, version string) {
	t.Helper()
	drivertest.InChild(t, func(t *testing.T) {
		file, got, err := nvrtc.Library()
		require.NoError(t, err)
		if !strings.HasPrefix(file, os.Getenv("ROOT")) {
			t.Skipf("the system's loader finds %s first", file)
		}
		assert.Equal(t, filepath.Join(os.Getenv("ROOT"), want), file)
		assert.Equal(t, version, got)
		assert.NoError(t, nvrtc.Open(file))
	}, append(nowhere(root), "ROOT="+root)...)
}

// TestWhereLibrariesAreFound has two libraries at most, and the first must be loaded.
func TestWhereLibrariesAreFound(t *testing.T) {
	target := "x86_64-linux"
	if runtime.GOARCH == "arm64" {
		target = "sbsa-linux"
	}
	const other = "XDG_CACHE_HOME/cudabind/libs/nvrtc/99.9+cu13/libnvrtc.so.13" // comes after all but other Pythons
	for _, tt := range []struct{ name, first, second string }{
		{"loader's path", "LD_LIBRARY_PATH/libnvrtc.so.12", "CUDA_HOME/lib64/libnvrtc.so.13"},
		{"toolkit", "CUDA_HOME/lib64/libnvrtc.so.13", "CUDA_PATH/lib64/libnvrtc.so.13"},
		{"other toolkit", "CUDA_PATH/lib64/libnvrtc.so.13", other},
		{"toolkit's target", "CUDA_HOME/targets/" + target + "/lib/libnvrtc.so.13", other},
		{"toolkit of CUDA 11", "CUDA_HOME/lib64/libnvrtc.so.11.2", other},
		{"wheel", "VIRTUAL_ENV/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "CONDA_PREFIX/lib/libnvrtc.so.13"},
		{"wheel of CUDA 12", "VIRTUAL_ENV/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", other},
		{"newest Python", "VIRTUAL_ENV/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "VIRTUAL_ENV/lib/python3.9/site-packages/nvidia/cu13/lib/libnvrtc.so.13"},
		{"wheel in conda", "CONDA_PREFIX/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "CONDA_PREFIX/lib/libnvrtc.so.13"},
		{"conda's own", "CONDA_PREFIX/lib/libnvrtc.so.13", other},
		{"cache", "XDG_CACHE_HOME/cudabind/libs/nvrtc/13.10.2+cu13/libnvrtc.so.13", "XDG_CACHE_HOME/cudabind/libs/nvrtc/13.9.1+cu13/libnvrtc.so.13"},
		{"before other Pythons", other, "HOME/.local/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13"},
		{"user's packages", "HOME/.local/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "HOME/.local/lib/python3.9/site-packages/nvidia/cu13/lib/libnvrtc.so.13"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if drivertest.InParent() {
				fakeNVRTC(t, filepath.Join(root, tt.first), "13.1")
				fakeNVRTC(t, filepath.Join(root, tt.second), "13.2")
			}
			loadsNVRTC(t, root, tt.first, "13.1")
		})
	}
}

// TestUnfitLibraryIsPassedOver: the loader goes on to the next place.
func TestUnfitLibraryIsPassedOver(t *testing.T) {
	root := t.TempDir()
	const good = "VIRTUAL_ENV/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13"
	if drivertest.InParent() {
		fakeNVRTC(t, filepath.Join(root, good), "13.1")
		sharedLibrary(t, filepath.Join(root, "CUDA_HOME/lib64/libnvrtc.so.13"), "int other;")
	}
	loadsNVRTC(t, root, good, "13.1")
}

// TestCompanionIsOpenedFirst: a library that has no path of its own to search needs a
// second one in its folder.
func TestCompanionIsOpenedFirst(t *testing.T) {
	root := t.TempDir()
	const good = "CUDA_HOME/lib64/libnvrtc.so.13"
	if drivertest.InParent() {
		companion := filepath.Join(root, "CUDA_HOME/lib64/libnvrtc-builtins.so.13.1")
		sharedLibrary(t, companion, "int builtins(void) { return 1; }", "-Wl,-soname,libnvrtc-builtins.so.13.1")
		sharedLibrary(t, filepath.Join(root, good),
			"int builtins(void); int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = builtins(); return 0; }", companion)
	}
	loadsNVRTC(t, root, good, "13.1")
}

// TestNowhere: the error lists the places, and why each file that is there was refused.
func TestNowhere(t *testing.T) {
	root := t.TempDir()
	if drivertest.InParent() {
		sharedLibrary(t, filepath.Join(root, "CUDA_HOME/lib64/libnvrtc.so.12"), "int other;")
		dir := filepath.Join(root, "XDG_CACHE_HOME/cudabind/libs/nvrtc/13.5.37+cu13")
		require.NoError(t, os.MkdirAll(dir, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "libnvrtc.so.13"), []byte("no library"), 0o666))
	}
	drivertest.InChild(t, func(t *testing.T) {
		err := nvrtc.Open("")
		if err == nil {
			t.Skip("this machine has NVRTC")
		}
		root := os.Getenv("ROOT")
		for _, says := range []string{
			"cuda: libnvrtc.so.13: cannot open shared object file",
			root + "/CUDA_HOME/lib64/libnvrtc.so.12 is not NVRTC: it has no nvrtcVersion",
			root + "/XDG_CACHE_HOME/cudabind/libs/nvrtc/13.5.37+cu13/libnvrtc.so.13: file too short",
			"looked in the system's library path, " + root + "/CUDA_HOME, " + root + "/CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*, " +
				root + "/VIRTUAL_ENV/lib/python3.*/site-packages, " + root + "/CONDA_PREFIX/lib/python3.*/site-packages, " +
				root + "/CONDA_PREFIX, " + root + "/XDG_CACHE_HOME/cudabind/libs/nvrtc/*, " + root + "/HOME/.local/lib/python3.*/site-packages, /usr/local/lib/python3.*/site-packages",
			"tools/libs@latest get nvrtc, or install",
		} {
			assert.ErrorContains(t, err, says)
		}
		assert.NotContains(t, err.Error(), "libnvrtc.so.11.2", "no such file")
		assert.NotContains(t, nvrtc.Open(t.TempDir()).Error(), "looked in", "a program that names a folder means it")
	}, append(nowhere(root), "ROOT="+root)...)
}
