//go:build (linux && (amd64 || arm64) && (cgo || cudabind_nocgo)) || (windows && amd64)

package driver_test

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/fake.c
var fakeSource string

const libraryVariable = "LD_LIBRARY_PATH"

// libraryFile is the driver.
var libraryFile = map[string]string{"linux": "libcuda.so.1", "windows": "nvcuda.dll"}[runtime.GOOS]

// sources are those of the libraries that the tests load.
var sources = []string{fakeSource, goodDriver, stubDriver, sickDriver, otherSource}

// prebuilt names the folder of these libraries for tests on another system than their C
// compiler's; TestPrebuild fills it.
const prebuilt = "CUDABIND_TEST_LIBRARIES"

func prebuiltFile(source string) string {
	return filepath.Join(os.Getenv(prebuilt), fmt.Sprintf("%x.dll", sha256.Sum256([]byte(source))))
}

// compile makes a shared library of C, or skips where there is no C compiler.
func compile(tb testing.TB, file, source string) {
	tb.Helper()
	if runtime.GOOS == "windows" {
		data, err := os.ReadFile(prebuiltFile(source))
		if err != nil {
			tb.Skip("make test-windows makes the library: ", err)
		}
		require.NoError(tb, os.WriteFile(file, data, 0o666))
		return
	}
	compileWith(tb, file, source)
}

// compileWith makes a shared library of C with more arguments of the compiler, or skips where there is
// none.
func compileWith(tb testing.TB, file, source string, args ...string) {
	tb.Helper()
	c := filepath.Join(tb.TempDir(), "library.c")
	require.NoError(tb, os.WriteFile(c, []byte(source), 0o666))
	cc := command.CC(append([]string{"-shared", "-fPIC", "-O2", "-pthread", "-o", file, c}, args...)...)
	if cc.Err != nil {
		tb.Skip("no C compiler: ", cc.Err)
	}
	out, err := cc.CombinedOutput()
	require.NoError(tb, err, "%s", out)
}

// TestPrebuild compiles the libraries for tests on another system.
func TestPrebuild(t *testing.T) {
	if os.Getenv(prebuilt) == "" || runtime.GOOS == "windows" {
		t.Skip("there is no $" + prebuilt)
	}
	for _, source := range sources {
		compile(t, prebuiltFile(source), source)
	}
}

// library is a folder with a driver made of C.
func library(tb testing.TB, source string) (dir, file string) {
	tb.Helper()
	dir = libraryFolder(tb)
	file = filepath.Join(dir, libraryFile)
	compile(tb, file, source)
	return dir, file
}

// libraryFolder is a new folder. Windows cannot remove a library that is loaded: the parent
// of the process does.
func libraryFolder(tb testing.TB) string {
	tb.Helper()
	if runtime.GOOS != "windows" {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp("", "")
	require.NoError(tb, err)
	return dir
}

// onFake runs body in a process whose driver is testdata/fake.c.
func onFake(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	drivertest.InChild(t, func(t *testing.T) {
		_, file := library(t, fakeSource)
		require.NoError(t, driver.Open(file))
		body(t)
	})
}

// said is what the fake driver was last called with.
func said(t *testing.T) string {
	t.Helper()
	var text *byte
	require.NoError(t, driver.CuGetErrorString(driver.CUDA_SUCCESS, &text))
	return ffi.GoString(text)
}
