//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// The cache returns what a compiler would make now, whatever an image depends on.

package compile

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// staleCase is a source whose image depends on something that changes.
type staleCase struct {
	lines  string                     // before the kernel
	set    func(f tree, o *Options)   // makes it what it is at first
	change []func(f tree, o *Options) // each changes the image, or not
	cached bool                       // what does not change is compiled once
}

func flagIs(text string) func(tree, *Options) {
	return func(f tree, _ *Options) { f.write("inc/flag.h", "#define V  "+text+"\n") }
}

var (
	appears = []func(tree, *Options){flagIs("5"), flagIs("6"), func(f tree, _ *Options) { f.remove("inc/flag.h") }}
	changes = appears[1:]
)

func standardIs(std string) func(tree, *Options) {
	return func(f tree, o *Options) { flagIs("5")(f, o); o.Standard = std }
}

// staleCases are in the words of the preprocessor.
var staleCases = map[string]staleCase{
	"quoted":                {`#include "flag.h"`, flagIs("5"), changes, true},
	"angled":                {"#include <flag.h>", flagIs("5"), changes, true},
	"next":                  {"#include_next <flag.h>", flagIs("5"), changes, true},
	"digraph":               {`%:include "flag.h"`, flagIs("5"), changes, true},
	"operator":              {"#if __has_include(<flag.h>)\n#define V 1\n#endif", nil, appears, true},
	"operator, defined":     {"#if defined __has_include && __has_include(\"flag.h\")\n#define V 1\n#endif", nil, appears, true},
	"operator, splice":      {"#if __has_include \\\n (\"flag.h\")\n#define V 1\n#endif", nil, appears, true},
	"comments":              {"/*\\\n*/#include/*\n*//**/\"flag.h\"", flagIs("5"), changes, true},
	"splice of Windows":     {"#inc\\\r\nlude \"flag.h\"\r", flagIs("5"), changes, true},
	"left out":              {"#if 0\n#include \"flag.h\"\n#endif", flagIs("5"), changes, true},
	"comment":               {"// #include \"flag.h\"", flagIs("5"), changes, true},
	"raw string":            {"#if 0\nR\"(\"\n#include \"flag.h\"\n)\"\n#endif", flagIs("5"), changes, true},
	"path":                  {`#include "./sub/..//flag.h"`, func(f tree, o *Options) { f.write("inc/sub/x", ""); flagIs("5")(f, o) }, changes, true},
	"redefined directive":   {"#define include import\n#include \"flag.h\"", flagIs("5"), changes, true},
	"hash by a comment":     {"/* */ # /* */ include \"flag.h\"", flagIs("5"), changes, false},
	"alias":                 {"#define HI __has_include\n#if HI(<flag.h>)\n#define V 1\n#endif", nil, appears, false},
	"pasted":                {"#define HI(a,b) a##b\n#if HI(__has_,include)(\"flag.h\")\n#define V 1\n#endif", nil, appears, false},
	"pasted by a digraph":   {"#define HI(a,b) a%:%:b\n#if HI(__ha,s_include)(\"flag.h\")\n#define V 1\n#endif", nil, appears, false},
	"pasted by __VA_ARGS__": {"#define HI(a,...) a##__VA_ARGS__\n#if HI(_,_has_include)(\"flag.h\")\n#define V 1\n#endif", nil, appears, false},
	"macro":                 {"#define F \"flag.h\"\n#include F", flagIs("5"), changes, false},
	"macro, pasted":         {"#define S(x) #x\n#include S(flag.h)", flagIs("5"), changes, false},
	"operator on a macro":   {"#define F \"flag.h\"\n#if __has_include(F)\n#define V 1\n#endif", nil, appears, false},
	"carriage return":       {"#\rinclude \"flag.h\"", flagIs("5"), changes, false},
	"carriage return 2":     {"#include\r\"flag.h\"", flagIs("5"), changes, false},
	"trigraph of a line":    {"#inc??/\nlude \"flag.h\"", standardIs("c++11"), changes, false},
	"trigraph of a hash":    {"??=include \"flag.h\"", standardIs("c++03"), changes, false},
	"define":                {"#if HI(<flag.h>)\n#define V 1\n#endif", func(_ tree, o *Options) { o.Defines = map[string]string{"HI": "__has_include"} }, appears, false},
	"define of a name":      {"#include F", func(f tree, o *Options) { flagIs("5")(f, o); o.Defines = map[string]string{"F": "<flag.h>"} }, changes, false},
	"include in a header": {`#include "flag.h"`, func(f tree, o *Options) {
		f.write("inc/flag.h", "#include \"sub/b.h\"\n")
		f.write("inc/sub/b.h", "#define V 3\n")
	},
		[]func(tree, *Options){func(f tree, _ *Options) { f.write("inc/sub/b.h", "#define V 4\n") }}, true},
	"alias in a header": {"#include \"flag.h\"\n#if HI(<b.h>)\n#define V 1\n#endif", func(f tree, o *Options) { f.write("inc/flag.h", "#define HI __has_include\n") },
		[]func(tree, *Options){func(f tree, _ *Options) { f.write("inc/b.h", "") }}, false},
	"source's name": {"#line 1 \"other/x.cu\"\n#include \"flag.h\"", flagIs("5"), append(changes[:1:1], func(f tree, _ *Options) { f.write("other/flag.h", "#define V 9") }), true},
}

// moreStaleCases are in the file system, the environment and the options.
var moreStaleCases = map[string]staleCase{
	"earlier folder": {"#include <flag.h>", func(f tree, o *Options) {
		o.IncludePaths = append([]string{filepath.Join(f.dir, "early")}, o.IncludePaths...)
		flagIs("5")(f, o)
	}, []func(tree, *Options){
		func(f tree, _ *Options) { f.write("early/other.h", "") },
		func(f tree, _ *Options) { f.write("early/flag.h", "#define V 7\n") },
		func(f tree, _ *Options) { f.remove("early") },
	}, true},
	"beside the source": {`#include "flag.h"`, flagIs("5"), []func(tree, *Options){func(f tree, _ *Options) { f.write("flag.h", "#define V 7\n") }}, true},
	"a header without a dot": {"#include <flag>", func(f tree, o *Options) {
		o.IncludePaths = append([]string{filepath.Join(f.dir, "early")}, o.IncludePaths...)
		f.write("inc/flag", "#define V 3\n")
	}, []func(tree, *Options){func(f tree, _ *Options) { f.write("early/flag.stdh", "#define V 7\n") }}, true},
	"a folder of the name": {"#include <flag>", func(f tree, o *Options) {
		o.IncludePaths = append([]string{filepath.Join(f.dir, "early")}, o.IncludePaths...)
		f.write("early/flag/x", "")
		f.write("inc/flag", "#define V 3\n")
	}, []func(tree, *Options){func(f tree, _ *Options) { f.remove("early/flag"); f.write("early/flag", "#define V 7\n") }}, true},
	"link": {"#include <flag.h>", func(f tree, _ *Options) {
		f.write("inc/a.h", "#define V 3\n")
		f.write("inc/b.h", "#define V 4\n")
		f.link("a.h", "inc/flag.h")
	}, []func(tree, *Options){func(f tree, _ *Options) { f.link("b.h", "inc/flag.h") }}, true},
	"link to a folder": {"#include <now/../flag.h>", func(f tree, _ *Options) {
		f.write("inc/flag.h", "#define V 9\n")
		f.write("inc/1/flag.h", "#define V 3\n")
		f.write("inc/1/x/y", "")
		f.write("inc/2/flag.h", "#define V 4\n")
		f.write("inc/2/x/y", "")
		f.link("1/x", "inc/now")
	}, []func(tree, *Options){func(f tree, _ *Options) { f.link("2/x", "inc/now") }, func(f tree, _ *Options) { f.write("inc/2/flag.h", "#define V 5\n") }}, true},
	"link to a folder, and all that it may be": {"#if 0\n#include <1/flag.h>\n#include <2/flag.h>\n#endif\n#include <now/flag.h>", func(f tree, _ *Options) {
		f.write("inc/1/flag.h", "#define V 3\n")
		f.write("inc/2/flag.h", "#define V 4\n")
		f.link("1", "inc/now")
	}, []func(tree, *Options){func(f tree, _ *Options) { f.link("2", "inc/now") }, func(f tree, _ *Options) { f.link("3", "inc/now") }}, true},
	"same size and time": {"#include <flag.h>", flagIs("5"), []func(tree, *Options){func(f tree, o *Options) {
		info, err := os.Stat(filepath.Join(f.dir, "inc/flag.h"))
		require.NoError(f.t, err)
		flagIs("6")(f, o)
		require.NoError(f.t, os.Chtimes(filepath.Join(f.dir, "inc/flag.h"), info.ModTime(), info.ModTime()))
	}}, true},
	"pragma once": {"#include \"a.h\"\n#include \"b.h\"\n#define V COUNT(1)", func(f tree, _ *Options) {
		f.write("inc/a.h", "#pragma once\n#ifdef COUNT\n#undef COUNT\n#define COUNT(x) 2\n#else\n#define COUNT(x) 1\n#endif\n")
		f.link("a.h", "inc/b.h")
	}, []func(tree, *Options){func(f tree, _ *Options) { // the same text, but no longer the same file
		text, err := os.ReadFile(filepath.Join(f.dir, "inc/a.h"))
		require.NoError(f.t, err)
		f.remove("inc/b.h")
		f.write("inc/b.h", string(text))
	}}, true},
	"time":             {"#define V __TIME__[7]", nil, nil, false},
	"date":             {"#define V __DATE__[0]", nil, nil, false},
	"time, pasted":     {"#define C(a,b) a##b\n#define V C(__TI,ME__)[7]", nil, nil, false},
	"time in a header": {"#include <flag.h>", flagIs("__TIME__[7]"), nil, false},
	"time in a kernel": {"template<int N> __global__ void t(int *p) { *p = N; }", func(_ tree, o *Options) { o.Kernels = []string{"t<__TIME__[7]>"} }, nil, false},
	"environment":      {"", func(f tree, _ *Options) { f.t.Setenv("NVRTC_APPEND_FLAGS", "-DV=3") }, nil, false},
	"a flag":           {"", func(_ tree, o *Options) { o.Flags = []string{"-fmad=false", "--diag-suppress=177", "-Xptxas=-v", "-w"} }, nil, true},
	"a flag that names a file": {"", func(f tree, o *Options) {
		f.write("opts", "-O1\n")
		o.Flags = []string{"-Xptxas=--options-file=" + filepath.Join(f.dir, "opts")}
	}, []func(tree, *Options){func(f tree, _ *Options) { f.write("opts", "-O3\n") }}, false},
	"an unknown flag": {"", func(_ tree, o *Options) { o.Flags = []string{"-UX"} }, nil, false},
}

// TestStale compiles, changes what the image depends on, and compiles again.
func TestStale(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles some hundred times: make test-race")
	}
	for title, cases := range map[string]map[string]staleCase{"words": staleCases, "files and options": moreStaleCases} {
		t.Run(title, func(t *testing.T) {
			versions(t, func(t *testing.T, version string) {
				for name, test := range cases {
					t.Run(name, test.run)
				}
			})
		})
	}
}

func (c staleCase) run(t *testing.T) {
	f, o := tree{t, t.TempDir()}, own(t)
	o.Format, o.File, o.IncludePaths = PTX, filepath.Join(f.dir, "main.cu"), []string{filepath.Join(f.dir, "inc")}
	require.NoError(t, os.Mkdir(filepath.Join(f.dir, "inc"), 0o755))
	if c.set != nil {
		c.set(f, &o)
	}
	check := func(step int) bool {
		cached, cachedErr := Compile(context.Background(), c.lines+value, o)
		fresh := o
		fresh.NoCache = true
		now, nowErr := Compile(context.Background(), c.lines+value, fresh)
		assert.Equal(t, nowErr == nil, cachedErr == nil, "step %d: %v; %v", step, nowErr, cachedErr)
		if nowErr == nil && cachedErr == nil && c.change != nil {
			assert.True(t, string(now.Code) == string(cached.Code), "step %d: stale", step)
		}
		return nowErr == nil
	}
	require.True(t, check(0) || strings.Contains(c.lines, "flag.h"), "the first compilation must succeed")
	assert.Equal(t, c.cached, images(t, o) > 0, "cached")
	for step, change := range c.change {
		change(f, &o)
		check(1 + step)
	}
}

// TestStaleFolder: debug information has the whole paths of files.
func TestStaleFolder(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		o := own(t)
		for _, change := range []func(o *Options){func(*Options) {}, func(o *Options) { o.LineInfo = true }, func(o *Options) { o.Debug = true }} {
			for range 2 {
				t.Chdir(t.TempDir())
				o, fresh := o, Options{Arch: o.Arch, NoCache: true}
				change(&o)
				change(&fresh)
				cached, err := Compile(context.Background(), twice, o)
				require.NoError(t, err)
				now, err := Compile(context.Background(), twice, fresh)
				require.NoError(t, err)
				assert.True(t, string(now.Code) == string(cached.Code))
			}
		}
		assert.Equal(t, 1+2+2, images(t, o))
	})
}
