package sim

import (
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/internal/command"
)

// A system is one for which C compilers make libraries.
type system struct {
	driver, kernels string         // names of files; the driver looks for the kernels in its folder
	nvrtc           map[int]string // by the major version
	flags           func(file string) []string
	libs            []string
	list            string // the linker's list of exports: its name, its text and how the linker is told of it
	text            func(names []string) string
	option          string
}

var linux = &system{
	driver: "libcuda.so.1", kernels: "libsimkernels.so",
	nvrtc: map[int]string{11: "libnvrtc.so.11.2", 12: "libnvrtc.so.12", 13: "libnvrtc.so.13"},
	flags: func(file string) []string { return []string{"-fPIC", "-pthread", "-Wl,-soname=" + file} },
	libs:  []string{"-lm", "-ldl"},
	list:  "exports",
	text: func(names []string) string {
		return "{ global:\n" + strings.Join(names, ";\n") + ";\nlocal: *; };\n"
	},
	option: "-Wl,--version-script=",
}

var windows = &system{
	driver: "nvcuda.dll", kernels: "simkernels.dll",
	nvrtc: map[int]string{11: "nvrtc64_112_0.dll", 12: "nvrtc64_120_0.dll", 13: "nvrtc64_130_0.dll"},
	flags: func(string) []string { return []string{"-static"} },
	libs:  []string{"-lm"},
	list:  "exports.def",
	text:  func(names []string) string { return "EXPORTS\n" + strings.Join(names, "\n") + "\n" },
}

var forWindows = regexp.MustCompile(`(?m)^Target: .*(mingw|windows-gnu)`)

// target is the system for which the C compiler makes libraries.
func target() *system {
	if version, err := command.CC("-v").CombinedOutput(); err == nil && forWindows.Match(version) {
		return windows
	}
	return linux // if the compiler does not run, compiling will return the reason
}
