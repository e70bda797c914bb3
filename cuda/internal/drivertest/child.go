package drivertest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/internal/command"
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
	cmd := command.Built(self, "-test.v", "-test.run="+pattern, "-test.timeout=2m")
	cmd.Env = append(os.Environ(), childVariable+"="+t.Name(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "--- SKIP: "+t.Name()+" ") {
		t.Skipf("%s", out)
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name()+" ", "the test did not run in the child")
}

// InParent tells whether what the child will find is to be prepared now.
func InParent() bool { return os.Getenv(childVariable) == "" }
