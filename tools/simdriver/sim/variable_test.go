//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loadText loads PTX text, which the test unloads.
func loadText(t *testing.T, ptx string) (m driver.CUmodule, err error) {
	t.Helper()
	image := append([]byte(".version 7.0\n.target sm_70\n.address_size 64\n"+ptx), 0)
	return m, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0]))
}

// module loads PTX text until the end of the test.
func module(t *testing.T, ptx string) driver.CUmodule {
	t.Helper()
	m, err := loadText(t, ptx)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, driver.CuModuleUnload(m)) })
	return m
}

// variable is the memory of a module's variable.
func variable(t *testing.T, m driver.CUmodule, name string) (p driver.CUdeviceptr, size uint64) {
	t.Helper()
	require.NoError(t, driver.CuModuleGetGlobal(&p, &size, m, unsafe.StringData(name+"\x00")), name)
	return p, size
}

func bytesAt(t *testing.T, p driver.CUdeviceptr, n uint64) []byte {
	t.Helper()
	v := make([]byte, n)
	require.NoError(t, driver.CuMemcpyDtoH(unsafe.Pointer(&v[0]), p, n))
	return v
}

// raw are the bytes of values.
func raw[T any](v ...T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// TestVariables: PTX tells sizes and first values.
func TestVariables(t *testing.T) {
	for _, c := range []struct {
		name, ptx string
		want      []byte
	}{
		{"zeros", ".visible .global .align 4 .b8 v[6];", make([]byte, 6)},
		{"one number", ".visible .global .align 4 .u32 v = 5;", raw[uint32](5)},
		{"not visible", ".global .align 4 .s32 v = -5;", raw[int32](-5)},
		{"one in braces", ".global .u16 v = {7};", raw[uint16](7)},
		{"bits of numbers", ".const .align 4 .f32 v[4] = {0f3F800000, 0fC0000000};", raw[float32](1, -2, 0, 0)},
		{"bits of a long number", ".const .align 8 .f64 v = 0d4004000000000000;", raw(2.5)},
		{"decimal numbers", ".const .f32 v[3] = {1.5, -2, 1e-3};", raw[float32](1.5, -2, 1e-3)},
		{"hexadecimal and unsigned numbers", ".global .u64 v[2] = {0xFFFFFFFFFF, 3U};", raw[uint64](0xFFFFFFFFFF, 3)},
		{"bytes", ".global .align 4 .b8 v[8] = {0, 0, 128, 63, /* two */ 0, 0};", append(raw[float32](1), 0, 0, 0, 0)},
		{"braces in braces", ".global .s16 v[3][2] = {{1}, {2, 3}};", raw[int16](1, 0, 2, 3, 0, 0)},
		{"rows without braces", ".global .s16 v[2][2] = {1, 2, 3};", raw[int16](1, 2, 3, 0)},
		{"vectors", ".global .v2 .f32 v[2] = {{0f3F800000}, {0f40000000, 0f40400000}};", raw[float32](1, 0, 2, 3)},
		{"an address", ".global .u32 other; .global .u64 v[3] = {1, generic(other), 2};", raw[uint64](1, 0xa5a5a5a5a5a5a5a5, 2)},
		{"a part of an address", ".global .u32 other; .global .u8 v[3] = {0xFF(other), other+1, 3};", raw[uint8](0xa5, 0xa5, 3)},
		{"managed", ".visible .global .attribute(.managed) .align 8 .u64 v = 9;", raw[uint64](9)},
		{"after a texture", ".visible .global .texref t; .global .u32 v = 1;", raw[uint32](1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			p, size := variable(t, module(t, c.ptx), "v")
			require.EqualValues(t, len(c.want), size)
			assert.Equal(t, c.want, bytesAt(t, p, size))
		})
	}
}

// TestPTXRefused: a compiler refuses these.
func TestPTXRefused(t *testing.T) {
	for name, ptx := range map[string]string{
		"too many values":             ".global .u32 v[2] = {1, 2, 3};",
		"too many in inner braces":    ".global .u32 v[2][2] = {{1, 2, 3}};",
		"braces for half a row":       ".global .u32 v[2][2] = {1, {2, 3}};",
		"no values":                   ".global .u32 v[0];",
		"more constants than 64 KiB":  ".const .u8 v[40000]; .const .u8 w[40000];",
		"parameters above 4352 bytes": ".visible .entry k(.param .align 4 .b8 a[4356]) { ret; }",
	} {
		t.Run(name, func(t *testing.T) {
			primary(t, 0)
			_, err := loadText(t, ptx)
			assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_PTX)
		})
	}
}

// TestVariablesAreMemory: work uses them as other memory, each module has its own, and they go with it.
func TestVariablesAreMemory(t *testing.T) {
	primary(t, 0)
	const text = ".visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};\n"
	first := module(t, text)
	second, err := loadText(t, text)
	require.NoError(t, err)
	s := stream(t)
	p, size := variable(t, first, "table")
	q, _ := variable(t, second, "table")
	assert.EqualValues(t, 16, size)
	require.NotEqual(t, p, q)
	require.NoError(t, driver.CuMemsetD32Async(q, 7, 2, s))
	require.NoError(t, driver.CuMemcpyDtoDAsync(q+8, p+4, 4, s))
	require.NoError(t, run(scaled(t), s, at(q+4), at(uint32(3)), at(uint32(2))))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{7, 21, 6, 4}, words(t, q, 4))
	assert.Equal(t, []uint32{1, 2, 3, 4}, words(t, p, 4))
	assert.Zero(t, control.Live("memory"), "it is the module's")

	assert.ErrorIs(t, driver.CuMemFree(q), driver.CUDA_ERROR_INVALID_VALUE)
	assert.ErrorIs(t, driver.CuMemFreeAsync(q, s), driver.CUDA_ERROR_INVALID_VALUE)
	assert.ErrorIs(t, driver.CuModuleGetGlobal(&p, &size, first, unsafe.StringData("tab\x00")), driver.CUDA_ERROR_NOT_FOUND)
	require.NoError(t, driver.CuModuleUnload(second))
	assert.Error(t, driver.CuMemsetD32(q, 7, 2))
	violated(t, "memory of 16 bytes that was freed")
}

// TestVariablesOfLibraries: those that are managed have a function of their own.
func TestVariablesOfLibraries(t *testing.T) {
	primary(t, 0)
	image := append([]byte(".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 plain = 3;\n.global .attribute(.managed) .u32 shared = 4;\n"), 0)
	var l driver.CUlibrary
	require.NoError(t, driver.CuLibraryLoadData(&l, unsafe.Pointer(&image[0]), nil, nil, 0, nil, nil, 0))
	var p driver.CUdeviceptr
	var size uint64
	get := func(f func(*driver.CUdeviceptr, *uint64, driver.CUlibrary, *byte) error, name string) error {
		return f(&p, &size, l, unsafe.StringData(name+"\x00"))
	}
	require.NoError(t, get(driver.CuLibraryGetGlobal, "plain"))
	assert.Equal(t, []uint32{3}, words(t, p, 1))
	assert.ErrorIs(t, get(driver.CuLibraryGetManaged, "plain"), driver.CUDA_ERROR_NOT_FOUND)
	assert.ErrorIs(t, get(driver.CuLibraryGetGlobal, "shared"), driver.CUDA_ERROR_NOT_FOUND)
	require.NoError(t, get(driver.CuLibraryGetManaged, "shared"))
	assert.Equal(t, []uint32{4}, words(t, p, 1))
	var managed uint32
	require.NoError(t, driver.CuPointerGetAttribute(unsafe.Pointer(&managed), driver.CU_POINTER_ATTRIBUTE_IS_MANAGED, p))
	assert.EqualValues(t, 1, managed)
	assert.Zero(t, control.Live("memory"), "it is the library's")
	require.NoError(t, driver.CuLibraryUnload(l))
}

// TestVariablesGoWithTheContext, and their memory is there again for others.
func TestVariablesGoWithTheContext(t *testing.T) {
	primary(t, 0)
	for range 3 { // each time half of the device's memory
		var c driver.CUcontext
		require.NoError(t, driver.CuCtxCreate(&c, nil, 0, 0))
		m, err := loadText(t, ".global .b8 v[600000000];")
		require.NoError(t, err)
		p, _ := variable(t, m, "v")
		require.NoError(t, driver.CuMemsetD8(p, 1, 10))
		_, err = loadText(t, ".global .b8 v[600000000];")
		assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
		require.NoError(t, driver.CuCtxDestroy(c))
	}
	assert.Equal(t, 3, control.Lost())
}

// TestKernelReachesMemory: a struct has addresses, and the module has variables.
func TestKernelReachesMemory(t *testing.T) {
	primary(t, 0)
	type matrix struct {
		Rows, Columns int32
		Data, None    uint64
	}
	lengths := make(chan int, 4)
	require.NoError(t, control.Kernel("sums", func(_ sim.Grid, m matrix) {
		data, table, count := sim.Slice[float32](m.Data), sim.Variable[float32]("ns::table"), sim.Variable[uint32]("count")
		lengths <- len(data)
		lengths <- len(table)
		for i := range m.Rows {
			for j := range m.Columns {
				table[i] += data[i*m.Columns+j]
			}
		}
		count[0]++
		assert.Nil(t, sim.Slice[byte](m.None))
		assert.Same(t, &table[0], &sim.Variable[float32]("_ZN2ns5tableE")[0])
		assert.Len(t, sim.Variable[float64]("count"), 0, "only whole values")
	}))
	const text = ".global .f32 _ZN2ns5tableE[2] = {0f3F800000};\n.global .u32 count;\n.visible .entry sums(.param .align 8 .b8 m[24]) { ret; }\n"
	s, p := stream(t), memory(t, 4*100)
	require.NoError(t, driver.CuMemsetD32(p, math.Float32bits(2), 100))
	for range 2 { // modules
		m := module(t, text)
		var f driver.CUfunction
		require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData("sums\x00")))
		args := matrix{2, 3, uint64(p) + 40, 0}
		require.NoError(t, run(f, s, at(args)))
		launchCaptured(t, s, func() { require.NoError(t, run(f, s, at(args))) })
		require.NoError(t, driver.CuStreamSynchronize(s))
		table, size := variable(t, m, "_ZN2ns5tableE")
		assert.Equal(t, raw[float32](13, 12), bytesAt(t, table, size))
		count, _ := variable(t, m, "count")
		assert.Equal(t, []uint32{2}, words(t, count, 1))
		for range 2 {
			assert.Equal(t, 90, <-lengths)
			assert.Equal(t, 2, <-lengths)
		}
	}
}

// TestKernelReachesNoMemory: its launch fails as that of a kernel with such an address.
func TestKernelReachesNoMemory(t *testing.T) {
	for _, c := range []struct {
		name    string
		address func(t *testing.T) uint64
		use     func(address uint64)
		code    driver.CUresult
		says    []string
	}{
		{"freed", func(t *testing.T) uint64 {
			p := allocate(t, 8)
			require.NoError(t, driver.CuMemFree(p))
			return uint64(p)
		}, nil, driver.CUDA_ERROR_ILLEGAL_ADDRESS, []string{"after the release"}},
		{"of the host", func(*testing.T) uint64 { return uint64(uintptr(at(1))) }, nil, driver.CUDA_ERROR_ILLEGAL_ADDRESS,
			[]string{"kernel k: panic: address 0x", " is no memory that the kernel can use, at ", "variable_test.go:"}},
		{"odd", func(t *testing.T) uint64 { return uint64(memory(t, 8)) + 2 }, nil, driver.CUDA_ERROR_MISALIGNED_ADDRESS,
			[]string{" is not a multiple of what its values need, at "}},
		{"no such variable", nil, func(uint64) { sim.Variable[uint32]("none") }, driver.CUDA_ERROR_LAUNCH_FAILED,
			[]string{"kernel k: panic: variable none is not in the kernel's module, at ", "variable_test.go:"}},
		{"of no name", nil, func(uint64) { sim.Variable[uint32]("") }, driver.CUDA_ERROR_LAUNCH_FAILED, []string{"is not in the kernel's module"}},
		{"of no size", nil, func(uint64) { sim.Variable[uint32]("unsized") }, driver.CUDA_ERROR_LAUNCH_FAILED,
			[]string{"variable unsized: the image, perhaps of the double of NVRTC, does not tell its size"}},
		{"of no type of C", nil, func(uint64) { sim.Slice[int](0) }, driver.CUDA_ERROR_LAUNCH_FAILED, []string{"sim: int has no size of its own in C"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			s, address := stream(t), uint64(0)
			if c.address != nil {
				address = c.address(t)
				c.use = func(address uint64) { sim.Slice[uint32](address) }
			}
			require.NoError(t, control.Kernel("k", func(_ sim.Grid, address uint64) { c.use(address) }))
			f := loaded(t, ".global .b8 unsized[...];\n"+entry("k", ".u64"), "k")
			control.FaultDelay(time.Millisecond)
			require.NoError(t, run(f, s, at(address)))
			require.ErrorIs(t, driver.CuStreamSynchronize(s), c.code)
			for _, says := range c.says {
				assert.Contains(t, control.Violation(), says)
			}
			control.Reset()
		})
	}
	t.Run("outside of kernels", func(t *testing.T) {
		assert.PanicsWithValue(t, "sim: address 0x1000 is used, but no kernel runs", func() { sim.Slice[byte](0x1000) })
		assert.PanicsWithValue(t, "sim: variable table is used, but no kernel runs", func() { sim.Variable[byte]("table") })
	})
}

// TestKernelInCReachesVariables: a kernel that finds none goes on, and its launch fails.
func TestKernelInCReachesVariables(t *testing.T) {
	for name, more := range map[string]string{"both": ".global .u8 other;\n", "one": ""} {
		t.Run(name, func(t *testing.T) {
			primary(t, 0)
			s, p := stream(t), memory(t, 8)
			f := loaded(t, ".const .u32 table[3] = {7};\n"+more+entry("looks", ".u64"), "looks")
			control.FaultDelay(0)
			require.NoError(t, run(f, s, at(p)))
			if more == "" {
				require.ErrorIs(t, driver.CuStreamSynchronize(s), driver.CUDA_ERROR_LAUNCH_FAILED)
				violated(t, "kernel looks: there is no variable other in its module")
				return
			}
			require.NoError(t, driver.CuStreamSynchronize(s))
			assert.Equal(t, []uint32{7, 12}, words(t, p, 2))
		})
	}
}

// TestLinkedVariables: two pieces may not define the same, unless it is of each alone.
func TestLinkedVariables(t *testing.T) {
	for name, c := range map[string]struct {
		ptx  string
		code driver.CUresult
	}{
		"visible": {".visible .global .u32 v;", driver.CUDA_ERROR_INVALID_IMAGE},
		"own":     {".global .u32 v;", driver.CUDA_SUCCESS},
		"extern":  {".extern .global .u32 v;", driver.CUDA_SUCCESS},
	} {
		t.Run(name, func(t *testing.T) {
			primary(t, 0)
			var l driver.CUlinkState
			require.NoError(t, driver.CuLinkCreate(0, nil, nil, &l))
			piece := []byte(".version 7.0\n.target sm_70\n.address_size 64\n" + c.ptx + "\x00")
			add := func() error {
				return driver.CuLinkAddData(l, driver.CU_JIT_INPUT_PTX, unsafe.Pointer(&piece[0]), uint64(len(piece)), nil, 0, nil, nil)
			}
			require.NoError(t, add())
			if c.code == driver.CUDA_SUCCESS {
				assert.NoError(t, add())
			} else {
				assert.ErrorIs(t, add(), c.code)
			}
			require.NoError(t, driver.CuLinkDestroy(l))
		})
	}
}

// TestLargeParameters: since PTX 8.1 kernels may have more than 4 KiB of them.
func TestLargeParameters(t *testing.T) {
	type large struct {
		Index uint64
		Data  [4000]uint64
	}
	primary(t, 0)
	s, got := stream(t), make(chan large, 1)
	require.NoError(t, control.Kernel("large", func(_ sim.Grid, v large) { got <- v }))
	text := strings.Replace(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry large(.param .align 8 .b8 v[32008]) { ret; }\x00", "7.0", "8.1", 1)
	var m driver.CUmodule
	require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(unsafe.StringData(text))))
	t.Cleanup(func() { assert.NoError(t, driver.CuModuleUnload(m)) })
	var f driver.CUfunction
	require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData("large\x00")))
	v := large{Index: 1}
	v.Data[3999] = 5
	require.NoError(t, run(f, s, at(v)))
	assert.Equal(t, v, <-got)
	text = strings.Replace(text, "32008", "32776", 1)
	assert.ErrorIs(t, driver.CuModuleLoadData(&m, unsafe.Pointer(unsafe.StringData(text))), driver.CUDA_ERROR_INVALID_PTX)
}
