// Package sim builds a simulated libcuda.so.1, for tests on machines without a
// GPU, and tells it how to behave.
//
// It is a test double. It has one or more devices, contexts, streams with an
// order, events, memory with guards around it, captures and graphs, a few kernels
// that it knows by name, and the error codes that a real driver was seen to
// return. That a program works with it says nothing about CUDA.
package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/internal/command"
)

// Default is the CUDA version that the simulated driver has unless told otherwise,
// Newest the highest that it can have.
const (
	Default = "13.0"
	Newest  = "13.5"
)

// oldest is the lowest version that package safe works with.
const oldest = "11.8"

// file is the name that programs look for.
const file = "libcuda.so.1"

// Build puts the library into a directory, which is made where it is missing, and
// returns the file. It has the functions that a driver of the given CUDA version,
// between 11.8 and [Newest], has, as far as they are simulated.
//
// CC names the C compiler and its arguments, cc without it. What was built once is
// kept in the folder that $CUDABIND_SIMDRIVER names, else in cudabind/simdriver in
// the user's cache folder, and built again when the sources, the flags or the
// compiler change.
func Build(dir, version string) (string, error) {
	l, err := newLibrary(version)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, file)
	if err := l.make(work, made); err != nil {
		return "", err
	}
	target := filepath.Join(dir, file)
	return target, os.Rename(made, target) // whole or not at all, also for a program that has it open
}

// A library is what the compiler gets.
type library struct {
	source, protos string // folders
	files          []string
	script         []byte // the linker's list of exports
	flags          []string
}

func newLibrary(version string) (*library, error) {
	number, err := parse(version)
	if err != nil {
		return nil, err
	}
	l := &library{flags: []string{
		"-O2", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror",
		"-DSIM_VERSION=" + strconv.Itoa(number), "-Wl,-soname=" + file,
	}}
	if l.source, l.protos, err = sources(); err != nil {
		return nil, err
	}
	if l.script, err = exports(l.source, number); err != nil {
		return nil, err
	}
	l.files, err = filepath.Glob(filepath.Join(l.source, "*.c"))
	return l, err
}

// make takes the library that is kept, or else compiles and keeps it.
func (l *library) make(work, made string) error {
	kept := l.kept()
	if kept != "" && take(kept, made) == nil {
		return nil
	}
	if err := l.compile(work, made); err != nil {
		return err
	}
	if kept != "" {
		keep(made, kept)
	}
	return nil
}

func (l *library) compile(work, made string) error {
	list := filepath.Join(work, "exports")
	if err := os.WriteFile(list, l.script, 0o666); err != nil {
		return err
	}
	cc := command.CC(l.flags...)
	cc.Args = append(cc.Args, "-I", l.source, "-I", l.protos, "-Wl,--version-script="+list, "-o", made)
	cc.Args = append(append(cc.Args, l.files...), "-lm")
	if out, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("building the simulated driver with %s: %w\n%s", cc.Args[0], err, out)
	}
	return nil
}

// parse makes 13000 of 13.0.
func parse(version string) (int, error) {
	number := encode(version)
	if number < encode(oldest) || number > encode(Newest) {
		return 0, fmt.Errorf("no driver of CUDA %q is simulated, but those of %s to %s", version, oldest, Newest)
	}
	return number, nil
}

// encode is 0 for what is no version.
func encode(version string) int {
	major, minor, _ := strings.Cut(version, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err != nil || err2 != nil {
		return 0
	}
	return 1000*a + 10*b
}

// sources finds the C files beside this one, and the raw package's prototypes,
// which they are checked against.
func sources() (source, protos string, err error) {
	_, self, _, _ := runtime.Caller(0)
	source = filepath.Join(filepath.Dir(self), "c")
	protos = filepath.Join(source, "../../../../cuda/generated/driver")
	if _, err := os.Stat(filepath.Join(source, "sim.h")); err != nil {
		return "", "", fmt.Errorf("the simulated driver is built from its sources, and they are not where this program was compiled (built with -trimpath, or elsewhere): %w", err)
	}
	return source, protos, nil
}

var listed = regexp.MustCompile(`F\((cu\w+)\)`)
var told = regexp.MustCompile(`\b(sim[A-Z]\w*)\(`)

// exports is the linker's list of what a driver of the version has.
func exports(source string, number int) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{ global:\n")
	functions, err := os.ReadFile(filepath.Join(source, "functions.h"))
	if err != nil {
		return nil, err
	}
	for _, m := range listed.FindAllSubmatch(functions, -1) {
		since := model.Since("driver", string(m[1]))
		if since == "" {
			return nil, fmt.Errorf("functions.h: no CUDA version has %s", m[1])
		}
		if encode(strings.TrimPrefix(since, "<=")) <= number {
			fmt.Fprintf(&b, "%s;\n", m[1])
		}
	}
	controls, err := os.ReadFile(filepath.Join(source, "simulate.h"))
	if err != nil {
		return nil, err
	}
	for _, m := range told.FindAllSubmatch(controls, -1) {
		fmt.Fprintf(&b, "%s;\n", m[1])
	}
	b.WriteString("local: *; };\n")
	return b.Bytes(), nil
}
