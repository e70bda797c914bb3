package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHandles: each of CUDA's names for a handle is one, also by a name of the program's.
func TestHandles(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": `
typedef unsigned long long CUtexObject, CUsurfObject, CUgraphConditionalHandle;
typedef CUtexObject Tex; typedef CUsurfObject Surf; typedef CUgraphConditionalHandle Cond;
typedef cudaTextureObject_t Tex2; typedef cudaSurfaceObject_t Surf2; typedef cudaGraphConditionalHandle Cond2;
__global__ void f(Tex a, Surf b, Cond c, CUtexObject d, CUsurfObject e, CUgraphConditionalHandle g) {}
__global__ void h(Tex2 a, Surf2 b, Cond2 c, cudaTextureObject_t d, cudaSurfaceObject_t e, cudaGraphConditionalHandle g) {}
`})
	out, err := f.run("x.cu")
	require.NoError(t, err, out)
	text := f.read("x_cu.go")
	const want = "a *safe.Texture, b *safe.Surface, c safe.Condition, d *safe.Texture, e *safe.Surface, g safe.Condition"
	assert.Equal(t, 2, strings.Count(text, "Launch(stream *safe.Stream, config safe.LaunchConfig, "+want+")"), text)
}

// TestLongInSymbol: a kernel whose symbol is another one on Windows is not built there.
func TestLongInSymbol(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		other  bool
	}{
		"one":                 {"__global__ void f(size_t n) {}", false},
		"overloaded":          {"__global__ void f(size_t n) {}\n__global__ void f(int n) {}", true},
		"pointers":            {"__global__ void f(size_t *n) {}\n__global__ void f(int *n) {}", true},
		"a struct's argument": {"template<class T> struct Box { T v; };\n__global__ void f(Box<size_t> *n) {}\n__global__ void f(int *n) {}", true},
		"long long":           {"__global__ void f(unsigned long long n) {}\n__global__ void f(long long n) {}", false},
		"a kernel's argument": {"template<class T> __global__ void f(int *n) { *n = sizeof(T); }\ntemplate __global__ void f<size_t>(int *);", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, map[string]string{"x.cu": test.source})
			out, err := f.run("x.cu")
			require.NoError(t, err, out)
			assert.Equal(t, test.other, strings.Contains(f.read("x_cu.go"), "//go:build !windows"))
		})
	}
}

// TestArchitectures: sources are read for the newest architecture of -image, or that of -arch, so they may need what
// only that one has.
func TestArchitectures(t *testing.T) {
	const hopper = `__global__ void f(int *v) { asm volatile("wgmma.fence.sync.aligned;"); *v = 1; }`
	const blackwell = "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000\n#error too old\n#endif\nstruct S { int a : 3; float b; };\n__global__ void f(int *v, S s) { *v = s.a; }"
	for name, test := range map[string]struct {
		source string
		flags  []string
		says   string
	}{
		"none":            {hopper, nil, "wgmma"},
		"an image":        {hopper, []string{"-image", "sm_90a"}, ""},
		"PTX":             {hopper, []string{"-image", "compute_90a"}, ""},
		"a flag":          {hopper, []string{"-arch", "sm_90a"}, ""},
		"a flag for PTX":  {hopper, []string{"-arch", "compute_90a"}, "-arch"},
		"no architecture": {hopper, []string{"-arch", "hopper"}, "-arch"},
		"a newer image":   {blackwell, []string{"-image", "sm_100,sm_120"}, ""},
		"a newer flag":    {blackwell, []string{"-arch", "sm_120"}, ""},
		"of a family":     {blackwell, []string{"-image", "sm_100f"}, ""},
		"an older image":  {"struct S { int a : 3; };\n__global__ void f(int *v, S s) {}", []string{"-image", "compute_75"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, map[string]string{"x.cu": test.source})
			out, err := f.run(append(test.flags, "x.cu")...)
			if test.says != "" {
				assert.Error(t, err)
				assert.Contains(t, out, test.says)
				return
			}
			require.NoError(t, err, out)
			assert.Contains(t, f.read("x_cu.go"), "v safe.Pointer[int32]")
		})
	}
}
