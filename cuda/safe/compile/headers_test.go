//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// CUDA's own headers: those in NVRTC, in a toolkit and in Python's packages.

package compile

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const half = `#include <cuda_fp16.h>
extern "C" __global__ void k(__half *v) { *v = __float2half(3); }`

const float8 = `#include <cuda_fp8.h>
extern "C" __global__ void k(__nv_fp8_e4m3 *v) { *v = __nv_fp8_e4m3(3.0f); }`

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
	}, append(withoutCUDA, "TEST_SHORT="+strconv.FormatBool(testing.Short()))...)
}

// TestHostCode: what only nvcc compiles gets an error that says what to do.
func TestHostCode(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		const kernel = "__global__ void k() {}\n"
		for name, test := range map[string]struct{ source, hint string }{
			"a host function": {kernel + "int main() {}", deviceOnly},
			"a launch":        {kernel + "__device__ void f() { k<<<1, 1>>>(); }", deviceOnly},
			"the runtime":     {kernel + "__device__ void f(int *p) { cudaMalloc(&p, 4); }", deviceOnly},
			"C++":             {"#include <vector>\n" + kernel, deviceOnly},
			"a mistake":       {kernel + "__device__ int cudaMine = no;", ""},
			"C++ for devices": {"#include <array>\n" + kernel, "array: include cuda/std/array in its place"},
		} {
			if version != "13.5" && name == "C++ for devices" {
				continue // it has no headers of CUDA in it
			}
			o := own(t)
			_, err := Compile(context.Background(), test.source, o)
			var e *Error
			require.ErrorAs(t, err, &e, name)
			assert.True(t, strings.HasSuffix(e.Hint, test.hint), "%s: %s", name, e.Hint)
			assert.Equal(t, test.hint == "", e.Hint == "", "%s: %v", name, err)
		}
	})
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
					assert.Contains(t, e.Hint, "tools/libs@latest get nvrtc")
					return
				}
				require.NoError(t, err)
				require.Equal(t, 1, images(t, o))
				c, err := loaded()
				require.NoError(t, err)
				folders := (&cudaHeaders{compiler: c}).find("cuda_fp16.h")
				assert.Contains(t, folders, filepath.Join(dir, test.found))

				// The headers of a folder of IncludePaths count with their contents.
				o.IncludePaths = []string{filepath.Join(dir, test.found)}
				file := filepath.Join(dir, test.found, "cuda_fp16.h")
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				info, err := os.Stat(file)
				require.NoError(t, err)
				n := 0
				for _, change := range []string{"7", "8"} {
					changed := strings.Replace(string(text), "return f", "return "+change, 1)
					require.NoError(t, os.WriteFile(file, []byte(changed), 0o644))
					require.NoError(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
					again, err := Compile(context.Background(), half, o)
					require.NoError(t, err)
					assert.False(t, bytes.Equal(i.Code, again.Code))
					i, n = again, images(t, o)
				}
				assert.Equal(t, 3, n)
			}, "TEST_HEADERS="+dir, "LD_LIBRARY_PATH=", "CUDA_HOME="+dir+"/toolkit", "CUDA_PATH=", "VIRTUAL_ENV="+dir+"/venv", "CONDA_PREFIX=")
		})
	}
}

// TestHeadersOfSystem: CUDA's headers may lie among those of C, as in /usr/include, which NVRTC cannot compile.
func TestHeadersOfSystem(t *testing.T) {
	const source = `#include <stdint.h>
#include <cuda_fp16.h>
extern "C" __global__ void k(__half *v) { *v = __float2half(3); uint32_t n = 1; v[n] = *v; }`
	for name, lib := range map[string]string{"usual": "lib", "of 64 bits": "lib64", "Debian": "lib/x86_64-linux-gnu"} {
		t.Run(name, func(t *testing.T) {
			dir := os.Getenv("TEST_HEADERS")
			if drivertest.InParent() {
				f := tree{t, drivertest.TempDir(t)}
				dir = f.dir
				f.write("include/cuda_fp16.h", "#pragma once\ntypedef short __half;\n__device__ inline short __float2half(float f) { return f; }\n")
				f.write("include/stdint.h", "#error C's\n")
				f.write("include/features.h", "#error C's\n")
				f.write("mine/stdint.h", "typedef unsigned uint32_t;\n__device__ int mine;\n")
			}
			drivertest.InChild(t, func(t *testing.T) {
				f := tree{t, dir}
				from := fetched(t, "libnvrtc", "12.9")
				entries, err := os.ReadDir(from)
				require.NoError(t, err)
				f.write(lib+"/x", "")
				for _, e := range entries {
					f.link(filepath.Join(from, e.Name()), filepath.Join(lib, e.Name()))
				}
				require.NoError(t, nvrtc.Open(filepath.Join(dir, lib)))
				o := own(t)
				_, err = Compile(context.Background(), source, o)
				require.NoError(t, err)
				assert.Equal(t, 1, images(t, o))
				o.IncludePaths = []string{filepath.Join(dir, "mine")}
				i, err := Compile(context.Background(), source, o)
				require.NoError(t, err)
				assert.Contains(t, string(i.Code), "mine", "a folder of the caller comes first")
			}, append(withoutCUDA, "TEST_HEADERS="+dir)...)
		})
	}
}

// TestHeadersRefused: where the headers in NVRTC cannot be unpacked, the error says so. A source
// that does without the header compiles.
func TestHeadersRefused(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		t.Setenv("XDG_CACHE_HOME", "")
		require.NoError(t, os.Chmod(os.Getenv("TMPDIR"), 0o777))
		_, err := Compile(context.Background(), "#include <nowhere.h>", Options{Arch: "sm_90"})
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Contains(t, e.Hint, "the headers of NVRTC cannot be unpacked: permission denied")
		assert.NotErrorIs(t, err, errors.ErrUnsupported)
		_, err = Compile(context.Background(), "#ifndef __CUDACC_RTC__\n#include <cstdint>\n#endif\n"+twice, Options{Arch: "sm_90"})
		assert.NoError(t, err)
	}, append(withoutCUDA, "HOME=", "TMPDIR="+drivertest.TempDir(t))...)
}

// withoutCUDA is an environment in which no toolkit is found.
var withoutCUDA = []string{"LD_LIBRARY_PATH=", "CUDA_HOME=", "CUDA_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX="}

// TestHeadersWithoutCache: without a folder for the cache, or one that cannot take them, CUDA's
// headers are in a temporary folder for as long as the compilation.
func TestHeadersWithoutCache(t *testing.T) {
	if testing.Short() {
		t.Skip("it unpacks NVRTC's headers again and again: make test-race")
	}
	for name, env := range map[string]string{"no home": "", "nothing can be made": "/proc/self"} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				needsNVRTC(t, "13.5")
				t.Setenv("XDG_CACHE_HOME", env)
				for range 2 {
					_, err := Compile(context.Background(), half, Options{Arch: "sm_90"})
					require.NoError(t, err)
				}
				_, err := Compile(context.Background(), "#include <nowhere.h>", Options{Arch: "sm_90"})
				assert.ErrorContains(t, err, "CUDA's headers were looked for in NVRTC itself; name other folders in Options.IncludePaths")

				o := own(t) // a folder in the place of which there is a file
				c, err := loaded()
				require.NoError(t, err)
				require.NoError(t, os.MkdirAll(o.CacheFolder, 0o700))
				folder, err := headersFolder(o.CacheFolder, c.version)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(folder, nil, 0o600))
				_, err = Compile(context.Background(), half, o)
				require.NoError(t, err)
				assert.Zero(t, images(t, o), "its flags name a folder that is gone")

				left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "cudabind-headers-*"))
				require.NoError(t, err)
				assert.Empty(t, left)
			}, append(withoutCUDA, "HOME=", "TMPDIR="+drivertest.TempDir(t))...)
		})
	}
}

// TestHeadersMended: headers that something has removed or spoilt are unpacked again.
func TestHeadersMended(t *testing.T) {
	if testing.Short() {
		t.Skip("it unpacks NVRTC's headers again and again: make test-race")
	}
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		o := own(t)
		want, err := Compile(context.Background(), float8, o)
		require.NoError(t, err)
		found, err := filepath.Glob(filepath.Join(o.CacheFolder, "headers-13.5-*"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		in := func(name string) string { return filepath.Join(found[0], name) }
		require.NoError(t, os.WriteFile(in("mine.h"), []byte("mine"), 0o600))
		o.NoCache = true
		left := map[string]bool{"a folder": true, "the marker": true} // it compiles: NVRTC unpacks without the marker, and crt is not needed
		for name, spoil := range map[string]func() error{
			"one is missing":  func() error { return os.Remove(in("cuda_fp8.h")) },
			"one it includes": func() error { return os.Remove(in("cuda_fp8.hpp")) },
			"one is cut":      func() error { return os.Truncate(in("cuda_fp8.h"), 100) },
			"a folder":        func() error { return os.RemoveAll(in("crt")) },
			"all but the marker": func() error {
				return errors.Join(os.Remove(in(contents)), os.RemoveAll(in("cccl")), os.Remove(in("cuda_fp8.h")))
			},
			"the marker": func() error { return errors.Join(os.Remove(in(marker)), os.Remove(in("cuda_fp8.h"))) },
			"all":        func() error { return os.RemoveAll(found[0]) },
		} {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, spoil())
				got, err := Compile(context.Background(), float8, o)
				require.NoError(t, err)
				assert.True(t, bytes.Equal(want.Code, got.Code))
				list, err := os.ReadFile(in(contents))
				require.NoError(t, err)
				assert.True(t, left[name] || whole(found[0], string(list)))
				if name != "all" {
					assert.FileExists(t, in("mine.h"))
				} else {
					require.NoError(t, os.WriteFile(in("mine.h"), []byte("mine"), 0o600))
				}
			})
		}
		_, err = Compile(context.Background(), float8+"error", o) // mends what is left
		require.Error(t, err)
		before, err := os.Stat(in("cuda_fp8.h"))
		require.NoError(t, err)
		_, err = Compile(context.Background(), float8+"error", o)
		require.Error(t, err)
		after, err := os.Stat(in("cuda_fp8.h"))
		require.NoError(t, err)
		assert.Equal(t, before.ModTime(), after.ModTime(), "whole headers are left as they are")
	}, withoutCUDA...)
}

// TestHeadersOnce: an NVRTC that was installed again finds the headers that it has unpacked before.
func TestHeadersOnce(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		c, err := loaded()
		require.NoError(t, err)
		dir := drivertest.TempDir(t)
		for _, identity := range []string{c.identity, strings.Repeat("0", len(c.identity))} {
			h := &cudaHeaders{compiler: &compiler{c.file, c.version, identity}, folder: dir}
			folders, err := h.unpacked()
			require.NoError(t, err)
			assert.FileExists(t, filepath.Join(folders[0], "cuda_fp16.h"))
		}
		found, err := filepath.Glob(filepath.Join(dir, "headers-13.5-*"))
		require.NoError(t, err)
		assert.Len(t, found, 1)
	}, withoutCUDA...)
}

// TestHeadersAtOnce: any number of calls unpack or mend the headers at once.
func TestHeadersAtOnce(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		o := own(t)
		for range 2 {
			var all sync.WaitGroup
			for n := range 8 {
				all.Go(func() {
					_, err := Compile(context.Background(), float8+strings.Repeat("\n", n), o)
					assert.NoError(t, err)
				})
			}
			all.Wait()
			found, err := filepath.Glob(filepath.Join(o.CacheFolder, "headers-13.5-*", "cuda_fp8.h"))
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.NoError(t, os.Remove(found[0]))
		}
	}, withoutCUDA...)
}

// TestHeadersStale: an image depends on files of the user that CUDA's headers can name, and on
// CUDA's headers.
func TestHeadersStale(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		f, o := tree{t, drivertest.TempDir(t)}, own(t)
		o.IncludePaths = []string{f.dir}
		source := "#include <cuda/std/cstdint>\nextern \"C\" __global__ void k(cuda::std::int32_t *p) { *p = 1; }"
		check := func(fails bool) {
			t.Helper()
			cached, err := Compile(context.Background(), source, o)
			fresh := o
			fresh.NoCache = true
			now, nowErr := Compile(context.Background(), source, fresh)
			assert.Equal(t, fails, nowErr != nil)
			assert.Equal(t, fails, err != nil)
			if err == nil && nowErr == nil {
				assert.True(t, bytes.Equal(now.Code, cached.Code))
			}
		}
		check(false)
		require.Equal(t, 1, images(t, o))
		f.write("cuda/std/other", "#error\n")
		check(false)
		f.write("cuda/std/climits", "#error mine\n")
		check(true)
		f.remove("cuda/std/climits")
		check(false)
		found, err := filepath.Glob(filepath.Join(o.CacheFolder, "headers-13.5-*", "cccl", "cuda", "std", "cstdint"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		text, err := os.ReadFile(found[0])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(found[0], append(text, "\n__device__ int more;\n"...), 0o600))
		n := images(t, o)
		check(false)
		assert.Equal(t, n+1, images(t, o))
	}, withoutCUDA...)
}

// TestHeadersByMacro: headers of CUDA name others by macros. Their folders count as a whole, and
// those of the user must not have what is in them.
func TestHeadersByMacro(t *testing.T) {
	dir := os.Getenv("TEST_HEADERS")
	if drivertest.InParent() {
		dir = drivertest.TempDir(t)
	}
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "12.9")
		f, o := tree{t, dir}, own(t)
		f.write("include/cuda_fp16.h", "#define H <impl/a.h>\n#include H\n")
		f.write("include/impl/a.h", "#define V 1\n")
		f.write("mine/other.h", "")
		o.IncludePaths = []string{filepath.Join(dir, "mine")}
		check := func(stored int) {
			t.Helper()
			source := "#include <cuda_fp16.h>" + value
			cached, err := Compile(context.Background(), source, o)
			require.NoError(t, err)
			assert.Equal(t, stored, images(t, o))
			fresh := o
			fresh.NoCache = true
			now, err := Compile(context.Background(), source, fresh)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(now.Code, cached.Code))
		}
		check(1)
		check(1)
		file := filepath.Join(dir, "include/impl/a.h")
		info, err := os.Stat(file)
		require.NoError(t, err)
		f.write("include/impl/a.h", "#define V 7\n")
		require.NoError(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
		check(2)
		f.write("mine/impl/a.h", "#define V 8\n")
		check(2)
		f.write("mine/impl/a.h", "#define V 9\n")
		check(2)
		o.IncludePaths = []string{filepath.Join(dir, "include")} // CUDA's own
		check(3)
	}, append(withoutCUDA, "TEST_HEADERS="+dir, "CUDA_HOME="+dir)...)
}

// TestByteOrderMarks: that of a source and of a header in memory is removed, and that of a header
// on disk is named.
func TestByteOrderMarks(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		f, o := tree{t, drivertest.TempDir(t)}, own(t)
		o.File, o.IncludePaths = "-k.cu", []string{f.dir}
		o.Headers = []fs.FS{fstest.MapFS{"a.h": {Data: []byte("\ufeff#define A 1\n")}}}
		_, err := Compile(context.Background(), "\ufeff#include \"a.h\"\n__global__ void k(int *p) { *p = A; }", o)
		assert.NoError(t, err)
		f.write("b.h", "\ufeff#define A 1\n")
		_, err = Compile(context.Background(), "#include <b.h>\n", o)
		assert.ErrorContains(t, err, f.dir+"/b.h begins with a byte order mark")
		f.write("c.h", "error\n")
		_, err = Compile(context.Background(), "#include <c.h>\n// #include <b.h>\n", o)
		assert.Error(t, err)
		assert.NotContains(t, err.Error(), "byte order mark")
	})
}
