//go:build (linux && (cgo || cudabind_nocgo)) || (windows && amd64)

package sim

import (
	"cmp"
	"errors"
	goflag "flag"
	"fmt"
	"os"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
)

// Kernels are kernels for the simulated driver: of [Kernel], of [EmptyKernels], or the doubles that tools/kernels
// writes with -doubles.
type Kernels interface {
	// Register registers them with the driver.
	Register(Control) error
}

type registering func(Control) error

func (r registering) Register(c Control) error { return r(c) }

// Kernel is one kernel as a function of Go: see [Control.Kernel].
func Kernel(name string, function any) Kernels {
	return registering(func(c Control) error { return c.Kernel(name, function) })
}

// EmptyKernels makes all kernels run that nobody has registered: they do nothing. Without it, a launch of one
// returns CUDA_ERROR_NOT_SUPPORTED.
func EmptyKernels() Kernels {
	return registering(func(Control) error { simEmpty.call(1); return nil })
}

// Main runs the tests of a package on the simulated driver, with a double of NVRTC and with the kernels, and returns
// the code to exit with:
//
//	func TestMain(m *testing.M) { os.Exit(sim.Main(m, sim.Kernel("add", add))) }
//
// The driver is that of CUDA [Newest], or of the version in the environment variable CUDABIND_SIM_DRIVER. Tests control
// it by a [Control]: its zero value will do. If a test has violated CUDA's rules and has not called [Control.Reset],
// Main prints the violation to the standard error and returns 1.
//
// If the environment variable CUDABIND_REQUIRE_GPU is set, Main runs the tests on the machine's GPU, with its NVRTC.
// Tests that control the simulated driver must skip themselves then.
func Main(m interface{ Run() int }, kernels ...Kernels) int {
	defer noteVariables()
	if os.Getenv("CUDABIND_REQUIRE_GPU") != "" {
		return m.Run()
	}
	code, err := simulated(m, kernels)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// variables are those that results of tests depend on, and that are read where package testing does not notice: before the
// tests run, or in C.
var variables = []string{"CUDABIND_REQUIRE_GPU", "CUDABIND_SIM_DRIVER", "CUDABIND_SIM_DEVICES", "CUDABIND_SIM_MEMORY_MIB", "SIMDRIVER_WIDEN"}

// noteVariables adds them to the file in which package testing tells go test what the tests have read. Else go test would
// show results that it has kept from before a variable changed.
func noteVariables() {
	log := goflag.Lookup("test.testlogfile")
	if log == nil || log.Value.String() == "" {
		return
	}
	f, err := os.OpenFile(log.Value.String(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	defer f.Close()
	for _, name := range variables {
		fmt.Fprintln(f, "getenv", name)
	}
}

func simulated(m interface{ Run() int }, kernels []Kernels) (int, error) {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	version := cmp.Or(os.Getenv("CUDABIND_SIM_DRIVER"), Newest)
	file, err := Build(dir, version)
	if err != nil {
		return 0, err
	}
	compiler, err := BuildNVRTC(dir, version)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(driver.Open(file), nvrtc.Open(compiler)); err != nil {
		return 0, err
	}
	control, err := Attach(file)
	if err != nil {
		return 0, err
	}
	for _, k := range kernels {
		if err := k.Register(control); err != nil {
			return 0, err
		}
	}
	code := m.Run()
	if v := control.Violation(); v != "" {
		return 0, errors.New("simulated driver: " + v)
	}
	return code, nil
}
