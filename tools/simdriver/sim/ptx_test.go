//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNewerPTX is refused as a driver refuses it, which names the line in the compiler's log.
func TestNewerPTX(t *testing.T) {
	primary(t, 0)
	for _, c := range []struct {
		version string
		code    driver.CUresult
	}{
		{"7.0", driver.CUDA_SUCCESS},
		{"9.5", driver.CUDA_SUCCESS},
		{"9.6", driver.CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
		{"10.0", driver.CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
		{"new", driver.CUDA_ERROR_INVALID_PTX},
	} {
		t.Run(c.version, func(t *testing.T) {
			primary(t, 0)
			image := []byte("// made by hand\n.version " + c.version + "\n.target sm_90\n.address_size 64\n" + entry("k") + "\x00")
			log := make([]byte, 200)
			var pin runtime.Pinner
			defer pin.Unpin()
			pin.Pin(&log[0])
			options := []driver.CUjit_option{driver.CU_JIT_ERROR_LOG_BUFFER, driver.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES}
			values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
			var m driver.CUmodule
			err := driver.CuModuleLoadDataEx(&m, unsafe.Pointer(&image[0]), 2, &options[0], &values[0])
			if c.code == driver.CUDA_SUCCESS {
				require.NoError(t, err)
				require.NoError(t, driver.CuModuleUnload(m))
				return
			}
			assert.ErrorIs(t, err, c.code)
			assert.Contains(t, string(log), "line 2")
		})
	}
}

// TestReadPTX: all of a module that compilers write is read, whatever stands between the kernels.
func TestReadPTX(t *testing.T) {
	primary(t, 0)
	const text = `
/* a comment } of
   lines */
.visible .global .align 4 .f32 table[4] = {0f3F800000, 0f40000000};
.global .align 1 .b8 $str[3] = {37, 100, 0};
.visible .const .align 16 .v4 .f32 colors[2][3];
.visible .global .attribute(.managed) .align 8 .u64 counter;
.extern .shared .align 16 .b8 smem[];
.extern .func (.param .b32 result) vprintf(.param .b64 a, .param .b64 b);
.func (.reg .b32 r) helper(.reg .b32 x) { mov.b32 r, x; ret; }
.visible .entry _Z4longPKfi(
	.param .u64 .ptr .global .align 16 a,
	.param .align 4 .b8 b[12],
	.param .u8 c
)
.maxntid 16, 8, 2
.minnctapersm 2
{
	.pragma "nounroll";
	{ .reg .b32 t; }
	ret;
}
.weak .entry none { ret; }
.file 1 "some file.cu"
.section .debug_str { .b8 1 }
`
	f := loaded(t, text, "_Z4longPKfi")
	for i, want := range [][2]uint64{{0, 8}, {8, 12}, {20, 1}} {
		var offset, size uint64
		require.NoError(t, driver.CuFuncGetParamInfo(f, uint64(i), &offset, &size))
		assert.Equal(t, want, [2]uint64{offset, size}, i)
	}
	var threads int32
	require.NoError(t, driver.CuFuncGetAttribute(&threads, driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f))
	assert.EqualValues(t, 256, threads)
	loaded(t, text, "none")

	image := []byte(".version 7.0\n.target sm_90, debug\n.address_size 64\n" + text + "\x00")
	var m driver.CUmodule
	require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
	for name, want := range map[string]uint64{"table": 16, "colors": 96, "counter": 8} {
		var p driver.CUdeviceptr
		var size uint64
		require.NoError(t, driver.CuModuleGetGlobal(&p, &size, m, unsafe.StringData(name+"\x00")), name)
		assert.Equal(t, want, size, name)
	}
	require.NoError(t, driver.CuModuleUnload(m))
}
