//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"debug/elf"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// realNVRTC names NVIDIA's library in the environment of a process that a test starts.
const realNVRTC = "SIMDRIVER_TEST_NVRTC"

var nvrtcOpened sync.Once

// openNVRTC opens the double, or the real library in a process that has it. It asks for no library
// before, as that would open one of the user's.
func openNVRTC(t *testing.T) {
	t.Helper()
	nvrtcOpened.Do(func() {
		file := os.Getenv(realNVRTC)
		if file == "" {
			var err error
			file, err = sim.BuildNVRTC(t.TempDir(), sim.Newest)
			require.NoError(t, err)
		}
		require.NoError(t, nvrtc.Open(file))
	})
}

type compiled struct {
	err        error
	log        string
	ptx, cubin []byte
	names      map[string]string
}

func compile(t *testing.T, source string, options, expressions []string) (c compiled) {
	t.Helper()
	var p nvrtc.NvrtcProgram
	text := []byte(source + "\x00")
	require.NoError(t, nvrtc.NvrtcCreateProgram(&p, &text[0], unsafe.StringData("k.cu\x00"), 0, nil, nil))
	defer nvrtc.NvrtcDestroyProgram(&p)
	for _, e := range expressions {
		require.NoError(t, nvrtc.NvrtcAddNameExpression(p, unsafe.StringData(e+"\x00")))
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	list := []*byte{nil}
	for i, o := range options {
		list = append(list, &[]byte(o + "\x00")[0])
		pin.Pin(list[i+1])
	}
	c.err = nvrtc.NvrtcCompileProgram(p, int32(len(options)), unsafe.SliceData(list[1:]))
	var size uint64
	require.NoError(t, nvrtc.NvrtcGetProgramLogSize(p, &size))
	log := make([]byte, size)
	require.NoError(t, nvrtc.NvrtcGetProgramLog(p, &log[0]))
	c.log = strings.TrimRight(string(log), "\x00")
	if c.err != nil {
		return c
	}
	require.NoError(t, nvrtc.NvrtcGetPTXSize(p, &size))
	c.ptx = make([]byte, size)
	require.NoError(t, nvrtc.NvrtcGetPTX(p, &c.ptx[0]))
	require.NoError(t, nvrtc.NvrtcGetCUBINSize(p, &size))
	if size > 0 {
		c.cubin = make([]byte, size)
		require.NoError(t, nvrtc.NvrtcGetCUBIN(p, &c.cubin[0]))
	}
	c.names = map[string]string{}
	for _, e := range expressions {
		var name *byte
		require.NoError(t, nvrtc.NvrtcGetLoweredName(p, unsafe.StringData(e+"\x00"), &name))
		c.names[e] = cText(name)
	}
	return c
}

func cText(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

const sources = `
namespace ns {
template <typename T, int N> __global__ void scale(T *v, T a) { v[0] = a * N; }
__global__ void __launch_bounds__(128) plain(float *v, unsigned char c, unsigned long long n) { v[0] = c + n; }
}
struct Point { double x, y; int id; };
extern "C" __global__ void add(float *sum, const float *a, const float *__restrict__ b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x; // a "comment" {
	if (i < n) sum[i] = a[i] + b[i]; /* } */
}
extern "C" {
__global__ void move(Point p, double *out) { *out = p.x; }
}
#ifndef __CUDACC_RTC__
int main() { add<<<1, 1>>>(0, 0, 0, 0); return cudaDeviceSynchronize(); }
#endif
`

// TestNVRTC: images name kernels as NVIDIA's NVRTC does, and have the sizes of parameters that are of C's
// types. TestRealNVRTC runs it with that library.
func TestNVRTC(t *testing.T) {
	openNVRTC(t)
	const template = "ns::scale<float, 4>"
	c := compile(t, sources, []string{"--gpu-architecture=sm_90"}, []string{template, "ns::plain"})
	require.NoError(t, c.err, c.log)
	assert.Equal(t, elf.ELFMAG, string(c.cubin[:4]))
	assert.True(t, strings.HasPrefix(c.names[template], "_ZN2ns5scaleIfLi4EEEv"), c.names[template])
	assert.True(t, strings.HasPrefix(c.names["ns::plain"], "_ZN2ns5plainE"), c.names["ns::plain"])

	type point struct {
		X, Y float64
		ID   int32
	}
	ran := ""
	require.NoError(t, control.Kernel("add", func(g sim.Grid, sum, a, b []float32, n int32) { ran += "add " }))
	require.NoError(t, control.Kernel("ns::scale<float,4>", func(g sim.Grid, v []float32, a float32) { ran += "scale " }))
	require.NoError(t, control.Kernel("ns::plain", func(g sim.Grid, v []float32, c uint8, n uint64) { ran += "plain " }))
	require.NoError(t, control.Kernel("move", func(g sim.Grid, p point, out []float64) { ran += "move " }))
	for _, image := range [][]byte{c.ptx, c.cubin} {
		ran = ""
		primary(t, 0)
		s, m := stream(t), driver.CUmodule(0)
		require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
		for name, args := range map[string][]unsafe.Pointer{
			"add":                {at(uint64(0)), at(uint64(0)), at(uint64(0)), at(int32(0))},
			c.names[template]:    {at(uint64(0)), at(float32(0))},
			c.names["ns::plain"]: {at(uint64(0)), at(uint8(0)), at(uint64(0))},
			"move":               {at(point{}), at(uint64(0))},
		} {
			var f driver.CUfunction
			require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData(name+"\x00")), name)
			require.NoError(t, run(f, s, args...), name)
			require.NoError(t, driver.CuStreamSynchronize(s))
		}
		require.NoError(t, driver.CuModuleUnload(m))
		for _, name := range []string{"add", "scale", "plain", "move"} {
			assert.Contains(t, ran, name)
		}
	}
	// The sizes of what the image tells are checked.
	require.NoError(t, control.Kernel("add", func(g sim.Grid, sum, a, b []float32, n int64) {}))
	primary(t, 0)
	var m driver.CUmodule
	var f driver.CUfunction
	require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&c.cubin[0])))
	require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData("add\x00")))
	assert.ErrorIs(t, run(f, stream(t), at(uint64(0)), at(uint64(0)), at(uint64(0)), at(int64(0))), driver.CUDA_ERROR_NOT_SUPPORTED)
	violated(t, "8, 8, 8, 4 against 8, 8, 8, 8")
	require.NoError(t, driver.CuModuleUnload(m))
}

// TestNVRTCVectors: images have the sizes and places of parameters of CUDA's vector types. TestRealNVRTC runs it with
// NVIDIA's library.
func TestNVRTCVectors(t *testing.T) {
	openNVRTC(t)
	c := compile(t, `extern "C" __global__ void k(char c, float3 a, const double2 b, short3 s, longlong3 l, uchar4 u, ulonglong4 m, int1 i, uint4 *p) {
	p->x = a.x + b.x + s.x + l.x + u.x + m.x + i.x + c;
}`, []string{"--gpu-architecture=sm_90"}, nil)
	require.NoError(t, c.err, c.log)
	for _, image := range [][]byte{c.ptx, c.cubin} {
		primary(t, 0)
		var m driver.CUmodule
		var f driver.CUfunction
		require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
		require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData("k\x00")))
		var got [9][2]uint64
		for n := range got {
			require.NoError(t, driver.CuFuncGetParamInfo(f, uint64(n), &got[n][0], &got[n][1]))
		}
		assert.Equal(t, [9][2]uint64{{0, 1}, {4, 12}, {16, 16}, {32, 6}, {40, 24}, {64, 4}, {80, 32}, {112, 4}, {120, 8}}, got)
		require.NoError(t, driver.CuModuleUnload(m))
	}
}

const variables = `
#define RADIUS 2 // of the filter
#define WIDTH (2 * RADIUS + 1)
constexpr int ROWS = 1 << 1;
const unsigned COLUMNS = 3u;
__device__ float table[4] = {1.f, -2.5e0f, 3};
__constant__ float filter[WIDTH] = {.5f, 0x1p-2f};
__constant__ double half_of = 0.5;
__device__ int matrix[ROWS][COLUMNS] = {{1}, {2, ROWS * 3, -1}};
__device__ unsigned long long counter;
__device__ int one = 1, *none = nullptr, few[2];
__device__ short open[] = {1, 2, 'a'};
static __device__ bool flag = true;
__managed__ int shared = 7;
namespace ns { namespace { } __constant__ unsigned char byte = 200; __device__ float values[MANY]; }
namespace ns { namespace inner { __device__ volatile int deep = 1.9; } }
extern "C" { __device__ int c = 3; __device__ double twice(double x) { const int i = 5; return x * i; } }
__constant__ float3 forces[4];
__device__ float4 color = {1, 2};
__device__ int2 pairs[] = {{1, 2}, {3}}, *nowhere;
__constant__ ulonglong2 big;
__device__ uchar3 bytes3 = {1, 2, 3};
struct Point { float x, y; __device__ Point() : x(1), y(2) {} __device__ float sum() const { return x + y; } };
__device__ __forceinline__ int count(int n) { return n; }
__global__ void use(int *to) { *to = one + few[0] + shared + flag; }
`

// TestNVRTCVariables: images have the variables that the source declares, with their first values.
// TestRealNVRTC runs it with NVIDIA's library.
func TestNVRTCVariables(t *testing.T) {
	openNVRTC(t)
	expressions := map[string]string{
		"&table": "table", "table": "table", "&color": "color", "& ns::byte": "_ZN2ns4byteE", "&::ns::values": "_ZN2ns6valuesE", "&ns::inner::deep": "_ZN2ns5inner4deepE",
		"&c": "c", "&flag": "flag", "&counter": "counter",
	}
	got := compile(t, variables, []string{"--gpu-architecture=sm_90", "-DMANY=40"}, slices.Collect(maps.Keys(expressions)))
	require.NoError(t, got.err, got.log)
	assert.Equal(t, expressions, got.names)
	for kind, image := range map[string][]byte{"PTX": got.ptx, "a cubin": got.cubin} {
		t.Run(kind, func(t *testing.T) {
			primary(t, 0)
			var m driver.CUmodule
			require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
			for name, want := range map[string][]byte{
				"table":              raw[float32](1, -2.5, 3, 0),
				"filter":             raw[float32](.5, .25, 0, 0, 0),
				"half_of":            raw(.5),
				"matrix":             raw[int32](1, 0, 0, 2, 6, -1),
				"counter":            make([]byte, 8),
				"one":                raw[int32](1),
				"none":               make([]byte, 8),
				"few":                make([]byte, 8),
				"open":               raw[int16](1, 2, 'a'),
				"flag":               {1},
				"shared":             raw[int32](7),
				"_ZN2ns4byteE":       {200},
				"_ZN2ns6valuesE":     make([]byte, 160),
				"_ZN2ns5inner4deepE": raw[int32](1),
				"c":                  raw[int32](3),
				"forces":             make([]byte, 48),
				"color":              raw[float32](1, 2, 0, 0),
				"pairs":              raw[int32](1, 2, 3, 0),
				"nowhere":            make([]byte, 8),
				"big":                make([]byte, 16),
				"bytes3":             {1, 2, 3},
			} {
				p, size := variable(t, m, name)
				if assert.EqualValues(t, len(want), size, name) {
					assert.Equal(t, want, bytesAt(t, p, size), name)
				}
			}
			p, _ := variable(t, m, "shared")
			var managed uint32
			require.NoError(t, driver.CuPointerGetAttribute(unsafe.Pointer(&managed), driver.CU_POINTER_ATTRIBUTE_IS_MANAGED, p))
			assert.EqualValues(t, 1, managed)
			for _, name := range []string{"i", "x", "twice", "count", "byte"} {
				var size uint64
				err := driver.CuModuleGetGlobal(&p, &size, m, unsafe.StringData(name+"\x00"))
				assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_FOUND, name)
			}
			require.NoError(t, driver.CuModuleUnload(m))
		})
	}
}

// TestNVRTCAddresses: of a first value that is an address, the driver knows no more than that. The double has none.
func TestNVRTCAddresses(t *testing.T) {
	if os.Getenv(realNVRTC) == "" {
		t.Skip("TestRealNVRTC runs it")
	}
	openNVRTC(t)
	got := compile(t, "__device__ int one = 1; __device__ int *both[2] = {&one, 0}; __global__ void k() {}", []string{"-arch=sm_90"}, nil)
	require.NoError(t, got.err, got.log)
	for _, image := range [][]byte{got.ptx, got.cubin} {
		primary(t, 0)
		var m driver.CUmodule
		require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
		p, size := variable(t, m, "both")
		assert.Equal(t, raw[uint64](0xa5a5a5a5a5a5a5a5, 0), bytesAt(t, p, size))
		require.NoError(t, driver.CuModuleUnload(m))
	}
}

// TestNVRTCUnknownVariables: the double cannot tell the size or the first values of these, so that the driver
// refuses them, and says so. The kernels of the source still run.
func TestNVRTCUnknownVariables(t *testing.T) {
	openNVRTC(t)
	for name, source := range map[string]string{
		"a vector of one value":      "__device__ float3 v = make_float3(1, 2, 3);",
		"a struct":                   "struct P { int x; }; __device__ P v;",
		"a length of another header": "__device__ int v[LENGTH];",
		"a length with two values":   "#ifdef X\n#define N 1\n#else\n#define N 2\n#endif\n__device__ int v[N];",
		"two sizes":                  "#ifdef X\n__device__ int v;\n#else\n__device__ int v[2];\n#endif\n",
		"a macro without brackets":   "#define N 1 + 1\n__device__ int v[N * 2];",
		"a computed number":          "__device__ float v = 1.f / 3;",
		"an address":                 "__device__ int w; __device__ int *v = &w;",
		"a string":                   "__device__ char v[] = \"text\";",
		"a template":                 "__device__ cuda::atomic<int, cuda::thread_scope_device> v{1};",
	} {
		t.Run(name, func(t *testing.T) {
			got := compile(t, source+"\n__global__ void k() {}", []string{"-arch=sm_90"}, []string{"&v", "k"})
			require.NoError(t, got.err, got.log)
			for _, image := range [][]byte{got.ptx, got.cubin} {
				primary(t, 0)
				var m driver.CUmodule
				var p driver.CUdeviceptr
				var size uint64
				require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
				err := driver.CuModuleGetGlobal(&p, &size, m, unsafe.StringData(got.names["&v"]+"\x00"))
				assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_SUPPORTED)
				violated(t, "variable v: the image, perhaps of the double of NVRTC, does not tell its size and first values: embed PTX by go tool kernels -image compute_75, or use NVIDIA's NVRTC")
				require.NoError(t, driver.CuModuleUnload(m))
			}
		})
	}
}

// TestRealNVRTC runs those tests with NVIDIA's library, where make libraries has put it.
func TestRealNVRTC(t *testing.T) {
	for _, dir := range []string{"12.9", "13.5"} {
		real := "../../../.cache/libnvrtc/" + dir
		if _, err := os.Stat(real); err != nil {
			t.Skip(err)
		}
		self, err := os.Executable()
		require.NoError(t, err)
		again := command.Built(self, "-test.run=^TestNVRTC(Variables|Addresses|Vectors)?$", "-test.v")
		again.Env = append(os.Environ(), realNVRTC+"="+real, parents+"="+library)
		out, err := again.CombinedOutput()
		assert.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS: TestNVRTC ")
		assert.Contains(t, string(out), "--- PASS: TestNVRTCVariables ")
		assert.Contains(t, string(out), "--- PASS: TestNVRTCAddresses ")
		assert.Contains(t, string(out), "--- PASS: TestNVRTCVectors ")
	}
}

func TestNVRTCRefuses(t *testing.T) {
	openNVRTC(t)
	for _, c := range []struct {
		name, source string
		options      []string
		expression   string
		code         nvrtc.NvrtcResult
		says         string
	}{
		{"an open brace", "__global__ void k() {\n if (1) {\n}\n", nil, "", nvrtc.NVRTC_ERROR_COMPILATION, "k.cu(4): error: expected a \"}\"\n\n1 error detected in the compilation of \"k.cu\".\n"},
		{"a brace too many", "__global__ void k() {}\n}\n", nil, "", nvrtc.NVRTC_ERROR_COMPILATION, "k.cu(2): error: expected a declaration"},
		{"an open bracket", "__global__ void k() { f(1; }\n", nil, "", nvrtc.NVRTC_ERROR_COMPILATION, "k.cu(2): error: expected a \")\""},
		{"#error", "__global__ void k() {}\n\n#error not today\n", nil, "", nvrtc.NVRTC_ERROR_COMPILATION, "k.cu(3): error: #error directive: not today"},
		{"no kernel", "int f() { return 1; }", nil, "", nvrtc.NVRTC_ERROR_COMPILATION, "k.cu(1): error: there is no kernel here"},
		{"a strange expression", "__global__ void k() {}", nil, "f<int>", nvrtc.NVRTC_ERROR_COMPILATION, `the name expression "f<int>" is that of no kernel`},
		{"a template without arguments", "template <class T> __global__ void k(T) {}", nil, "k", nvrtc.NVRTC_ERROR_COMPILATION, "is that of no kernel"},
		{"a managed variable", "__managed__ int v; __global__ void k() {}", nil, "&v", nvrtc.NVRTC_ERROR_COMPILATION, `the name expression "&v" is that of no kernel, and not the address of a variable`},
		{"the value of a variable", "__device__ int v; __global__ void k() {}", nil, "v", nvrtc.NVRTC_ERROR_COMPILATION, "and not the address of a variable"},
		{"a static variable in a namespace", "namespace ns { static __device__ int v; }", nil, "&ns::v", nvrtc.NVRTC_ERROR_COMPILATION, "does not know its symbol"},
		{"a constant in a namespace", "namespace ns { __device__ const int v = 1; }", nil, "&ns::v", nvrtc.NVRTC_ERROR_COMPILATION, "does not know its symbol"},
		{"a variable in no namespace", "namespace { __device__ int v; }", nil, "&v", nvrtc.NVRTC_ERROR_COMPILATION, "does not know its symbol"},
		{"an array without values", "\n__device__ int v[0];", nil, "", nvrtc.NVRTC_ERROR_COMPILATION, "k.cu(2): error: the size of the array v must be greater than zero"},
		{"too many values", "__device__ int v[2][2] = {{1, 2, 3}};", nil, "", nvrtc.NVRTC_ERROR_COMPILATION, "v has too many first values"},
		{"too many constants", "__constant__ char v[70000];", []string{"-arch=sm_90"}, "", nvrtc.NVRTC_ERROR_COMPILATION, "70000 bytes of constants are too many, 65536 are possible"},
		{"an unknown architecture", "__global__ void k() {}", []string{"-arch=sm_37"}, "", nvrtc.NVRTC_ERROR_INVALID_OPTION, "invalid value for --gpu-architecture"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var expressions []string
			if c.expression != "" {
				expressions = []string{c.expression}
			}
			got := compile(t, c.source, c.options, expressions)
			assert.ErrorIs(t, got.err, c.code)
			assert.Contains(t, got.log, c.says)
		})
	}
}

// TestNVRTCParts: what else a program may ask.
func TestNVRTCParts(t *testing.T) {
	openNVRTC(t)
	_, version, err := nvrtc.Library()
	require.NoError(t, err)
	assert.Equal(t, sim.Newest, version)
	missing, err := nvrtc.Missing()
	require.NoError(t, err)
	for _, m := range missing {
		assert.Regexp(t, "TileIR|BundledHeaders", m.Symbol)
	}
	var n int32
	require.NoError(t, nvrtc.NvrtcGetNumSupportedArchs(&n))
	archs := make([]int32, n)
	require.NoError(t, nvrtc.NvrtcGetSupportedArchs(&archs[0]))
	assert.Contains(t, archs, int32(90))
	assert.NotContains(t, archs, int32(70))

	c := compile(t, "__device__ int f() { return 1; }", []string{"-rdc=true", "-arch=compute_90"}, nil)
	require.NoError(t, c.err)
	assert.Empty(t, c.cubin, "of a virtual architecture")
	assert.Contains(t, string(c.ptx), ".target sm_90\n")
	var p nvrtc.NvrtcProgram
	assert.ErrorIs(t, nvrtc.NvrtcCreateProgram(&p, nil, nil, 0, nil, nil), nvrtc.NVRTC_ERROR_INVALID_INPUT)
	assert.ErrorIs(t, nvrtc.NvrtcDestroyProgram(&p), nvrtc.NVRTC_ERROR_INVALID_PROGRAM)
}
