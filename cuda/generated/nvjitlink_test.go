//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package generated_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nvjitlink"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
)

const (
	caller = `extern "C" __device__ float half_of(float); extern "C" __global__ void halve(float *v) { v[threadIdx.x] = half_of(v[threadIdx.x]); }`
	callee = `extern "C" __device__ float half_of(float v) { return v / 2; }`
)

// link links LTO IR for a GPU, and returns the machine code or the errors' log.
func link(arch string, images map[string][]byte) (machine []byte, log string, err error) {
	runtime.LockOSThread() // links whose calls come from several threads crash
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	options := []*byte{ffi.CString("-lto")}
	if arch != "" {
		options = append(options, ffi.CString("-arch="+arch))
	}
	for _, o := range options {
		pin.Pin(o)
	}
	var h nvjitlink.NvJitLinkHandle
	if err := nvjitlink.NvJitLinkCreate(&h, uint32(len(options)), &options[0]); err != nil {
		return nil, "", err
	}
	defer nvjitlink.NvJitLinkDestroy(&h)
	for name, image := range images {
		if err = nvjitlink.NvJitLinkAddData(h, nvjitlink.NVJITLINK_INPUT_LTOIR, unsafe.Pointer(&image[0]), uint64(len(image)), ffi.CString(name)); err != nil {
			break
		}
	}
	if err == nil {
		err = nvjitlink.NvJitLinkComplete(h)
	}
	var n uint64
	if err == nil {
		if err = nvjitlink.NvJitLinkGetLinkedCubinSize(h, &n); err == nil {
			machine = make([]byte, n)
			err = nvjitlink.NvJitLinkGetLinkedCubin(h, unsafe.Pointer(&machine[0]))
		}
		return machine, "", err
	}
	if nvjitlink.NvJitLinkGetErrorLogSize(h, &n) == nil && n > 0 {
		text := make([]byte, n)
		if nvjitlink.NvJitLinkGetErrorLog(h, &text[0]) == nil {
			log = strings.TrimRight(string(text), "\x00")
		}
	}
	return nil, log, err
}

// TestNvJitLink links what NVRTC has compiled, with NVIDIA's own libraries, which need no GPU.
func TestNvJitLink(t *testing.T) {
	for _, row := range []struct {
		version string
		missing int
	}{{"12.9", 2}, {"13.5", 0}} {
		t.Run(row.version, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				openNVRTC(t, row.version)
				dir, err := filepath.Abs(filepath.Join("../../.cache/libnvJitLink", row.version))
				require.NoError(t, err)
				if _, err := os.Stat(dir); err != nil {
					t.Skipf("no nvJitLink of CUDA %s: make libraries gets it", row.version)
				}
				require.NoError(t, nvjitlink.Open(dir))
				_, version, err := nvjitlink.Library()
				require.NoError(t, err)
				assert.Equal(t, row.version, version)
				missing, err := nvjitlink.Missing()
				require.NoError(t, err)
				assert.Len(t, missing, row.missing)

				images := map[string][]byte{}
				for name, source := range map[string]string{"caller": caller, "callee": callee} {
					c := compile(source, "", "-arch=compute_90", "-dlto", "-rdc=true")
					require.NoError(t, c.err, c.log)
					require.NotEmpty(t, c.lto)
					images[name] = c.lto
				}
				machine, log, err := link("sm_90", images)
				require.NoError(t, err, log)
				assert.Equal(t, "\x7fELF", string(machine[:4]))
				assert.Contains(t, string(machine), "halve")

				delete(images, "callee")
				_, log, err = link("sm_90", images)
				assert.Error(t, err)
				assert.Contains(t, log, "half_of")
				_, _, err = link("", images)
				assert.ErrorIs(t, err, nvjitlink.NVJITLINK_ERROR_MISSING_ARCH)
			})
		})
	}
}
