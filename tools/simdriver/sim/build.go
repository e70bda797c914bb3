// Package sim builds and controls a simulated libcuda.so.1 or nvcuda.dll, for tests on
// machines without a GPU. [Build] compiles the library; a test process loads it as it would
// load the real driver, and [Attach] returns a [Control] to inject failures, delays and
// faults, and to count live objects.
//
// The library is a test double. It simulates devices, contexts, streams and their order,
// events, memory with guards against overruns, captures, graphs, and a few kernels that it
// knows by name. It returns the error codes that a real driver was observed to return. A
// program that passes its tests on it has not been tested on CUDA: run them on a GPU too.
package sim

import (
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

// Default is the CUDA version that the simulated driver has by default, and Newest is the
// newest that it can have.
const (
	Default = "13.0"
	Newest  = "13.5"
)

// oldest is the oldest version that package safe supports.
const oldest = "11.8"

// Build builds the library in a directory, which it creates if necessary, and returns the
// path of the file. The library exports the simulated functions that a driver of the given
// CUDA version has, such as "13.0"; versions range from 11.8 to [Newest]. Build replaces only a
// file that it has made itself, and returns an error if there is another of that name.
//
// Build runs the C compiler that the environment variable CC names, with its arguments, or
// cc. A compiler of MinGW, such as x86_64-w64-mingw32-gcc, builds nvcuda.dll for Windows. Build
// caches libraries in the directory that CUDABIND_SIMDRIVER names, or in cudabind/simdriver in
// the user's cache directory, and recompiles if the sources, the flags or the compiler change.
func Build(dir, version string) (string, error) {
	number, err := parse(version)
	if err != nil {
		return "", err
	}
	l, err := newLibrary(driverOn(target()), number)
	if err != nil {
		return "", err
	}
	return l.build(dir)
}

func (l *library) build(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, l.file)
	if err := l.make(work, made); err != nil {
		return "", err
	}
	return place(made, filepath.Join(dir, l.file))
}

// A library is the input of the compiler.
type library struct {
	api      string // whose functions it has
	on       *system
	file     string // the name by which programs load it
	folder   string // of its sources
	controls string // a header with more functions, "" for none

	source, protos string // folders
	files          []string
	script         []byte // the linker's list of exports
	flags          []string
}

func driverOn(on *system) library {
	return library{api: "driver", on: on, file: on.driver, folder: "c", controls: "simulate.h"}
}

func newLibrary(l library, number int) (_ *library, err error) {
	l.flags = append(l.on.flags(l.file),
		"-O2", "-g", "-shared", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror",
		"-DSIM_VERSION="+strconv.Itoa(number), "-DSIM_PTX="+strconv.Itoa(ptx(number)), "-DSIM_KERNELS=\""+l.on.kernels+"\"",
	)
	if l.source, l.protos, err = sources(l.folder, l.api); err != nil {
		return nil, err
	}
	if l.script, err = l.exports(number); err != nil {
		return nil, err
	}
	l.files, err = filepath.Glob(filepath.Join(l.source, "*.c"))
	return &l, err
}

// make copies the cached library, or else compiles and caches it.
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
	list := filepath.Join(work, l.on.list)
	if err := os.WriteFile(list, l.script, 0o666); err != nil {
		return err
	}
	cc := command.CC(l.flags...)
	cc.Args = append(cc.Args, "-I", l.source, "-I", l.protos, l.on.option+list, "-o", made)
	cc.Args = append(append(cc.Args, l.files...), l.on.libs...)
	if out, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("building the simulated driver with %s: %w\n%s", cc.Args[0], err, out)
	}
	return sign(made)
}

// parse converts "13.0" to 13000.
func parse(version string) (int, error) {
	number := encode(version)
	if number < encode(oldest) || number > encode(Newest) {
		return 0, fmt.Errorf("cannot simulate a driver for CUDA %q: versions range from %s to %s", version, oldest, Newest)
	}
	return number, nil
}

// encode returns a version such as "12.4" as CUDA writes it, 12040, and 0 for anything else.
func encode(version string) int {
	major, minor, _ := strings.Cut(version, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err != nil || err2 != nil {
		return 0
	}
	return 1000*a + 10*b
}

// ptx returns the newest version of PTX that a driver of a CUDA version knows, 90 for 9.0.
func ptx(number int) int {
	major, minor := number/1000, number%1000/10
	switch {
	case major == 11: // 11.8
		return 78
	case major == 12 && minor > 5: // 12.6 has that of 12.5
		return 80 + minor - 1
	}
	return (major-4)*10 + minor
}

// sources finds C files next to this one, and the prototypes in the raw package that the
// compiler checks them against.
func sources(folder, api string) (source, protos string, err error) {
	_, self, _, _ := runtime.Caller(0)
	source = filepath.Join(filepath.Dir(self), folder)
	protos = filepath.Join(source, "../../../../cuda/generated", api)
	if _, err := os.Stat(filepath.Join(source, "functions.h")); err != nil {
		return "", "", fmt.Errorf("the simulated driver is compiled from its C sources, which this program does not find; run it on the machine that compiled it, built without -trimpath: %w", err)
	}
	return source, protos, nil
}

var listed = regexp.MustCompile(`F\((\w+)\) *\\?\n`)
var told = regexp.MustCompile(`\b(sim[A-Z]\w*)\(`)

// exports returns the linker's list of the functions that a library of the version exports, and
// the controls.
func (l *library) exports(number int) ([]byte, error) {
	var names []string
	functions, err := os.ReadFile(filepath.Join(l.source, "functions.h"))
	if err != nil {
		return nil, err
	}
	for _, m := range listed.FindAllSubmatch(functions, -1) {
		since := model.Since(l.api, string(m[1]))
		if since == "" {
			return nil, fmt.Errorf("functions.h: %s is in no CUDA version", m[1])
		}
		if encode(strings.TrimPrefix(since, "<=")) <= number {
			names = append(names, string(m[1]))
		}
	}
	var controls []byte
	if l.controls != "" {
		if controls, err = os.ReadFile(filepath.Join(l.source, l.controls)); err != nil {
			return nil, err
		}
	}
	for _, m := range told.FindAllSubmatch(controls, -1) {
		names = append(names, string(m[1]))
	}
	return []byte(l.on.text(names)), nil
}
