//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package compile

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/vector"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nvrtcDouble builds a double of NVRTC. On Windows it lies beside the simulated driver.
func nvrtcDouble(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		return filepath.Join(filepath.Dir(os.Getenv("CUDABIND_SIM")), "nvrtc64_130_0.dll")
	}
	file, err := sim.BuildNVRTC(t.TempDir(), sim.Default)
	require.NoError(t, err)
	return file
}

// TestSimulated: with the double of NVRTC, programs run on the simulated driver without NVIDIA's.
func TestSimulated(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, nvrtc.Open(nvrtcDouble(t)))
		ctx, x, o := context.Background(), open(t), own(t)
		o.Arch, o.Kernels = "", []string{"scale<float>"}
		for range 2 {
			m, err := Load(ctx, x, "#include <cuda_fp16.h>\ntemplate<class T> __global__ void scale(T *v, T by) { *v *= by; }", o)
			require.NoError(t, err)
			k, err := m.Kernel("scale<float>")
			require.NoError(t, err)
			assert.Equal(t, "scale<float>", k.Name())
			require.NoError(t, m.Close())
		}
		assert.Equal(t, 1, images(t, o))
		_, err := Load(ctx, x, "#error no", Options{})
		assert.EqualError(t, err, "cuda: compile.Load: source.cu:1: error: #error directive: no")
	})
}

// TestSimulatedVariable: a variable is found by its name in the source, by programs and doubles of kernels.
func TestSimulatedVariable(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, nvrtc.Open(nvrtcDouble(t)))
		ctx, x := context.Background(), open(t)
		const source = `namespace ns { __constant__ float table[COUNT] = {1, 2}; }
__global__ void scale(float *v) { v[threadIdx.x] *= ns::table[1]; }`
		control, err := sim.Attach(os.Getenv("CUDABIND_SIM"))
		require.NoError(t, err)
		require.NoError(t, control.Kernel("scale", func(g sim.Grid, v []float32) {
			for i := range g.Threads() {
				v[i] *= sim.Variable[float32]("ns::table")[1]
			}
		}))
		m, err := Load(ctx, x, "struct S { int a, b; };\n__constant__ S s;\n__constant__ float3 forces[4];\n__global__ void k() {}", Options{Kernels: []string{"&s", "&forces"}})
		require.NoError(t, err)
		forces, err := safe.Global[vector.Float3](m, "&forces")
		require.NoError(t, err)
		assert.Equal(t, 4, forces.Len())
		_, err = safe.Global[int32](m, "&s")
		assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_SUPPORTED)
		if driver.Find("cuLogsDumpToMemory") == nil {
			assert.ErrorContains(t, err, "&s: the image, perhaps of the double of NVRTC, does not tell its size and first values: embed PTX by go tool kernels -image compute_75, or use NVIDIA's NVRTC (docs/testing.md)")
		}
		for _, format := range []Format{MachineCode, PTX} {
			m, err := Load(ctx, x, source, Options{Kernels: []string{"scale", "&ns::table"}, Defines: map[string]string{"COUNT": "2"}, Format: format})
			require.NoError(t, err)
			table, err := safe.Global[float32](m, "&ns::table")
			require.NoError(t, err)
			values := make([]float32, table.Len())
			require.NoError(t, table.CopyToHost(values))
			assert.Equal(t, []float32{1, 2}, values)
			assert.EqualValues(t, 14, launch(t, x, m, "scale", oneBlock(8), 8, justBuffer)[7])
			require.NoError(t, table.CopyFromHost([]float32{0, 5}))
			assert.EqualValues(t, 35, launch(t, x, m, "scale", oneBlock(8), 8, justBuffer)[7])
			require.NoError(t, table.Close())
			require.NoError(t, m.Close())
		}
	})
}

// TestLoadImage loads the image that suits the device, of code that was compiled before.
func TestLoadImage(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	x := open(t)
	const ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry "
	other := &Image{Code: []byte(ptx + "other() { ret; }\n"), Format: PTX, Arch: "compute_70"}
	image := &Image{Code: []byte(ptx + "_Z4fillv() { ret; }\n"), Format: PTX, Arch: "compute_75", Names: map[string]string{"fill": "_Z4fillv"}}
	m, err := LoadImage(x, other, image)
	require.NoError(t, err)
	_, err = m.Kernel("fill")
	assert.NoError(t, err)
	require.NoError(t, m.Close())

	_, err = LoadImage(x, &Image{Arch: "sm_999"})
	assert.ErrorContains(t, err, "cuda: compile.LoadImage: ")
	assert.ErrorContains(t, err, "there is sm_999; compile one for sm_")
	_, err = LoadImage(x, &Image{Code: []byte("no PTX"), Format: PTX, Arch: "compute_75"})
	assert.Error(t, err)
	_, err = LoadImage(x, &Image{Code: []byte(".version 99.1\n.target sm_75\n.address_size 64\n.visible .entry f() { ret; }\n"), Format: PTX, Arch: "compute_75"})
	assert.ErrorContains(t, err, " and does not load PTX 99.1: install a newer driver, or compile with an older NVRTC")
	require.NoError(t, x.Close())
	_, err = LoadImage(x, image)
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = LoadImage(nil, image)
	assert.ErrorIs(t, err, safe.ErrClosed)
}
