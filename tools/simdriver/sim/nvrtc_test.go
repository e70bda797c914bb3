//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"debug/elf"
	"os"
	"runtime"
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

// TestRealNVRTC runs TestNVRTC with NVIDIA's library, where make libraries has put it.
func TestRealNVRTC(t *testing.T) {
	for _, dir := range []string{"12.9", "13.5"} {
		real := "../../../.cache/libnvrtc/" + dir
		if _, err := os.Stat(real); err != nil {
			t.Skip(err)
		}
		self, err := os.Executable()
		require.NoError(t, err)
		again := command.Built(self, "-test.run=^TestNVRTC$", "-test.v")
		again.Env = append(os.Environ(), realNVRTC+"="+real, parents+"="+library)
		out, err := again.CombinedOutput()
		assert.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS: TestNVRTC")
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
