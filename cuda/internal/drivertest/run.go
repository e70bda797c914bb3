package drivertest

import (
	"fmt"
	"os"

	"github.com/cudabind/cudabind/cuda/ffi"
)

// Run runs the tests of a package, and returns the code to exit with: 1 also if C functions that they have called changed
// how the Go runtime handles signals, for which [ffi.RestoreSignals] is there.
func Run(m interface{ Run() int }) int {
	code := m.Run()
	if changed := ffi.RestoreSignals(); len(changed) > 0 {
		fmt.Fprintln(os.Stderr, "C functions changed how the Go runtime handles these signals:", changed)
		return 1
	}
	return code
}
