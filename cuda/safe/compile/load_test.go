//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Loading and launching what was compiled: on the simulated driver PTX of a kernel that it knows,
// on a GPU everything.

package compile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func needsGPU(t *testing.T) *safe.Context {
	t.Helper()
	if !onGPU {
		t.Skip("needs a GPU")
	}
	needsNVRTC(t, "")
	return open(t)
}

// launch runs a kernel on n values, which are 0, 1, 2 and so on before, and returns them.
func launch(t *testing.T, x *safe.Context, m *safe.Module, kernel string, c safe.LaunchConfig, n int, args func(b *safe.Buffer[float32]) []safe.Arg) []float32 {
	t.Helper()
	k, err := m.Kernel(kernel)
	require.NoError(t, err)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer s.Close()
	b, err := safe.NewBuffer[float32](x, n)
	require.NoError(t, err)
	defer b.Close()
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)
	}
	require.NoError(t, b.CopyFromHost(values))
	require.NoError(t, k.Launch(s, c, args(b)...))
	require.NoError(t, s.Synchronize())
	require.NoError(t, b.CopyToHost(values))
	return values
}

func justBuffer(b *safe.Buffer[float32]) []safe.Arg { return []safe.Arg{b.Arg()} }

func oneBlock(n int) safe.LaunchConfig {
	return safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: uint32(n)}}
}

const fill = `extern "C" __global__ void fill(unsigned n, float value, float *v) {
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) v[i] = value;
}`

func TestLoad(t *testing.T) {
	needsNVRTC(t, "")
	ctx, x := context.Background(), open(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fill.cu"), []byte(fill), 0o600))
	files := fstest.MapFS{"k/fill.cu": {Data: []byte("#include \"real.h\"\n" + strings.ReplaceAll(fill, "float", "REAL"))}, "k/real.h": {Data: []byte("#define REAL float\n")}}
	formats := []Format{PTX}
	if onGPU {
		formats = []Format{MachineCode, PTX}
	}
	for _, format := range formats {
		o := Options{Format: format, CacheFolder: filepath.Join(dir, "cache")}
		for name, load := range map[string]func() (*safe.Module, error){
			"Load":       func() (*safe.Module, error) { return Load(ctx, x, fill, o) },
			"Load again": func() (*safe.Module, error) { return Load(ctx, x, fill, o) },
			"LoadFile":   func() (*safe.Module, error) { return LoadFile(ctx, x, filepath.Join(dir, "fill.cu"), o) },
			"LoadFS":     func() (*safe.Module, error) { return LoadFS(ctx, x, files, "k/fill.cu", o) },
			"expression": func() (*safe.Module, error) { o := o; o.Kernels = []string{"fill"}; return Load(ctx, x, fill, o) },
		} {
			t.Run(fmt.Sprint(format, " ", name), func(t *testing.T) {
				m, err := load()
				if e := (*Error)(nil); errors.As(err, &e) && errors.Is(err, driver.CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
					assert.Contains(t, e.Hint, "compile machine code")
					t.Skip(err)
				}
				require.NoError(t, err)
				defer m.Close()
				got := launch(t, x, m, "fill", oneBlock(100), 100, func(b *safe.Buffer[float32]) []safe.Arg {
					return []safe.Arg{safe.Val(uint32(100)), safe.Val(float32(2)), b.Arg()}
				})
				assert.EqualValues(t, 2, got[99])
			})
		}
	}
	gone, err := safe.Open(0)
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	_, err = Load(ctx, gone, fill, Options{})
	assert.ErrorIs(t, err, safe.ErrClosed)
}

func TestArch(t *testing.T) {
	x := open(t)
	name, err := Arch(x.Device())
	require.NoError(t, err)
	assert.Regexp(t, `^sm_\d+$`, name)
	a, err := parseArch(name, MachineCode)
	require.NoError(t, err)
	assert.Equal(t, name, a.name(MachineCode))
}

func TestGPUTemplates(t *testing.T) {
	x := needsGPU(t)
	source := `__constant__ float table[2];
template<class T, int N> __global__ void scale(T *v) { v[threadIdx.x] *= N + table[1]; }`
	m, err := Load(context.Background(), x, source, Options{Kernels: []string{"scale<float, 3>", "scale<float, 5>", "&table"}})
	require.NoError(t, err)
	defer m.Close()
	table, err := safe.Global[float32](m, "&table")
	require.NoError(t, err)
	defer table.Close()
	require.NoError(t, table.CopyFromHost([]float32{0, 1}))
	assert.EqualValues(t, 7*4, launch(t, x, m, "scale<float, 3>", oneBlock(8), 8, justBuffer)[7])
	assert.EqualValues(t, 7*6, launch(t, x, m, "scale<float, 5>", oneBlock(8), 8, justBuffer)[7])
	_, err = m.Kernel("scale<float, 4>")
	assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_FOUND)
}

// TestGPUArchitectures loads images for the GPU's architecture and, as PTX, for an older one.
func TestGPUArchitectures(t *testing.T) {
	x := needsGPU(t)
	ctx, source := context.Background(), `extern "C" __global__ void twice(float *v) { v[threadIdx.x] *= 2; }`
	own, err := Arch(x.Device())
	require.NoError(t, err)
	for _, o := range []Options{{Arch: own}, {Arch: own, Debug: true}, {Arch: own, LineInfo: true, FastMath: true, MaxRegisters: 32}, {Arch: "compute_75", Format: PTX, MaxRegisters: 32}} {
		t.Run(fmt.Sprintf("%s %v", o.Arch, o.Format), func(t *testing.T) {
			i, err := Compile(ctx, source, o)
			require.NoError(t, err)
			m, err := i.Load(x)
			if errors.Is(err, driver.CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
				assert.ErrorContains(t, err, "compile machine code")
				t.Skip(err)
			}
			require.NoError(t, err)
			defer m.Close()
			assert.EqualValues(t, 14, launch(t, x, m, "twice", oneBlock(8), 8, justBuffer)[7])
		})
	}
	other := "sm_80"
	if own == other {
		other = "sm_90"
	}
	i, err := Compile(ctx, source, Options{Arch: other})
	require.NoError(t, err)
	_, err = i.Load(x)
	assert.Error(t, err, "machine code of another architecture")
	t.Log(err)
}

// TestGPUHeaders compiles with CUDA's own headers, where they are found.
func TestGPUHeaders(t *testing.T) {
	x := needsGPU(t)
	for name, test := range map[string]struct {
		source string
		config safe.LaunchConfig
		want   float32 // of the last of 64 values
	}{
		"fp16": {`#include <cuda_fp16.h>
extern "C" __global__ void k(float *v) { v[threadIdx.x] = __half2float(__hadd(__float2half(v[threadIdx.x]), __float2half(0.5f))); }`, oneBlock(64), 63.5},
		"cooperative groups": {`#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(float *v) {
	auto grid = cg::this_grid();
	float left = v[(grid.thread_rank() + grid.size() - 1) % grid.size()];
	grid.sync();
	v[grid.thread_rank()] = left;
}`, safe.LaunchConfig{Grid: safe.Dim{X: 2}, Block: safe.Dim{X: 32}, Cooperative: true}, 62},
		"CUB": {`#include <cub/block/block_reduce.cuh>
extern "C" __global__ void k(float *v) {
	using Reduce = cub::BlockReduce<float, 64>;
	__shared__ typename Reduce::TempStorage memory;
	float sum = Reduce(memory).Sum(v[threadIdx.x]);
	if (threadIdx.x == 0) v[63] = sum;
}`, oneBlock(64), 2016},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Load(context.Background(), x, test.source, Options{})
			var e *Error
			if errors.As(err, &e) && e.Hint != "" {
				t.Skip(e.Hint)
			}
			require.NoError(t, err)
			defer m.Close()
			assert.Equal(t, test.want, launch(t, x, m, "k", test.config, 64, justBuffer)[63])
		})
	}
}

func TestGPULink(t *testing.T) {
	x := needsGPU(t)
	needsNvJitLink(t, "")
	arch, err := Arch(x.Device())
	require.NoError(t, err)
	for _, lto := range []bool{false, true} {
		i, err := Link(context.Background(), []Input{{Name: "caller.cu", Source: caller, Kernels: []string{"other<float>"}}, {Name: "callee.cu", Source: callee}}, Options{Arch: arch, LTO: lto})
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		m, err := i.Load(x)
		require.NoError(t, err)
		assert.EqualValues(t, 3.5, launch(t, x, m, "halve", oneBlock(8), 8, justBuffer)[7])
		assert.EqualValues(t, 0, launch(t, x, m, "other<float>", oneBlock(1), 8, justBuffer)[0])
		require.NoError(t, m.Close())
	}
}

func TestGPUInParallel(t *testing.T) {
	x := needsGPU(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 4 {
				m, err := Load(context.Background(), x, `extern "C" __global__ void k(float *v) { v[threadIdx.x] += N; }`, Options{Defines: map[string]string{"N": fmt.Sprint(n)}})
				if assert.NoError(t, err) {
					assert.EqualValues(t, 7+n, launch(t, x, m, "k", oneBlock(8), 8, justBuffer)[7])
					assert.NoError(t, m.Close())
				}
			}
		})
	}
	all.Wait()
}
