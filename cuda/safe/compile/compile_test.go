//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Compilations by NVIDIA's own NVRTC, which need no GPU.

package compile

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const twice = `extern "C" __global__ void twice(float *v, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) v[i] *= 2;
}
`

// value is a kernel that stores V, which the lines before it may define.
const value = "\n#ifndef V\n#define V 2\n#endif\nextern \"C\" __global__ void k(int *a) { *a = V; }\n"

// versions runs a test with each NVRTC, in a process of its own; in a short run, as make test is, with the newest.
func versions(t *testing.T, test func(t *testing.T, version string)) {
	all := []string{"12.9", "13.5"}
	if testing.Short() {
		all = all[1:]
	}
	for _, version := range all {
		t.Run(version, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				needsNVRTC(t, version)
				test(t, version)
			})
		})
	}
}

// own is the zero Options with a cache of its own.
func own(t *testing.T) Options {
	return Options{Arch: "sm_90", CacheFolder: filepath.Join(drivertest.TempDir(t), "cache")}
}

func images(t *testing.T, o Options) int {
	files, err := filepath.Glob(filepath.Join(o.CacheFolder, "*"+entrySuffix))
	require.NoError(t, err)
	return len(files)
}

func TestCompile(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		ctx, o := context.Background(), own(t)
		i, err := Compile(ctx, twice, o)
		require.NoError(t, err)
		assert.Equal(t, "\x7fELF", string(i.Code[:4]))
		assert.Contains(t, string(i.Code), "twice")
		assert.Equal(t, "sm_90", i.Arch)
		assert.Equal(t, 1, images(t, o))
		again, err := Compile(ctx, twice, o)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(i.Code, again.Code))
		assert.Equal(t, 1, images(t, o))

		o.Format = PTX
		i, err = Compile(ctx, twice, o)
		require.NoError(t, err)
		assert.Contains(t, string(i.Code), ".target sm_90")
		assert.Contains(t, string(i.Code), ".entry twice(")
		assert.NotContains(t, string(i.Code), "\x00")
		o.Format = LTOIR
		i, err = Compile(ctx, twice, o)
		require.NoError(t, err)
		assert.Equal(t, ltoMagic, string(i.Code[:4]))
		assert.Equal(t, 3, images(t, o))

		o.NoCache, o.Format = true, MachineCode
		_, err = Compile(ctx, twice+"// other", o)
		require.NoError(t, err)
		assert.Equal(t, 3, images(t, o))

		o.Arch = "sm_90a"
		_, err = Compile(ctx, twice, o)
		assert.NoError(t, err)
		o.Arch = "sm_200"
		_, err = Compile(ctx, twice, o)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "does not know sm_200")
		o.Arch = "sm_70"
		_, err = Compile(ctx, twice, o)
		if version == "12.9" {
			assert.NoError(t, err)
			return
		}
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "get -version 12 nvrtc")
	})
}

func TestCompileErrors(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		ctx, o := context.Background(), own(t)
		o.File = "kernels/a.cu"
		_, err := Compile(ctx, "__global__ void f(int *p) {\n\t*p = missing;\n  p = 1.0 +;\n}", o)
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "Compile", e.Op)
		assert.ErrorIs(t, err, nvrtc.NVRTC_ERROR_COMPILATION)
		assert.Equal(t, []*Diagnostic{
			{"kernels/a.cu", 2, 7, "error", "", `identifier "missing" is undefined`},
			{"kernels/a.cu", 3, 12, "error", "", "expected an expression"},
		}, e.Diagnostics)
		assert.ErrorContains(t, err, "kernels/a.cu:2:7: error: identifier")
		assert.Contains(t, e.Log, "2 errors detected")
		assert.Zero(t, images(t, o), "failures are not cached")

		for name, test := range map[string]struct {
			source string
			change func(o *Options)
			says   string
		}{
			"flag":           {twice, func(o *Options) { o.Flags = []string{"--nonsense"} }, "--nonsense"},
			"standard":       {twice, func(o *Options) { o.Standard = "c++1" }, "invalid value for --std"},
			"expression":     {twice, func(o *Options) { o.Kernels = []string{"no<int>"} }, `"no"`},
			"PTX":            {`__global__ void g(){ asm("bad.instr;"); }`, func(o *Options) {}, "Not a name of any known instruction: 'bad'"},
			"shared memory":  {`__global__ void g(int *p){ __shared__ int x[10000000]; x[threadIdx.x]=p[0]; p[1]=x[p[2]]; }`, func(o *Options) {}, "too much shared data"},
			"zero byte":      {"\x00", func(o *Options) {}, "zero byte"},
			"no header":      {"#include <nowhere.h>", func(o *Options) {}, `nowhere.h`},
			"link":           {`extern "C" __device__ float h(float); __global__ void g(float *p){ *p=h(*p); }`, func(o *Options) {}, "Unresolved extern function 'h'"},
			"fake directory": {twice, func(o *Options) { o.CacheFolder = "/dev/null/x" }, "/dev/null"},
		} {
			t.Run(name, func(t *testing.T) {
				o := own(t)
				test.change(&o)
				_, err := Compile(ctx, test.source, o)
				assert.ErrorContains(t, err, test.says)
			})
		}
		_, err = Compile(ctx, "#include <nowhere.h>", o)
		require.ErrorAs(t, err, &e)
		assert.Contains(t, e.Hint, "Options.IncludePaths")
	})
}

func TestCompileOptions(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		ctx, o := context.Background(), own(t)
		o.Defines = map[string]string{"FACTOR": "T(3)", "ON": ""}
		o.Standard, o.FastMath, o.LineInfo, o.MaxRegisters = "c++20", true, true, 32
		o.Kernels = []string{"scale<float>", "ns::scale<double, 2>", "&table"}
		source := `
#if ON != 1 || __cplusplus < 202002L
#error
#endif
__constant__ float table[4];
template<class T> __global__ void scale(T *v) { *v = *v * FACTOR + table[0]; int unused; }
namespace ns { template<class T, int N> __global__ void scale(T *v) { v[N] *= FACTOR; } }`
		for _, cached := range []bool{false, true} {
			i, err := Compile(ctx, source, o)
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"scale<float>": "_Z5scaleIfEvPT_", "ns::scale<double, 2>": "_ZN2ns5scaleIdLi2EEEvPT_", "&table": "table"}, i.Names)
			require.Len(t, i.Warnings, 1, "cached: %v", cached)
			assert.Equal(t, Diagnostic{"source.cu", 6, 82, "warning", "177-D", `variable "unused" was declared but never referenced`}, *i.Warnings[0])
		}
		assert.Equal(t, 1, images(t, o))

		o = own(t)
		for name, change := range map[string]func(o *Options){
			"nothing":   func(*Options) {},
			"file":      func(o *Options) { o.File = "b.cu" },
			"define":    func(o *Options) { o.Defines = map[string]string{"A": "1"} },
			"standard":  func(o *Options) { o.Standard = "c++14" },
			"fast":      func(o *Options) { o.FastMath = true },
			"debug":     func(o *Options) { o.Debug = true },
			"lines":     func(o *Options) { o.LineInfo = true },
			"registers": func(o *Options) { o.MaxRegisters = 16 },
			"flag":      func(o *Options) { o.Flags = []string{"-fmad=false"} },
			"format":    func(o *Options) { o.Format = PTX },
			"arch":      func(o *Options) { o.Arch = "sm_80" },
			"kernels":   func(o *Options) { o.Kernels = []string{"twice"} },
		} {
			n := images(t, o)
			changed := o
			change(&changed)
			_, err := Compile(ctx, twice, changed)
			require.NoError(t, err, name)
			assert.Equal(t, n+1, images(t, o), name)
		}
	})
}

// TestIncludes: headers on disk and in file systems are found, and a changed one is noticed.
func TestIncludes(t *testing.T) {
	needsNVRTC(t, "")
	ctx, o := context.Background(), own(t)
	dir := t.TempDir()
	write := func(file, content string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644))
	}
	files := fstest.MapFS{
		"kernels/main.cu":   {Data: []byte("#include \"near.h\"\n#include <lib/a.h>\n#include \"disk.h\"\n__global__ void k(int *p) { *p = NEAR + A + DISK; }")},
		"kernels/near.h":    {Data: []byte("#define NEAR 1")},
		"lib/a.h":           {Data: []byte("#pragma once\n#include \"b.h\"\n#define A B")},
		"lib/b.h":           {Data: []byte("#include \"../root.h\"\n#define B ROOT")},
		"root.h":            {Data: []byte("#define ROOT 3")},
		"never/included.cu": {Data: []byte("#error")},
	}
	write("disk.h", "#include \"deep/d.h\"\n#define DISK D\n")
	write("deep/d.h", "#include \"e.h\"\n#define D E\n")
	write("deep/e.h", "#define E 4\n")
	o.Headers, o.IncludePaths = []fs.FS{files}, []string{dir}
	src := text{"kernels/main.cu", string(files["kernels/main.cu"].Data), files}
	must := func(says string) []byte {
		t.Helper()
		i, err := image(ctx, "Test", arch{number: 90}, src, o)
		if says != "" {
			assert.ErrorContains(t, err, says)
			return nil
		}
		require.NoError(t, err)
		return i.Code
	}
	first := must("")
	require.Equal(t, 1, images(t, o))
	assert.True(t, bytes.Equal(first, must("")))
	require.Equal(t, 1, images(t, o))

	n := 1
	for _, change := range []func(){
		func() { write("deep/e.h", "#define E 5\n") },
		func() { files["root.h"].Data = []byte("#define ROOT 5") },
		func() { files["kernels/near.h"].Data = []byte("#define NEAR 6") },
		func() { write("disk.h", "#include \\\n \"deep/d.h\"\n#define DISK (D+1)\n") },
		func() { write("disk.h", "#\v\finclude/* of\n many lines */\"deep/d.h\"\n#define DISK (D+1)\n") },
		func() { write("deep/e.h", "#if __has_include/**/(\"f.h\")\n#define E 7\n#else\n#define E 6\n#endif\n") },
		func() { write("deep/f.h", "") },
		func() { files["disk.h"] = &fstest.MapFile{Data: []byte("#define DISK 8")} }, // before that of IncludePaths
	} {
		change()
		changed := must("")
		n++
		assert.False(t, bytes.Equal(first, changed))
		assert.Equal(t, n, images(t, o))
	}
	write("deep/e.h", "#define E 10\n")
	must("")
	assert.Equal(t, n, images(t, o), "no longer included")

	// What a macro includes is not known: nothing is stored.
	src.source = "#define NAME \"near.h\"\n#include NAME\n" + src.source
	files["near.h"] = files["kernels/near.h"]
	must("")
	assert.Equal(t, n, images(t, o))
	delete(files, "kernels/near.h")
	delete(files, "near.h")
	must(`"near.h"`)

	files["x/n.h"], files["n.h"] = &fstest.MapFile{Data: []byte("")}, &fstest.MapFile{Data: []byte("")}
	files["x/m.h"] = &fstest.MapFile{Data: []byte("#include \"n.h\"\n")}
	src = text{"main.cu", "#include \"x/m.h\"\n#include \"n.h\"\n", files}
	must("stands for n.h in one file and for x/n.h in another")
}

// TestHeadersOfSeveral: headers come from the first file system that has them, or from beside the header that includes
// them.
func TestHeadersOfSeveral(t *testing.T) {
	needsNVRTC(t, "")
	x := open(t)
	one := fstest.MapFS{"a.h": {Data: []byte("#include \"lib/b.h\"\n#define A (B + 1)\n")}, "only/one.h": {Data: []byte("#define ONE 1\n")}}
	two := fstest.MapFS{"a.h": {Data: []byte("#error second\n")}, "lib/b.h": {Data: []byte("#include \"c.h\"\n#define B C\n")}, "lib/c.h": {Data: []byte("#define C 4\n")}}
	const source = "#include <a.h>\n#include \"only/one.h\"\n#if A != 5 || ONE != 1\n#error wrong headers\n#endif\n" + twice
	o := own(t)
	for name, c := range map[string]struct {
		headers []fs.FS
		says    string
	}{
		"in order":        {[]fs.FS{one, two}, ""},
		"one of them nil": {[]fs.FS{nil, one, two}, ""},
		"twice the same":  {[]fs.FS{one, two, one}, ""},
		"in wrong order":  {[]fs.FS{two, one}, "second"},
		"one is missing":  {[]fs.FS{one}, `"lib/b.h"`},
		"two in the same place": {[]fs.FS{one, fstest.MapFS{"lib/b.h": {Data: []byte("#include \"only/one.h\"\n#define B 4\n")},
			"lib/only/one.h": {Data: []byte("\n")}}}, `"only/one.h" stands for`},
	} {
		t.Run(name, func(t *testing.T) {
			o.Headers = c.headers
			_, err := Compile(context.Background(), source, o)
			if c.says == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.says)
			}
		})
	}

	o.Headers = []fs.FS{two} // and then those beside the source
	one["main.cu"] = &fstest.MapFile{Data: []byte("#include <lib/b.h>\n#include <only/one.h>\n" + twice)}
	_, err := LoadFS(context.Background(), x, one, "main.cu", o)
	require.NoError(t, err)
	assert.Len(t, o.Headers, 1)
	one["main.cu"].Data = []byte("#include \"a.h\"\n#include \"z/z.h\"\n" + twice)
	two["z/z.h"] = &fstest.MapFile{Data: []byte("#include \"a.h\"\n")}
	_, err = LoadFS(context.Background(), x, one, "main.cu", o)
	assert.ErrorContains(t, err, `#include "a.h" stands for two files a.h of different file systems`)
}

// TestIncludesChanging: an image is not stored under the key of headers that it may not have.
func TestIncludesChanging(t *testing.T) {
	needsNVRTC(t, "")
	o := own(t)
	reads := 0
	o.Headers = []fs.FS{changing{func() string { reads++; return strings.Repeat("\n", reads) }}}
	_, err := Compile(context.Background(), "#include <a.h>\n"+twice, o)
	require.NoError(t, err)
	assert.Zero(t, images(t, o))
}

func TestLoadRefused(t *testing.T) {
	needsNVRTC(t, "")
	ctx, x := context.Background(), open(t)
	for name, test := range map[string]struct {
		x    *safe.Context
		o    Options
		want error
		says string
	}{
		"no context":   {nil, Options{}, safe.ErrClosed, "Load"},
		"LTO-IR":       {x, Options{Format: LTOIR}, safe.ErrInvalidArgument, "Link"},
		"architecture": {x, Options{Arch: "90"}, safe.ErrInvalidArgument, "sm_90"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(ctx, test.x, twice, test.o)
			assert.ErrorIs(t, err, test.want)
			assert.ErrorContains(t, err, test.says)
		})
	}
	_, err := LoadFile(ctx, x, "nowhere.cu", Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = LoadFS(ctx, x, fstest.MapFS{}, "nowhere.cu", Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Compile(ctx, twice, Options{})
	assert.ErrorContains(t, err, "Options.Arch")
	_, err = (&Image{Format: LTOIR, Code: []byte(ltoMagic)}).Load(x)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
}

// slow takes NVRTC seconds, mostly in its optimizer, which does not ask whether to stop.
var slow = "template<int N> struct S { static __device__ int f(int x) { return S<N-1>::f(x * N) + S<N-2>::f(x ^ N); } };\n" +
	"template<> struct S<0> { static __device__ int f(int x) { return x; } };\n" +
	"template<> struct S<1> { static __device__ int f(int x) { return -x; } };\n" +
	"__global__ void k(int *p) {\n" + strings.Repeat("*p = S<12>::f(*p + __LINE__);\n", 20) + "}\n"

func TestCancel(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		o := own(t)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := Compile(ctx, twice, o)
		assert.ErrorIs(t, err, context.Canceled)

		why := errors.New("no time left")
		ctx, cancel = context.WithTimeoutCause(context.Background(), 50*time.Millisecond, why)
		defer cancel()
		_, err = Compile(ctx, slow, o)
		assert.ErrorIs(t, err, why)
		_, err = Compile(ctx, twice, o)
		assert.ErrorIs(t, err, why)
		assert.Zero(t, images(t, o))
		_, err = Compile(context.Background(), twice, o)
		assert.NoError(t, err, "others go on")

		// The compiler itself stops.
		var stop atomic.Int32
		stop.Store(1)
		_, err = (&unit{file: "slow.cu", source: slow, flags: []string{"-arch=sm_90"}}).compile(&stop)
		assert.ErrorIs(t, err, nvrtc.NVRTC_ERROR_CANCELLED)
	})
}

func TestInParallel(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		o := own(t)
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				for _, format := range []Format{MachineCode, PTX, LTOIR} {
					o := o
					o.Format, o.Defines = format, map[string]string{"N": string(rune('0' + n%4))}
					o.Kernels = []string{"add<double, N>"}
					i, err := Compile(context.Background(), `template<class T, int M> __global__ void add(T *a) { *a += M; }`, o)
					if assert.NoError(t, err) {
						assert.Len(t, i.Names, 1)
					}
				}
			})
		}
		all.Wait()
		assert.Equal(t, 4*3, images(t, o))
	})
}

// TestSignals: after a compilation, the Go runtime's handlers of signals are whole. NVRTC before CUDA 13.1 breaks some.
func TestSignals(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		_, err := Compile(context.Background(), twice, own(t))
		require.NoError(t, err)
		_, err = Compile(context.Background(), "wrong", own(t))
		require.Error(t, err)
		assert.Empty(t, ffi.RestoreSignals())
	})
}

// TestNoNVRTC: where there is none, the error says what to do.
func TestNoNVRTC(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		if file, _, err := nvrtc.Library(); err == nil {
			t.Skip("the machine has " + file)
		}
		_, err := Compile(context.Background(), twice, own(t))
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		if runtime.GOOS == "windows" {
			assert.ErrorContains(t, err, "install the CUDA toolkit")
		} else {
			assert.ErrorContains(t, err, "tools/libs@latest get nvrtc")
		}
		assert.ErrorContains(t, err, "looked in")
	}, "LD_LIBRARY_PATH=", "CUDA_HOME=", "CUDA_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX=")
}

func BenchmarkCompile(b *testing.B) {
	needsNVRTC(b, "")
	o := Options{Arch: "sm_90", CacheFolder: filepath.Join(b.TempDir(), "cache")}
	for name, none := range map[string]bool{"cold": true, "cached": false} {
		b.Run(name, func(b *testing.B) {
			o.NoCache = none
			for b.Loop() {
				_, err := Compile(context.Background(), twice, o)
				require.NoError(b, err)
			}
		})
	}
}
