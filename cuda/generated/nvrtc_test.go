//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package generated_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
)

const (
	template = `template<typename T> __global__ void add(T *a, const T *b, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) a[i] += b[i];
}`
	broken = `__global__ void f(int *p) { *p = missing; }`
)

// openNVRTC opens a real library, in the folder where make libraries puts it.
func openNVRTC(t *testing.T, version string) (dir string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../../.cache/libnvrtc", version))
	require.NoError(t, err)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no NVRTC of CUDA %s: make libraries gets it", version)
	}
	require.NoError(t, nvrtc.Open(dir))
	return dir
}

// compiled is what a compilation returned.
type compiled struct {
	err               error
	log, lowered, asm string
	machine, lto      []byte
	destroyed         error
}

func compile(source, expression string, options ...string) (c compiled) {
	var p nvrtc.NvrtcProgram
	if c.err = nvrtc.NvrtcCreateProgram(&p, ffi.CString(source), ffi.CString("test.cu"), 0, nil, nil); c.err != nil {
		return c
	}
	if expression != "" {
		if c.err = nvrtc.NvrtcAddNameExpression(p, ffi.CString(expression)); c.err != nil {
			return c
		}
	}
	var pin runtime.Pinner
	list := make([]*byte, len(options)+1)
	for i, o := range options {
		list[i] = ffi.CString(o)
		pin.Pin(list[i])
	}
	c.err = nvrtc.NvrtcCompileProgram(p, int32(len(options)), &list[0])
	pin.Unpin()
	text := func(size func(nvrtc.NvrtcProgram, *uint64) error, get func(nvrtc.NvrtcProgram, *byte) error) []byte {
		var n uint64
		if size(p, &n) != nil || n == 0 {
			return nil
		}
		b := make([]byte, n)
		if get(p, &b[0]) != nil {
			return nil
		}
		return b
	}
	c.log = strings.TrimRight(string(text(nvrtc.NvrtcGetProgramLogSize, nvrtc.NvrtcGetProgramLog)), "\x00")
	c.asm = string(text(nvrtc.NvrtcGetPTXSize, nvrtc.NvrtcGetPTX))
	c.machine = text(nvrtc.NvrtcGetCUBINSize, nvrtc.NvrtcGetCUBIN)
	c.lto = text(nvrtc.NvrtcGetLTOIRSize, nvrtc.NvrtcGetLTOIR)
	if expression != "" && c.err == nil {
		var lowered *byte
		if c.err = nvrtc.NvrtcGetLoweredName(p, ffi.CString(expression), &lowered); c.err == nil {
			c.lowered = ffi.GoString(lowered)
		}
	}
	c.destroyed = nvrtc.NvrtcDestroyProgram(&p)
	return c
}

// TestNVRTC compiles with NVIDIA's own library, which needs no GPU.
func TestNVRTC(t *testing.T) {
	for _, row := range []struct {
		version, arch string
		missing       []string
	}{
		{"12.9", "sm_90", []string{
			"nvrtcGetTileIRSize 13.2", "nvrtcGetTileIR 13.2",
			"nvrtcInstallBundledHeaders 13.3", "nvrtcGetBundledHeadersInfo 13.3", "nvrtcRemoveBundledHeaders 13.3",
		}},
		{"13.5", "sm_100", nil},
	} {
		t.Run(row.version, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				dir := openNVRTC(t, row.version)
				file, version, err := nvrtc.Library()
				require.NoError(t, err)
				assert.Equal(t, row.version, version)
				assert.Equal(t, dir, filepath.Dir(file))
				var major, minor int32
				require.NoError(t, nvrtc.NvrtcVersion(&major, &minor))
				assert.Equal(t, row.version, fmt.Sprintf("%d.%d", major, minor))
				missing, err := nvrtc.Missing()
				require.NoError(t, err)
				var newer []string
				for _, e := range missing {
					newer = append(newer, e.Symbol+" "+e.Since)
				}
				assert.Equal(t, row.missing, newer)

				c := compile(template, "add<float>", "--gpu-architecture="+row.arch)
				require.NoError(t, c.err, c.log)
				assert.Equal(t, "_Z3addIfEvPT_PKS0_i", c.lowered)
				assert.Equal(t, "\x7fELF", string(c.machine[:4]))
				assert.Contains(t, c.asm, ".entry _Z3addIfEvPT_PKS0_i(")
				assert.NoError(t, c.destroyed)

				c = compile(broken, "")
				assert.Equal(t, error(nvrtc.NVRTC_ERROR_COMPILATION), c.err)
				assert.Contains(t, c.log, `identifier "missing" is undefined`)
				assert.ErrorIs(t, compile(template, "", "--no-such-option").err, nvrtc.NVRTC_ERROR_INVALID_OPTION)
				assert.ErrorIs(t, nvrtc.NvrtcDestroyProgram(new(nvrtc.NvrtcProgram)), nvrtc.NVRTC_ERROR_INVALID_PROGRAM)
				name, err := nvrtc.NvrtcGetErrorString(nvrtc.NVRTC_ERROR_COMPILATION)
				require.NoError(t, err)
				assert.Equal(t, "NVRTC_ERROR_COMPILATION", name)
			})
		})
	}
}

// TestNVRTCInParallel: goroutines compile at once, each a program of its own.
func TestNVRTCInParallel(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		openNVRTC(t, "13.5")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 3 {
					c := compile(template, "add<double>", "--gpu-architecture=compute_90")
					assert.NoError(t, c.err, c.log)
					assert.Equal(t, "_Z3addIdEvPT_PKS0_i", c.lowered)
				}
			})
		}
		all.Wait()
	})
}

// TestNoNVRTC: where there is no library, the error says what to do.
func TestNoNVRTC(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		err := nvrtc.Open(t.TempDir())
		var library *nvrtc.LibraryError
		require.ErrorAs(t, err, &library)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "nvidia-cuda-nvrtc")
	})
}
