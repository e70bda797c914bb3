package compile

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	// Headers holds headers that the source includes by their paths in it. Headers in it find
	// others beside them, too. They come before those of IncludePaths.
	Headers fs.FS
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
	// has fields for, use the fields.
	Flags []string
	// Warnings, if not nil, receives the compiler's messages that are no errors, also from the
	// cache. Calls at the same time need one each.
	Warnings *[]*Diagnostic

	// CacheFolder is the folder of the cache; "" is cudabind/compile in the user's cache folder.
	// It is made if it does not exist. It must belong to the user, and others must not be able to
	// write to it.
	CacheFolder string
	// CacheBytes is the size at which images are removed from the cache, the longest unused
	// first; 0 is 256 MiB.
	CacheBytes int64
	// NoCache compiles anew, and stores no image. Only headers that are part of NVRTC are
	// unpacked into the cache's folder all the same.
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

// writing are flags with which NVRTC writes files, or reads what it wrote: images compiled with
// them are not cached.
var writing = []string{"pch", "create-pch", "use-pch", "pch-dir", "time", "fdevice-time-trace"}

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

// check refuses options that contradict each other or cannot be passed on.
func (o *Options) check() error {
	if o.Format < MachineCode || o.Format > LTOIR {
		return fmt.Errorf("%w: there is no %v", safe.ErrInvalidArgument, o.Format)
	}
	if o.MaxRegisters < 0 {
		return fmt.Errorf("%w: MaxRegisters is %d", safe.ErrRange, o.MaxRegisters)
	}
	if o.LTO && o.Format == LTOIR {
		return fmt.Errorf("%w: LTO links, and LTO-IR is not linked yet: set only Format", safe.ErrInvalidArgument)
	}
	for _, flag := range o.Flags {
		if instead, ok := reserved[flagName(flag)]; ok {
			return fmt.Errorf("%w: the flag %s is not allowed: use %s", safe.ErrInvalidArgument, flag, instead)
		}
		if !strings.HasPrefix(flag, "-") {
			return fmt.Errorf("%w: the flag %q does not begin with a dash; write values as -name=value", safe.ErrInvalidArgument, flag)
		}
	}
	for name := range o.Defines {
		if name == "" || strings.ContainsAny(name, "= \t\n") {
			return fmt.Errorf("%w: %q is no name of a macro", safe.ErrInvalidArgument, name)
		}
	}
	for _, text := range slices.Concat(o.Flags, o.Kernels, o.IncludePaths, slices.Collect(maps.Keys(o.Defines)), slices.Collect(maps.Values(o.Defines)), []string{o.Standard, o.File}) {
		if strings.Contains(text, "\x00") {
			return fmt.Errorf("%w: %q has a zero byte", safe.ErrInvalidArgument, text)
		}
	}
	return nil
}

// cacheable tells whether the image follows from the source, the headers and the options.
func (o *Options) cacheable() bool {
	return !o.NoCache && !slices.ContainsFunc(o.Flags, func(flag string) bool { return slices.Contains(writing, flagName(flag)) })
}

// flags are NVRTC's options, but for the folders of CUDA's own headers.
func (o *Options) flags(a arch, relocatable bool) []string {
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
	for _, dir := range o.IncludePaths {
		flags = append(flags, "-I"+dir)
	}
	return append(flags, o.Flags...)
}
