//go:build (linux && (cgo || cudabind_nocgo)) || (windows && amd64)

package drivertest

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// LeftOver returns an error if tests have leaked objects of the simulated driver, or broken its rules. It collects what they
// have dropped, and waits a minute at most for its release.
func LeftOver(simulated sim.Control) error {
	for end := time.Now().Add(time.Minute); simulated.Live("") > 0 && time.Now().Before(end); {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	if n := simulated.Live(""); n != 0 {
		return fmt.Errorf("%d objects are alive:\n%s", n, simulated.List())
	}
	if v := simulated.Violation(); v != "" {
		return errors.New(v)
	}
	return nil
}
