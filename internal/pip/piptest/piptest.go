// Package piptest stands in for pip in tests.
package piptest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Python puts a python3 first in PATH that runs the lines of shell. They find
// pip's arguments in $args, its --dest in $dest, its --report in $report and its
// --log in $log.
func Python(t *testing.T, lines string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the python3 of the test is a shell script")
	}
	script := `#!/bin/sh
shift 3
args="$*"
while [ $# -gt 1 ]; do
	[ "$1" = --dest ] && dest=$2
	[ "$1" = --report ] && report=$2
	[ "$1" = --log ] && log=$2
	shift
done
` + lines + "\n"
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
