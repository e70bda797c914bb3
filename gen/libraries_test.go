package main

import (
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/parse"
)

// library is a real library that make libraries got: one of an API and a version of CUDA.
func library(t *testing.T, api, version string) string {
	t.Helper()
	name := map[string]string{
		"runtime": "libcudart", "nvrtc": "libnvrtc", "nvjitlink": "libnvJitLink", "nccl": "libnccl",
		"cublas": "libcublas", "cublaslt": "libcublasLt", "cufft": "libcufft", "curand": "libcurand", "cupti_activity": "libcupti",
	}[api]
	folder := name
	if api == "cublaslt" {
		folder = "libcublas" // of one wheel
	}
	files, err := filepath.Glob(filepath.Join(repository(t), ".cache", folder, version, name+".so.*"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skipf("no %s of CUDA %s: make libraries gets it", name, version)
	}
	return files[0]
}

// TestLibrariesExport: every function that we read from a header is exported by
// NVIDIA's library of the same version.
func TestLibrariesExport(t *testing.T) {
	for _, row := range []struct{ api, version string }{
		{"runtime", "11.8"}, {"runtime", "12.4"}, {"runtime", "12.9"}, {"runtime", "13.0"}, {"runtime", "13.5"},
		{"nvrtc", "12.9"}, {"nvrtc", "13.5"}, {"nvjitlink", "12.9"}, {"nvjitlink", "13.5"},
		{"nccl", "13.5"}, {"cublas", "13.5"}, {"cublaslt", "13.5"}, {"cufft", "12.9"}, {"cufft", "13.5"}, {"cupti_activity", "13.5"}, {"curand", "12.9"}, {"curand", "13.5"},
	} {
		t.Run(row.api+" "+row.version, func(t *testing.T) {
			file := library(t, row.api, row.version)
			a, err := parse.Parse(os.DirFS(fetched(t, row.version)), row.api)
			require.NoError(t, err)
			exported := exports(t, file)
			for _, f := range a.Funcs {
				assert.Containsf(t, exported, f.Symbol, "%s does not export %s", filepath.Base(file), f.Symbol)
			}
			t.Logf("%d functions", len(a.Funcs))
		})
	}
}

// exports are the functions that a library offers to programs.
func exports(t *testing.T, file string) map[string]bool {
	t.Helper()
	lib, err := elf.Open(file)
	require.NoError(t, err)
	defer lib.Close()
	symbols, err := lib.DynamicSymbols()
	require.NoError(t, err)
	exported := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			exported[s.Name] = true
		}
	}
	return exported
}

// TestRuntime118 uses a package of the oldest runtime, which we do not publish,
// with its real library.
func TestRuntime118(t *testing.T) {
	library := library(t, "runtime", "11.8")
	fetched(t, "11.8")
	dir := userModule(t, map[string]string{
		"main.go": `package main

import (
	"fmt"
	"os"

	"example.com/user/cudart"
)

func main() {
	if err := cudart.Open(os.Args[1]); err != nil {
		fmt.Println(err)
		return
	}
	missing, err := cudart.Missing()
	var n int32
	fmt.Println(len(missing), err, cudart.CudaGetDeviceCount(&n))
}
`,
	})
	require.NoError(t, run([]string{"-cuda", "11.8", "-api", "runtime", "-out", filepath.Join(dir, "cudart"), "-package", "cudart"}, io.Discard))
	assert.Regexp(t, `^0 <nil> (<nil>|cudaErrorNoDevice: .*|cudaErrorInsufficientDriver: .*)\n$`, runs(t, dir, library))
}
