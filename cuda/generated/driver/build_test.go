package driver_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const tinyProgram = `package main

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

func main() {
	err := driver.CuInit(0)
	var e *driver.LibraryError
	fmt.Println(errors.As(err, &e), errors.Is(err, errors.ErrUnsupported))
	fmt.Println(err)
}
`

// tinyModule writes a program as a module of its own.
func tinyModule(t *testing.T) (dir string, env []string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Skip("the module's source is not here: ", err)
	}
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(tinyProgram), 0o666))
	module := "module tiny\n\ngo 1.26.0\n\nrequire github.com/cudabind/cudabind v0.0.0\n\nreplace github.com/cudabind/cudabind => " + root + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o666))
	return dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOEXPERIMENT=")
}

// TestBuildWithoutCgo builds and runs a program of a module of its own.
func TestBuildWithoutCgo(t *testing.T) {
	cmd := command.Go("run", ".")
	if cmd.Err != nil {
		t.Skip("no Go: ", cmd.Err)
	}
	dir, env := tinyModule(t)
	cmd.Dir, cmd.Env = dir, append(env, "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Regexp(t, `^true true\ncuda: libcuda.so.1: this program was built without cgo`, string(out))
}
