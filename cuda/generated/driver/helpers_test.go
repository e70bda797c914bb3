//go:build cgo && linux && (amd64 || arm64)

package driver_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/fake.c
var fakeSource string

const libraryVariable = "LD_LIBRARY_PATH"

// compile makes a shared library of C, or skips where there is no C compiler.
func compile(tb testing.TB, file, source string) {
	tb.Helper()
	c := filepath.Join(tb.TempDir(), "library.c")
	require.NoError(tb, os.WriteFile(c, []byte(source), 0o666))
	cc := command.CC("-shared", "-fPIC", "-O2", "-pthread", "-o", file, c)
	if cc.Err != nil {
		tb.Skip("no C compiler: ", cc.Err)
	}
	out, err := cc.CombinedOutput()
	require.NoError(tb, err, "%s", out)
}

// library is a folder with a driver made of C.
func library(tb testing.TB, source string) (dir, file string) {
	tb.Helper()
	dir = tb.TempDir()
	file = filepath.Join(dir, "libcuda.so.1")
	compile(tb, file, source)
	return dir, file
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
	return goString(text)
}

func goString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// cString is text as C wants it.
func cString(text string) *byte { return unsafe.StringData(text + "\x00") }
