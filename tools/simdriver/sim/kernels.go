package sim

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cudabind/cudabind/internal/command"
)

// BuildKernels compiles kernels in C for the driver that [Build] builds in the same
// directory, which it creates if necessary. It returns the path of the library. A driver that
// is already loaded finds it if no kernel was launched before. A kernel is a function of the
// name by which images call it:
//
//	#include "simkernel.h"
//
//	void add(const struct simGrid *g, void **args)
//
// args[k] points to the value of parameter k, and g->variable finds variables of the module. The driver calls the function once for each
// launch, as it calls those of [Control.Kernel], which replace kernels in C. Nothing checks
// addresses: a wrong one can crash the process. C++ kernels have the names of
// [Control.Kernel], as far as these are identifiers, or mangled names.
//
// BuildKernels runs the C compiler as [Build] does. Its errors hold the compiler's messages.
func BuildKernels(dir string, files ...string) (string, error) {
	source, _, err := sources("c", "driver")
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no kernels to build: name a C file")
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	on := target()
	made := filepath.Join(work, on.kernels)
	cc := command.CC(append(on.flags(on.kernels), "-O2", "-g", "-shared", "-Wall", "-I", source, "-o", made)...)
	cc.Args = append(append(cc.Args, files...), "-lm")
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building kernels with %s: %w\n%s", cc.Args[0], err, out)
	}
	if err := sign(made); err != nil {
		return "", err
	}
	return place(made, filepath.Join(dir, on.kernels))
}
