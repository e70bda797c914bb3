//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// CUDA's own headers: those in NVRTC, in a toolkit and in Python's packages.

package compile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const half = `#include <cuda_fp16.h>
extern "C" __global__ void k(__half *v) { *v = __float2half(3); }`

// TestBundledHeaders: NVRTC from 13.3 on has CUDA's headers in itself.
func TestBundledHeaders(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		ctx, o := context.Background(), own(t)
		o.Arch = "sm_90"
		for name, source := range map[string]string{
			"fp16":               half,
			"cooperative groups": "#include <cooperative_groups.h>\n__global__ void k() { cooperative_groups::this_grid().sync(); }",
			"CUB": `#include <cub/block/block_reduce.cuh>
__global__ void k(float *v) { using R = cub::BlockReduce<float, 64>; __shared__ typename R::TempStorage m; *v = R(m).Sum(*v); }`,
		} {
			t.Run(name, func(t *testing.T) {
				if name != "fp16" && os.Getenv("TEST_SHORT") == "true" {
					t.Skip("takes seconds")
				}
				n := images(t, o)
				began := time.Now()
				first, err := Compile(ctx, source, o)
				require.NoError(t, err)
				cold := time.Since(began)
				assert.Equal(t, n+1, images(t, o))
				began = time.Now()
				again, err := Compile(ctx, source, o)
				require.NoError(t, err)
				t.Logf("cold %v, cached %v", cold, time.Since(began))
				assert.Equal(t, string(first.Code), string(again.Code))
				assert.Equal(t, n+1, images(t, o))
			})
		}
		found, err := filepath.Glob(filepath.Join(o.CacheFolder, "headers-13.5-*", "cuda_fp16.h"))
		require.NoError(t, err)
		assert.Len(t, found, 1)
	}, "TEST_SHORT="+strconv.FormatBool(testing.Short()), "LD_LIBRARY_PATH=", "CUDA_HOME=", "CUDA_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX=")
}

// TestFoundHeaders: an NVRTC without headers takes those of a toolkit or of Python's packages, of
// its own major version.
func TestFoundHeaders(t *testing.T) {
	const cuda12, cuda13, header = "#define CUDA_VERSION 12060\n", "#define CUDA_VERSION 13000\n", "#pragma once\ntypedef short __half;\n__device__ inline short __float2half(float f) { return f; }\n"
	for name, test := range map[string]struct {
		files map[string]string
		found string
	}{
		"nothing":                     {nil, ""},
		"toolkit":                     {map[string]string{"toolkit/include/cuda.h": cuda12, "toolkit/include/cuda_fp16.h": header}, "toolkit/include"},
		"toolkit for targets":         {map[string]string{"toolkit/" + target + "/include/cuda_fp16.h": header}, "toolkit/" + target + "/include"},
		"toolkit of another version":  {map[string]string{"toolkit/include/cuda.h": cuda13, "toolkit/include/cuda_fp16.h": header}, ""},
		"packages":                    {map[string]string{"venv/lib/python3.12/site-packages/nvidia/cuda_runtime/include/cuda_fp16.h": header, "venv/lib/python3.12/site-packages/nvidia/cuda_cccl/include/cuda/std/x": ""}, "venv/lib/python3.12/site-packages/nvidia/cuda_runtime/include"},
		"the toolkit before packages": {map[string]string{"toolkit/include/cuda_fp16.h": header, "venv/lib/python3.12/site-packages/nvidia/cuda_runtime/include/cuda_fp16.h": header}, "toolkit/include"},
		"CCCL elsewhere":              {map[string]string{"toolkit/include/cuda_fp16.h": "#include <nv/target>\n" + header, "venv/lib/python3.12/site-packages/nvidia/cuda_cccl/include/nv/target": "\n"}, "toolkit/include"},
		"something else's include":    {map[string]string{"venv/include/cuda_fp16.h": header}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := os.Getenv("TEST_HEADERS")
			if drivertest.InParent() {
				dir = drivertest.TempDir(t)
				for file, text := range test.files {
					require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
					require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
				}
			}
			drivertest.InChild(t, func(t *testing.T) {
				needsNVRTC(t, "12.9")
				o := own(t)
				i, err := Compile(context.Background(), half, o)
				if test.found == "" {
					var e *Error
					require.ErrorAs(t, err, &e)
					assert.Contains(t, e.Hint, "tools/libs get nvrtc")
					return
				}
				require.NoError(t, err)
				require.Equal(t, 1, images(t, o))
				c, err := loaded()
				require.NoError(t, err)
				folders, err := (&cudaHeaders{compiler: c}).find("cuda_fp16.h")
				require.NoError(t, err)
				assert.Contains(t, folders, filepath.Join(dir, test.found))

				// The headers of a folder of IncludePaths count with their sizes and times.
				o.IncludePaths = []string{filepath.Join(dir, test.found)}
				for n := range 2 {
					file := filepath.Join(dir, test.found, "cuda_fp16.h")
					require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Duration(n)*time.Second)))
					again, err := Compile(context.Background(), half, o)
					require.NoError(t, err)
					assert.Equal(t, string(i.Code), string(again.Code))
					assert.Equal(t, 2+n, images(t, o))
				}
			}, "TEST_HEADERS="+dir, "LD_LIBRARY_PATH=", "CUDA_HOME="+dir+"/toolkit", "CUDA_PATH=", "VIRTUAL_ENV="+dir+"/venv", "CONDA_PREFIX=")
		})
	}
}

// TestHeadersRefused: where the headers in NVRTC cannot be unpacked, the error says so.
func TestHeadersRefused(t *testing.T) {
	needsNVRTC(t, "")
	o := own(t)
	c, err := loaded()
	require.NoError(t, err)
	if !newer(c.version, "13.2") {
		t.Skip("needs NVRTC 13.3, which has headers in itself")
	}
	require.NoError(t, os.MkdirAll(o.CacheFolder, 0o700))
	file := filepath.Join(o.CacheFolder, "headers-"+c.version+"-"+c.identity[:8])
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Compile(context.Background(), "#include <nowhere.h>", o)
	assert.ErrorContains(t, err, "cannot be unpacked to "+file)
	assert.NotErrorIs(t, err, errors.ErrUnsupported)
}
