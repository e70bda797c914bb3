package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cudabind/cudabind/cuda/safe"
)

// Format is the kind of code in an [Image].
type Format int

const (
	// MachineCode is a cubin: it runs on GPUs of one architecture, such as sm_90, and on those
	// of the same major version and a later minor one. Drivers of the compiler's major version
	// and later ones load it.
	MachineCode Format = iota
	// PTX runs on the architecture and all later ones. The driver compiles it when it is loaded.
	// It must be at least as new as the compiler.
	PTX
	// LTOIR is an input of [Link], which optimizes across inputs. It cannot be loaded.
	LTOIR
)

func (f Format) String() string {
	switch f {
	case MachineCode:
		return "machine code"
	case PTX:
		return "PTX"
	case LTOIR:
		return "LTO-IR"
	}
	return "Format(" + strconv.Itoa(int(f)) + ")"
}

// Options are the options of [Load], [Compile] and [Link]. The zero value compiles machine code
// for the context's device, optimized, in NVRTC's default dialect of C++.
type Options struct {
	// Format is the kind of code.
	Format Format
	// Arch is the architecture, such as "sm_90", or "sm_90a" with what only that one has. If it
	// is empty, Load takes that of the context's device. Compile and Link need it: see [Arch].
	Arch string
	// File is the name of the source in messages; "" is "source.cu". Quoted includes are looked
	// up in its folder. LoadFile and LoadFS set it.
	File string
	// Kernels name what else is to be found by Module.Kernel and safe.Global: kernels that are
	// not extern "C", with the arguments of a template, and the addresses of variables. For
	// example "scale<float>", "ns::add" or "&table". Templates are compiled only for arguments
	// that are named here or used in the source.
	Kernels []string
	// Defines are macros and their values. An empty value is 1.
	Defines map[string]string
	// Standard is the dialect, such as "c++20". "" is the compiler's default, C++17 for most.
	Standard string
	// IncludePaths are folders with headers.
	IncludePaths []string
	// Headers hold headers that the source includes by their paths in them. The first that has a
	// header counts. Headers find others beside them, too. They come before those of IncludePaths.
	Headers []fs.FS
	// FastMath trades precision for speed: approximate division and functions, no denormals.
	FastMath bool
	// LineInfo adds line numbers, for profilers.
	LineInfo bool
	// Debug adds debug information and turns optimization off, for debuggers.
	Debug bool
	// MaxRegisters is the maximum number of registers per thread; 0 is no limit.
	MaxRegisters int
	// LTO optimizes when linking, across all sources of Link. It needs nvJitLink.
	LTO bool
	// Flags are further options of NVRTC, such as "-fmad=false". For those that this struct
	// has fields for, use the fields. Link passes those to nvJitLink, too, that it knows: -fmad, -ftz,
	// -prec-div, -prec-sqrt and -Xptxas. Images with flags that may read or write files are not cached.
	Flags []string

	// CacheFolder is the folder of the cache; "" is cudabind/compile in the user's cache folder,
	// or none where that cannot be used. It is made if it does not exist. It must belong to the
	// user, and others must not be able to write to it or to replace it; functions return an
	// error that names a folder that cannot be used.
	CacheFolder string
	// CacheBytes is the size at which images are removed from the cache, the longest unused
	// first; 0 is 256 MiB.
	CacheBytes int64
	// NoCache compiles anew, and stores no image. Headers that are part of NVRTC are unpacked
	// into the cache's folder all the same, if that can be used.
	NoCache bool
}

// A reserved flag is one that would contradict a field of Options, or read a file that the
// cache does not know.
var reserved = map[string]string{
	"arch": "Arch", "gpu-architecture": "Arch",
	"std": "Standard", "I": "IncludePaths", "include-path": "IncludePaths",
	"D": "Defines", "define-macro": "Defines",
	"dlto": "LTO or Format", "dlink-time-opt": "LTO or Format", "optix-ir": "NVRTC itself",
	"rdc": "Link", "relocatable-device-code": "Link", "dc": "Link", "device-c": "Link",
	"use_fast_math": "FastMath", "lineinfo": "LineInfo", "generate-line-info": "LineInfo",
	"G": "Debug", "device-debug": "Debug", "maxrregcount": "MaxRegisters",
	"pre-include": "#include", "include": "#include",
	"optf": "Flags", "options-file": "Flags", "use-bundled-headers": "#include, which finds them,",
}

// pure are the flags of which it is known that they read and write no files: images compiled with
// others are not cached.
var pure = regexp.MustCompile(`^--?(` + strings.Join([]string{
	"(ftz|prec-sqrt|prec-div|fmad|extra-device-vectorization|device-int128|device-float128|restrict|no-cache|w|ewp|minimal|err-no)",
	"(modify-stack-limit|builtin-move-forward|builtin-initializer-list|device-stack-protector|jump-table-density|split-compile)",
	"(default-device|device-as-default-execution-space|extensible-whole-program|disable-warnings|brief-diagnostics|brief-diag)",
	"(display-error-number|no-display-error-number|diag-error|diag-suppress|diag-warn|no-source-include|opt-info|optimization-info)",
	"(dopt|Ofast-compile|Ofc|frandom-seed|random-seed|fdevice-syntax-only|ptxas-options|Xptxas|undefine-macro)",
}, "|") + `)(=(-v|--verbose|-O[0-4]|-dlcm=[a-z]+|-dscm=[a-z]+|-?-warn-[a-z-]+|[A-Za-z0-9,]+))?$`)

// steering are the beginnings of the variables by which NVRTC and nvJitLink take options, files and
// versions from the environment.
var steering = []string{"NVRTC", "NVVM", "NV_NVVM", "LIBNVVM", "NVJITLINK", "EDG_", "LLVM_OVERRIDE"}

// steered tells whether the environment may change images.
func steered(environment []string) bool {
	return slices.ContainsFunc(environment, func(variable string) bool {
		return slices.ContainsFunc(steering, func(begin string) bool { return strings.HasPrefix(variable, begin) })
	})
}

// born is the environment that the compiler may see without cgo, whatever os.Unsetenv did.
var born = steered(os.Environ())

// flagName is the name of a flag, without dashes and value.
func flagName(flag string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
	name, _, _ = strings.Cut(name, " ")
	for _, short := range []string{"I", "D"} {
		if !strings.HasPrefix(flag, "--") && strings.HasPrefix(name, short) {
			return short
		}
	}
	return name
}

var (
	macroName = regexp.MustCompile(`^[\pL_$][\pL\pN_$]*(\(.*\))?$`)
	standard  = regexp.MustCompile(`^[A-Za-z0-9+]*$`)
)

// check refuses options that contradict each other or cannot be passed on.
func (o *Options) check() error {
	switch {
	case o.Format < MachineCode || o.Format > LTOIR:
		return fmt.Errorf("%w: there is no %v", safe.ErrInvalidArgument, o.Format)
	case o.MaxRegisters < 0:
		return fmt.Errorf("%w: MaxRegisters is %d", safe.ErrRange, o.MaxRegisters)
	case o.CacheBytes < 0:
		return fmt.Errorf("%w: CacheBytes is %d", safe.ErrRange, o.CacheBytes)
	case o.LTO && o.Format == LTOIR:
		return fmt.Errorf("%w: LTO links, and LTO-IR is not linked yet: set only Format", safe.ErrInvalidArgument)
	case !standard.MatchString(o.Standard):
		return fmt.Errorf("%w: Options.Standard is %q, which is no dialect such as c++20", safe.ErrInvalidArgument, o.Standard)
	}
	for _, flag := range o.Flags {
		name := flagName(flag)
		if instead, ok := reserved[name]; ok {
			return fmt.Errorf("%w: the flag %s is not allowed: use %s", safe.ErrInvalidArgument, flag, instead)
		}
		if !strings.HasPrefix(flag, "-") || name == "" {
			return fmt.Errorf("%w: the flag %q does not begin with a dash and a name; write values as -name=value", safe.ErrInvalidArgument, flag)
		}
	}
	for name, value := range o.Defines {
		if !macroName.MatchString(name) {
			return fmt.Errorf("%w: %q in Options.Defines is no name of a macro", safe.ErrInvalidArgument, name)
		}
		if strings.ContainsAny(value, "\r\n") {
			return fmt.Errorf("%w: the value of %s in Options.Defines, %q, has several lines", safe.ErrInvalidArgument, name, value)
		}
	}
	return errors.Join(
		checkList("Kernels", o.Kernels), checkList("IncludePaths", o.IncludePaths), checkList("Flags", o.Flags),
		checkList("Defines", slices.Collect(maps.Values(o.Defines))),
	)
}

// checkList refuses what NVRTC takes for something else: it drops an empty text and takes the next
// option in its place, and it removes blanks.
func checkList(field string, all []string) error {
	for n, text := range all {
		var what string
		switch trimmed := strings.TrimSpace(text); {
		case strings.Contains(text, "\x00"):
			what = "has a zero byte"
		case field == "Defines":
			continue
		case trimmed == "":
			what = "is empty: leave it out"
		case strings.ContainsFunc(text, unicode.IsControl):
			what = "has a control character"
		case field == "IncludePaths" && (trimmed != text || text[0] == '='):
			what = "begins or ends with a character that NVRTC drops: write ./NAME/"
		default:
			continue
		}
		return fmt.Errorf("%w: Options.%s: entry %d, %q, %s", safe.ErrInvalidArgument, field, n, text, what)
	}
	return nil
}

// clone returns options that the caller cannot change.
func (o Options) clone() Options {
	o.Kernels, o.IncludePaths, o.Flags = slices.Clone(o.Kernels), slices.Clone(o.IncludePaths), slices.Clone(o.Flags)
	o.Defines, o.Headers = maps.Clone(o.Defines), slices.Clone(o.Headers)
	return o
}

// cacheable tells whether the image follows from the source, the headers and the options.
func (o *Options) cacheable() bool {
	return !o.NoCache && !born && !steered(os.Environ()) && !slices.ContainsFunc(o.Flags, func(flag string) bool { return !pure.MatchString(flag) })
}

// flags are NVRTC's options, with the folders of CUDA's own headers.
func (o *Options) flags(a arch, relocatable bool, folders []string) []string {
	flags := []string{
		"-arch=" + a.name(o.Format),
		"-modify-stack-limit=false", // a limit of the process, which concurrent calls would not restore
	}
	for _, f := range []struct {
		on   bool
		flag string
	}{
		{o.Format == LTOIR, "-dlto"},
		{relocatable, "-rdc=true"},
		{o.Standard != "", "-std=" + o.Standard},
		{o.FastMath, "-use_fast_math"},
		{o.LineInfo && !o.Debug, "-lineinfo"},
		{o.Debug, "-G"},
		{o.MaxRegisters > 0, "-maxrregcount=" + strconv.Itoa(o.MaxRegisters)},
	} {
		if f.on {
			flags = append(flags, f.flag)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Defines)) {
		if value := o.Defines[name]; value != "" {
			name += "=" + value
		}
		flags = append(flags, "-D"+name)
	}
	for _, dir := range slices.Concat(o.IncludePaths, folders) {
		flags = append(flags, "-I"+dir)
	}
	return append(flags, o.Flags...)
}
