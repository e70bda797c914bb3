package drivertest

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const childVariable = "CUDABIND_TEST_CHILD"

// InChild runs body in a process of its own, since a process keeps the library
// that it has loaded. env is added to the environment of that process.
func InChild(t *testing.T, body func(t *testing.T), env ...string) {
	t.Helper()
	if os.Getenv(childVariable) == t.Name() {
		body(t)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	start := func() *exec.Cmd {
		cmd := command.Built(self, "-test.v", "-test.run="+pattern, "-test.timeout=2m")
		cmd.Env = append(os.Environ(), childVariable+"="+t.Name(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
		if runtime.GOOS == "windows" {
			cmd.Env = append(cmd.Env, "TMP="+TempDir(t)) // the child cannot remove what it has loaded
		}
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}
	out, ended, err := output(start())
	// qemu has stopped for good once in about 500 processes, and wine has failed to start one once in thousands.
	if !ended && (os.Getenv(command.Wrapper) != "" || runtime.GOOS == "windows") {
		out, ended, err = output(start())
	}
	require.True(t, ended, "the child has not started, or has stopped and not even its timeout ends it: %v: %s", err, out)
	if strings.Contains(string(out), "--- SKIP: "+t.Name()+" ") {
		t.Skipf("%s", out)
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name()+" ", "the test did not run in the child")
}

// output runs a command, and returns what it prints. ended is false if the child did not start, or was killed because
// it outlived its own timeout.
func output(cmd *exec.Cmd) (text []byte, ended bool, err error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second // a child of the child may hold the output
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	var killed atomic.Bool
	timer := time.AfterFunc(3*time.Minute, func() {
		killed.Store(true)
		_ = cmd.Process.Kill()
	})
	defer timer.Stop()
	err = cmd.Wait()
	return out.Bytes(), !killed.Load(), err
}

// TempDir is t.TempDir, but removed as wine can, which has not all that t.TempDir uses.
func TempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	t.Cleanup(func() {
		var files []string
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			files = append(files, path)
			return nil
		})
		for _, file := range slices.Backward(files) {
			assert.NoError(t, os.Remove(file))
		}
	})
	return dir
}

// InParent tells whether what the child will find is to be prepared now.
func InParent() bool { return os.Getenv(childVariable) == "" }
