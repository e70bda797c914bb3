//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// compile compiles CUDA C++ to machine code for a device. The error of source that does
// not compile has the compiler's log.
func compile(source string, d safe.Device) ([]byte, error) {
	major, minor, err := d.ComputeCapability()
	if err != nil {
		return nil, err
	}
	text, option := []byte(source+"\x00"), []byte(fmt.Sprintf("--gpu-architecture=sm_%d%d\x00", major, minor))
	var p nvrtc.NvrtcProgram
	if err := nvrtc.NvrtcCreateProgram(&p, &text[0], nil, 0, nil, nil); err != nil {
		return nil, err
	}
	defer nvrtc.NvrtcDestroyProgram(&p)
	var pin runtime.Pinner // the list of options is memory that holds an address
	defer pin.Unpin()
	pin.Pin(&option[0])
	options := []*byte{&option[0]}
	var size uint64
	if err := nvrtc.NvrtcCompileProgram(p, 1, &options[0]); err != nil {
		if nvrtc.NvrtcGetProgramLogSize(p, &size) != nil || size == 0 {
			return nil, err
		}
		log := make([]byte, size)
		if nvrtc.NvrtcGetProgramLog(p, &log[0]) != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w\n%s", err, strings.TrimRight(string(log), "\x00"))
	}
	if err := nvrtc.NvrtcGetCUBINSize(p, &size); err != nil {
		return nil, err
	}
	image := make([]byte, size)
	return image, nvrtc.NvrtcGetCUBIN(p, &image[0])
}

func TestCompile(t *testing.T) {
	if _, _, err := nvrtc.Library(); err != nil {
		if err := nvrtc.Open("../../.cache/libnvrtc/13.5"); err != nil { // where make libraries puts it
			t.Skip(err)
		}
	}
	x := open(t)
	image, err := compile(`extern "C" __global__ void twice(float *v, int n) {
		int i = blockIdx.x * blockDim.x + threadIdx.x;
		if (i < n) v[i] *= 2;
	}`, x.Device())
	require.NoError(t, err)
	assert.Equal(t, "\x7fELF", string(image[:4]))
	_, err = compile(`extern "C" __global__ void twice(float *v) { v = missing; }`, x.Device())
	assert.ErrorIs(t, err, nvrtc.NVRTC_ERROR_COMPILATION)
	assert.ErrorContains(t, err, `identifier "missing" is undefined`)
	if !onGPU {
		return // the simulated driver runs no machine code
	}
	m, err := safe.Load(x, image, safe.LoadOptions{})
	require.NoError(t, err)
	defer m.Close()
	k, err := m.Kernel("twice")
	require.NoError(t, err)
	const n = 1000
	s, b := newStream(t, x), newBuffer(t, x, n)
	require.NoError(t, b.Fill(3))
	require.NoError(t, k.Launch(s, safe.LaunchConfig{Grid: safe.Blocks(n, 128), Block: safe.Dim{X: 128}}, b.Arg(), safe.Val(int32(n))))
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 6, values(t, b)[n-1])
}
