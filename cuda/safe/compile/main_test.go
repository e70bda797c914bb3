//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Test setup: the choice of driver, NVIDIA's libraries, shared helpers.

package compile

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/nvjitlink"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/stretchr/testify/require"
)

// The tests run on a simulated driver, or with CUDABIND_REQUIRE_GPU=1 on the machine's driver.
// NVRTC and nvJitLink are the machine's, or those that make libraries got.
var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run gives the tests a cache and a driver of their own.
func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "compile")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	libraries, err := filepath.Abs("../../../.cache")
	if err != nil {
		return 0, err
	}
	os.Setenv("CUDABIND_TEST_LIBRARIES", cmp.Or(os.Getenv("CUDABIND_TEST_LIBRARIES"), libraries))
	if onGPU {
		os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
		return drivertest.Run(m), nil
	}
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	if _, err := double.Driver(dir); err != nil {
		return 0, err
	}
	return drivertest.Run(m), nil
}

// needsNVRTC skips a test without NVRTC. It needs a version if it is not "".
func needsNVRTC(t testing.TB, version string) {
	t.Helper()
	if _, _, err := nvrtc.Library(); err != nil || version != "" {
		require.NoError(t, nvrtc.Open(fetched(t, "libnvrtc", version)))
	}
}

func needsNvJitLink(t testing.TB, version string) {
	t.Helper()
	if _, _, err := nvjitlink.Library(); err != nil || version != "" {
		require.NoError(t, nvjitlink.Open(fetched(t, "libnvJitLink", version)))
	}
}

// fetched returns the folder of a library of a version, 13.5 by default. It skips the test if
// there is none.
func fetched(t testing.TB, library, version string) string {
	t.Helper()
	dir := filepath.Join(os.Getenv("CUDABIND_TEST_LIBRARIES"), library, cmp.Or(version, "13.5"))
	if _, err := os.Stat(dir); err != nil || runtime.GOOS == "windows" {
		t.Skipf("no %s of CUDA %s: make libraries gets it for Linux", library, version)
	}
	return dir
}

func open(t testing.TB) *safe.Context {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// tree writes and removes files below a folder.
type tree struct {
	t   *testing.T
	dir string
}

func (f tree) write(file, text string) {
	f.t.Helper()
	file = filepath.Join(f.dir, file)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(f.t, os.WriteFile(file, []byte(text), 0o644))
}

func (f tree) link(to, file string) {
	f.t.Helper()
	require.NoError(f.t, os.RemoveAll(filepath.Join(f.dir, file)))
	require.NoError(f.t, os.Symlink(to, filepath.Join(f.dir, file)))
}

func (f tree) remove(file string) {
	f.t.Helper()
	require.NoError(f.t, os.RemoveAll(filepath.Join(f.dir, file)))
}
