package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A folder is one with sources, in which the command runs.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T, files map[string]string) folder {
	f := folder{t, t.TempDir()}
	for name, text := range files {
		f.write(name, text)
	}
	return f
}

func (f folder) write(name, text string) {
	file := filepath.Join(f.dir, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(f.t, os.WriteFile(file, []byte(text), 0o644))
}

func (f folder) read(name string) string {
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	require.NoError(f.t, err)
	return string(text)
}

// run runs the command with NVRTC 13.5 and returns what it says.
func (f folder) run(args ...string) (string, error) {
	c := exec.Command(tool(f.t), append([]string{"-nvrtc", nvrtcFolder(f.t, "13.5")}, args...)...)
	c.Dir = f.dir
	c.Env = append(os.Environ(), "GOPACKAGE=p")
	out, err := c.CombinedOutput()
	return string(out), err
}

// names lists the files of the folder.
func (f folder) names() (all []string) {
	entries, err := os.ReadDir(f.dir)
	require.NoError(f.t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

const add = `extern "C" __global__ void add(const float *a, float *sum, int n) { if (n) *sum = *a; }`

// TestRefuses tests what the command says where it cannot do its work. Then it writes nothing.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		args  string
		want  string
	}{
		{"no file", nil, "", "kernels: name the files to read: kernels vector.cu"},
		{"a file that is missing", nil, "x.cu", "kernels: open x.cu: no such file or directory"},
		{"no package", map[string]string{"x.cu": add}, "-package 5 x.cu", `kernels: -package: "5" is no name of a Go package: set it`},
		{"no folder", map[string]string{"x.cu": add}, "-o out x.cu", "kernels: -o: out is no folder"},
		{"no architecture", map[string]string{"x.cu": add}, "-image ptx x.cu", `kernels: -image: "ptx" is no architecture such as compute_75, for PTX, or sm_90, for machine code`},
		{"an architecture that NVRTC does not know", map[string]string{"x.cu": add}, "-image sm_60 x.cu", "NVRTC 13.5 compiles for sm_75 and newer, and not for sm_60: use NVRTC 12: get it with go run github.com/cudabind/cudabind/tools/libs@latest get -version 12 nvrtc, and name its folder by -nvrtc\n"},
		{"PTX for an architecture that NVRTC does not know", map[string]string{"x.cu": add}, "-image compute_60 x.cu", "and not for compute_60: use NVRTC 12"},
		{"an architecture that no NVRTC knows", map[string]string{"x.cu": add}, "-image compute_10 x.cu", `the architecture "compute_10" is older than sm_30, or there is none of that name`},
		{"a rename without a name", map[string]string{"x.cu": add}, "-rename add x.cu", "it must be NAME=VALUE"},
		{"a source that does not compile", map[string]string{"x.cu": "__global__ void f() {\n\tno;\n}"}, "x.cu", `kernels: x.cu: cuda: compile.Compile: x.cu:2:2: error: identifier "no" is undefined`},
		{"host code", map[string]string{"x.cu": add + "\nint main() { add<<<1, 1>>>(0, 0, 0); }"}, "x.cu", "\nNVRTC compiles device code only: mark what kernels use __device__; move main, host functions"},
		{"host code as device code", map[string]string{"x.cu": add + "\nint main() { add<<<1, 1>>>(0, 0, 0); }"}, "-flag -default-device x.cu", "\nNVRTC compiles device code only:"},
		{"a header of host code", map[string]string{"x.cu": "#include <nowhere.h>\n" + add}, "x.cu", "name other folders by -I\n"},
		{"a number that Go lacks", map[string]string{"x.cu": "__global__ void f(long double *p) { *p = 1; }"}, "x.cu", "kernels: x.cu:1: kernel f, parameter p: Go has no number for long double, of 16 bytes"},
		{"a source without kernels", map[string]string{"x.cu": "__device__ int f() { return 1; }"}, "x.cu", "kernels: x.cu: it has neither kernels nor variables; name instances of templates by -kernels"},
		{"a struct with virtual functions", map[string]string{"x.cu": "struct V { int a; __device__ virtual int f() { return a; } };\n__global__ void f(V v) {}"}, "x.cu",
			"kernels: x.cu:2: kernel f, parameter v: V has virtual functions or bases, whose tables exist on the device alone: take a pointer to it; or leave the kernel out by -skip 'f'"},
		{"two kernels of one name", map[string]string{"x.cu": "__global__ void a_b() {}\n__global__ void aB() {}"}, "x.cu",
			"kernels: x.cu:2: kernel aB: another member is called AB in Go: rename one by -rename 'aB=NAME'"},
		{"a kernel called as a method of its double", map[string]string{"x.cu": "__global__ void register_() {}"}, "x.cu",
			"kernels: x.cu:1: kernel register_: another member is called Register in Go: rename one by -rename 'register_=NAME'"},
		{"two types of one name", map[string]string{"x.cu": "namespace a { struct S { int i; }; }\nnamespace b { struct S { double d; }; }\n__global__ void f(a::S s, b::S t) {}"}, "x.cu",
			"kernels: x.cu:3: kernel f, parameter t: type S of x.cu:2 would be called S in Go, as type S is: rename it by -rename 'S@2=NAME'; or leave the kernel out by -skip 'f'"},
		{"overloaded kernels in an unnamed namespace", map[string]string{"x.cu": "namespace { __global__ void over(int *p) { *p = 1; }\n__global__ void over(float *p) { *p = 1; } }"}, "x.cu",
			"kernels: x.cu:1: kernel over: it is overloaded in an unnamed namespace, or by a type of one, and its symbol is another one in each compilation: give it a name of its own, or make it static"},
		{"a managed variable in an unnamed namespace", map[string]string{"x.cu": "namespace { __managed__ int m; }\n__global__ void f() { m = 1; }"}, "x.cu",
			"kernels: x.cu:1: variable m: it is managed and in an unnamed namespace, and its symbol is another one in each compilation: move it out"},
		{"a name that is none", map[string]string{"x.cu": add}, "-rename add=add x.cu", `kernels: x.cu:1: kernel add: "add" is no exported name of Go: choose one by -rename 'add=NAME'`},
		{"nothing to skip", map[string]string{"x.cu": add}, "-skip sub x.cu", "kernels: -skip sub: nothing has that name"},
		{"nothing to rename", map[string]string{"x.cu": add}, "-rename sub=Sub x.cu", "kernels: -rename sub: nothing has that name"},
		{"an instance of nothing", map[string]string{"x.cu": add}, "-kernels sub<int> x.cu", "kernels: -kernels: no source has the template of sub<int>"},
		{"a header outside", map[string]string{"x.cu": "#include \"../h.h\"\n" + add, "../h.h": ""}, "x.cu", "does not lie in ., so Go cannot embed it: move it, write the Go files there by -o, or compile here by -image"},
		{"a name that Go leaves out", map[string]string{"_x.cu": add}, "_x.cu", "kernels: _x.cu: Go does not compile a file called _x_cu.go: rename the source"},
		{"a name that Go does not embed", map[string]string{"con.cu": add}, "con.cu", "kernels: con.cu: con.cu has a name that Go cannot embed: rename it: malformed file path"},
		{"a file of the user's", map[string]string{"x.cu": add, "x_cu.go": "package p\n"}, "x.cu", "kernels: x_cu.go exists, and this command has not written it: move it away"},
		{"machine code of the user's", map[string]string{"x.cu": add, "x_sm_90.cubin": "mine", "other_cu.go": "package p // x_sm_90.cubin"}, "-image sm_90 x.cu", "kernels: x_sm_90.cubin exists, and this command has not written it: move it away"},
		{"a folder in the way", map[string]string{"x.cu": add, "x_cu.go/a": ""}, "x.cu", "x_cu.go: is a directory"},
		{"a name given twice", map[string]string{"x.cu": add}, "-rename add=A -rename add=B x.cu", "add is there twice"},
		{"one of two sources", map[string]string{"x.cu": add, "y.cu": "struct V { __device__ virtual void f() {} };\n__global__ void f(V v) {}"}, "x.cu y.cu", "kernels: y.cu:2: kernel f, parameter v"},
		{"two sources of one name", map[string]string{"x.cu": add, "d/x.cu": add}, "-o . x.cu d/x.cu", "kernels: d/x.cu: the type of x.cu would be called X in Go, as the type of x.cu is: rename it by -rename 'x.cu=NAME'\n"},
		{"check without files", map[string]string{"x.cu": add}, "-check x.cu", "kernels: x_cu.go: not as generated from the source: run go generate, or give -check the flags of the go:generate line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := folder{t, filepath.Join(t.TempDir(), "p")}
			require.NoError(t, os.Mkdir(f.dir, 0o755))
			for name, text := range c.files {
				f.write(name, text)
			}
			before := f.names()
			out, err := f.run(strings.Fields(c.args)...)
			assert.Error(t, err)
			assert.Contains(t, out, c.want)
			assert.Equal(t, before, f.names())
		})
	}
}

// TestPackage tests which package the command takes when a user runs it by hand.
func TestPackage(t *testing.T) {
	for _, c := range []struct {
		name, folder string
		files        map[string]string
		args         []string
		file, want   string
	}{
		{"of the Go files", "folder", map[string]string{"a.go": "package a", "a_test.go": "package a_test", "tool.go": "//go:build ignore\n\npackage main"}, nil, "x_cu.go", "package a\n"},
		{"of the tests", "folder", map[string]string{"a_test.go": "package a"}, nil, "x_cu.go", "package a\n"},
		{"of the folder", "folder", nil, nil, "x_cu.go", "package folder\n"},
		{"of the output's folder", "a-folder", map[string]string{"a.go": "package a", "out/b.go": "package b"}, []string{"-o", "out", "-image", "sm_90"}, "out/x_cu.go", "package b\n"},
		{"none", "a-folder", nil, nil, "", `kernels: -package: "a-folder" is no name of a Go package: set it` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := folder{t, filepath.Join(t.TempDir(), c.folder)}
			f.write("x.cu", add)
			for name, text := range c.files {
				f.write(name, text)
			}
			command := exec.Command(tool(t), append(append([]string{"-nvrtc", nvrtcFolder(t, "13.5")}, c.args...), "x.cu")...)
			command.Dir = f.dir
			command.Env = append(os.Environ(), "GOPACKAGE=")
			out, err := command.CombinedOutput()
			if c.file == "" {
				assert.Error(t, err)
				assert.Equal(t, c.want, string(out))
				return
			}
			require.NoError(t, err, "%s", out)
			assert.Contains(t, f.read(c.file), c.want)
		})
	}
}

// TestFileOfNvcc binds a file that nvcc compiles, too.
func TestFileOfNvcc(t *testing.T) {
	for _, version := range []string{"12.0", "13.5"} {
		f := newFolder(t, map[string]string{"x.cu": `#include <cuda_runtime.h>
#include "device_launch_parameters.h"
#include <stdio.h>
#ifndef __CUDACC_RTC__
#include <vector>
#endif
__global__ void f(float4 *v, cudaTextureObject_t t, cudaError_t *e) { v[threadIdx.x] = tex2D<float4>(t, 1, 2); *e = cudaSuccess; }
#ifndef __CUDACC_RTC__
int main() { f<<<1, 1>>>(0, 0, 0); return cudaDeviceSynchronize(); }
#endif
`})
		command := exec.Command(tool(t), "-nvrtc", nvrtcFolder(t, version), "-package", "p", "x.cu")
		command.Dir = f.dir
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, f.read("x_cu.go"), "v safe.Pointer[vector.Float4], t *safe.Texture,")
	}
}

// TestDouble tests what the command says of the double of NVRTC for tests, which a program finds by LD_LIBRARY_PATH.
func TestDouble(t *testing.T) {
	f, dir := newFolder(t, map[string]string{"x.cu": add}), t.TempDir()
	file, err := sim.BuildNVRTC(dir, sim.Newest)
	require.NoError(t, err)
	c := exec.Command(tool(t), "-package", "p", "x.cu")
	c.Dir = f.dir
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	out, err := c.CombinedOutput()
	assert.Error(t, err)
	assert.Equal(t, "kernels: x.cu: there is no debug information: "+file+" is no NVRTC of NVIDIA, but perhaps the double that simdriver builds: unset LD_LIBRARY_PATH, or name NVIDIA's library by -nvrtc\n", string(out))
	assert.Equal(t, []string{"x.cu"}, f.names())
}

// TestWritesWhatChanged tests that an unchanged source writes nothing, and that -check tells what is stale.
func TestWritesWhatChanged(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "#include \"x.h\"\n" + add, "x.h": ""})
	for range 2 {
		out, err := f.run("-doubles", "x.cu")
		require.NoError(t, err, out)
		assert.Empty(t, out)
		old := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(f.dir, "x_cu.go"), old, old))
	}
	_, err := f.run("-doubles", "x.cu")
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(f.dir, "x_cu.go"))
	require.NoError(t, err)
	assert.Less(t, time.Since(info.ModTime()), 90*time.Minute)
	assert.Greater(t, time.Since(info.ModTime()), 30*time.Minute, "it is written again")
	assert.Equal(t, []string{"x.cu", "x.h", "x_cu.go", "x_cu_test.go"}, f.names())

	out, err := f.run("-doubles", "-check", "x.cu")
	require.NoError(t, err, out)
	f.write("x.cu", strings.Replace("#include \"x.h\"\n"+add, "float *sum", "double *sum", 1))
	out, err = f.run("-doubles", "-check", "x.cu")
	assert.Error(t, err)
	assert.Equal(t, "kernels: x_cu.go, x_cu_test.go: not as generated from the source: run go generate, or give -check the flags of the go:generate line\n", out)
}

// TestCommandLine tests what flags do to the Go file.
func TestCommandLine(t *testing.T) {
	nvrtcFolder(t, "13.5") // or skip
	const source = "template<class T> __global__ void fill(T *v) { *v = N; }\n__global__ void f(long a, char *p) {}\n__device__ int counter;"
	f := newFolder(t, map[string]string{"x.cu": source, "inc/n.h": "", "out/a": "", "out/in/y.cu": add, "z [1].cu": add})
	args := func(more ...string) []string {
		return append(append([]string{"-D", "N=2", "-D", "M", "-std", "c++20", "-flag", "-device-int128", "-I", "inc"}, more...), "-kernels", "fill<float>", "x.cu")
	}
	for _, c := range []struct {
		name string
		args []string
		file string
		has  []string
		not  []string
	}{
		{"source", args(), "x_cu.go", []string{"//go:build !windows\n", "//go:embed x.cu\n", `cmp.Or(o.Standard, "c++20")`, `"N": "2",`, `"M": ""`, `"-device-int128",`,
			`"fill<float>", safe.KernelOptions{Parameters: []int{8}}`, `safe.Global[int32](k.Module, "&counter")`}, nil},
		{"names", args("-rename", "fill<float>=Fill", "-rename", "x.cu=Kernels", "-skip", "f", "-skip", "counter"), "x_cu.go",
			[]string{"type Kernels struct", "k KernelsFill) Launch(", "func LoadKernels("}, []string{"counter", "windows"}},
		{"images", args("-image", "compute_75,sm_90"), "x_cu.go", []string{"//go:embed x_compute_75.ptx\n", "//go:embed x_sm_90.cubin\n", "func LoadX(x *safe.Context) (*X, error) {",
			`Format: compile.PTX, Arch: "compute_75", Names: map[string]string{`, `"fill<float>": "_Z4fillIfEvPT_",`}, []string{"windows", "embed.FS"}},
		{"in a folder above", append([]string{"-o", "out"}, "out/in/y.cu"), "out/y_cu.go", []string{"//go:embed in/y.cu\n", `compile.LoadFS(ctx, x, yFiles, "in/y.cu", o)`}, nil},
		{"a space and brackets", []string{"z [1].cu"}, "z [1]_cu.go", []string{`//go:embed "z \\[1\\].cu"` + "\n", `"z [1].cu"`}, nil},
		{"elsewhere", append([]string{"-o", "out"}, args("-image", "sm_90")...), "out/x_cu.go", []string{"//go:embed x_sm_90.cubin\n"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := f.run(c.args...)
			require.NoError(t, err, out)
			text := f.read(c.file)
			for _, s := range c.has {
				assert.Contains(t, text, s)
			}
			for _, s := range c.not {
				assert.NotContains(t, text, s)
			}
		})
	}
	assert.FileExists(t, filepath.Join(f.dir, "out/x_sm_90.cubin"))
}

// TestBuilds tests that what is hard for Go builds, with its doubles.
func TestBuilds(t *testing.T) {
	for _, c := range []struct {
		name, source string
		has          []string
		not          string
	}{
		{"a comment that gofmt takes for a constraint", "// Doc.\n// +build ignore\n//go:build ignore\n" + add, []string{"// \\+build ignore\n// go:build ignore\n"}, "\n// +build"},
		{"a comment that is not UTF-8", "// Gr\xf6\xdfe\n" + add, []string{"// Gr\ufffd"}, "\xf6"},
		{"parameters called as what is passed", "struct S { int *p; };\n__global__ void f(int aDevice, S a, S k) { *a.p = *k.p; }", []string{"aDevice_ int32, a, k_ SArg"}, ""},
		{"a union and bits beside a pointer", "struct S { int *p; union { int i; float f; }; unsigned bit : 1; };\n__global__ void f(S s) { *s.p = s.i; }",
			[]string{"func (v *SArg) SetF(x float32)", "func (v *SArg) SetBit(x uint32)", "a bit-field of 1 bit."}, ""},
		{"a pointer to a function", "struct S { int (*f)(int); int *p; };\n__global__ void f(S s) { *s.p = 1; }", []string{"F uint64"}, "Address[byte]"},
		{"an enum without a name", "struct S { enum { A, B } e; };\n__global__ void f(S s) {}", []string{"is an enum without a name"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(".", "_builds") // in this module
			require.NoError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			f := folder{t, dir}
			f.write("x.cu", c.source)
			out, err := f.run("-doubles", "x.cu")
			require.NoError(t, err, out)
			text := f.read("x_cu.go")
			for _, s := range c.has {
				assert.Contains(t, text, s)
			}
			if c.not != "" {
				assert.NotContains(t, text, c.not)
			}
			vet, err := exec.Command("go", "vet", "./"+dir).CombinedOutput()
			assert.NoError(t, err, "%s", vet)
		})
	}
}
