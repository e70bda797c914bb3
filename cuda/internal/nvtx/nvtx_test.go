//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package nvtx

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/trust"
)

// tool builds testdata/tool.c; on Windows, CUDABIND_NVTX_TOOL names it.
func tool(t *testing.T) string {
	if file := os.Getenv("CUDABIND_NVTX_TOOL"); file != "" {
		return file
	}
	if runtime.GOOS == "windows" {
		t.Skip("CUDABIND_NVTX_TOOL does not name testdata/tool.c as a DLL")
	}
	file := filepath.Join(drivertest.TempDir(t), "tool.so")
	said, err := command.CC("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", file, "testdata/tool.c").CombinedOutput()
	require.NoError(t, err, "%s", said)
	return file
}

// TestTool attaches a tool, which writes down what it is told.
func TestTool(t *testing.T) {
	var env []string
	if drivertest.InParent() {
		env = []string{variable + "=" + tool(t), "NVTX_TOOL_OUT=" + filepath.Join(drivertest.TempDir(t), "told")}
	}
	drivertest.InChild(t, func(t *testing.T) {
		assert.True(t, Wanted())
		long := strings.Repeat("long ✓ ", 40)
		for _, name := range []string{"outer", long} {
			require.True(t, Push(name))
		}
		NameStream(5, "copies")
		NameThread(12, "worker")
		Pop()
		Pop()
		told, err := os.ReadFile(os.Getenv("NVTX_TOOL_OUT"))
		require.NoError(t, err)
		assert.Equal(t, "domain Go\npush 1 outer 1 1\npush 1 "+long+" 1 1\nstream 5 copies\nthread 12 worker\npop 1\npop 1\n", strings.ReplaceAll(string(told), "\r", ""))
	}, env...)
}

func TestNoTool(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		assert.False(t, Wanted())
		assert.False(t, Push("x"))
		NameStream(1, "x")
		NameThread(1, "x")
	}, variable+"=")
}

// TestElevatedPrivileges: a program with elevated privileges takes no code from the variable.
func TestElevatedPrivileges(t *testing.T) {
	t.Setenv(variable, "tool.so")
	require.True(t, Wanted())
	secure = func() bool { return true }
	defer func() { secure = trust.Secure }()
	assert.False(t, Wanted())
	assert.Empty(t, library())
}

// TestNotATool: a library that is none is left alone.
func TestNotATool(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) { assert.False(t, Push("x")) }, variable+"="+filepath.Join(drivertest.TempDir(t), "none.so"))
}
