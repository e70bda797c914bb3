//go:build (linux && (cgo || cudabind_nocgo)) || (windows && amd64)

package double

import (
	"cmp"
	"os"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// Driver opens the simulated driver in the file that CUDABIND_SIM names. If the variable is not set, it builds one in the
// folder, of the CUDA version in CUDABIND_SIM_DRIVER, and sets it for tests in processes of their own.
func Driver(dir string) (c sim.Control, err error) {
	file := os.Getenv("CUDABIND_SIM")
	if file == "" {
		if file, err = sim.Build(dir, cmp.Or(os.Getenv("CUDABIND_SIM_DRIVER"), sim.Default)); err != nil {
			return c, err
		}
		os.Setenv("CUDABIND_SIM", file)
	}
	if err := driver.Open(file); err != nil {
		return c, err
	}
	return sim.Attach(file)
}
