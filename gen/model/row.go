package model

import (
	"slices"
	"strings"
)

// Row is what the generator has to be told of a library. No stage knows one by
// its name.
type Row struct {
	API      string   // how -api and the texts call it: "driver"
	Title    string   // "the CUDA driver API"
	Headers  []string // that it is read from, the one that declares it first
	Typedefs string   // the one of Headers that tells the version of each function, "" for none
	Prefix   string   // that each function begins with
	Types    string   // a pattern of further names that belong to it, "" for none
	Status   string   // the status type: its name or its tag
	Success  string   // its code for success
	Memory   string   // its code for too little memory, as Go names it
	Stream   string   // its type of streams
	ToStream string   // an example: a stream as the other API's; {major} is CUDA's major version
	OwnQueue string   // the stream that is the thread's own, as Go names it
	Manual   string   // NVIDIA's, below docs.nvidia.com/cuda
	Other    string   // the API that comments link to, "" for none
	Reading  int      // which of {driver|runtime} in a text is meant
	Package  string   // where the package is published, below cuda/generated
	Unbound  []string // majors of CUDA for which none is published
	Library  Library
}

// Library says where an API's library is found and how it is told from others.
// In the texts {major} is CUDA's major version, and {so} the library's.
type Library struct {
	What    string            // for messages
	Names   []string          // what the loader is asked for, in this order
	SO      map[string]string // {so} where it is not {major}, by {major}
	Subdirs []string          // where it lies below a folder that a program names
	Version string            // the function that tells its version
	Majors  bool              // a package is for one major version alone
	Missing string            // what to do where there is none
}

// Rows are all libraries.
var Rows = []*Row{
	{
		API: "driver", Title: "the CUDA driver API",
		Headers: []string{"cuda.h", "cudaTypedefs.h"}, Typedefs: "cudaTypedefs.h",
		Prefix: "cu", Status: "CUresult", Success: "CUDA_SUCCESS", Memory: "CUDA_ERROR_OUT_OF_MEMORY",
		Stream: "CUstream", ToStream: "cudart{major}.CudaStream_t(stream)", OwnQueue: "CU_STREAM_PER_THREAD",
		Manual: "cuda-driver-api", Other: "runtime", Package: "driver",
		Library: Library{
			What:    "the CUDA driver",
			Names:   []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"},
			Version: "cuDriverGetVersion",
			Missing: "install NVIDIA's driver (a container must be started with access to the GPUs), or set LD_LIBRARY_PATH to the directory of libcuda.so.1",
		},
	},
	{
		API: "runtime", Title: "the CUDA runtime API",
		Headers: []string{"cuda_runtime_api.h"},
		Prefix:  "cuda", Types: `^(dim3|(u?(char|short|int|long|longlong)|float|double)[1-4](_\d+a)?$)`,
		Status: "cudaError", Success: "cudaSuccess", Memory: "CudaErrorMemoryAllocation",
		Stream: "cudaStream_t", ToStream: "driver.CUstream(stream)", OwnQueue: "CudaStreamPerThread",
		Manual: "cuda-runtime-api", Other: "driver", Reading: 1, Package: "cudart{major}", Unbound: []string{"11"},
		Library: Library{
			What:    "the CUDA runtime {major}",
			Names:   []string{"libcudart.so.{so}"},
			SO:      map[string]string{"11": "11.0"},
			Subdirs: []string{"nvidia/cu{major}/lib", "nvidia/cuda_runtime/lib", "lib64", "lib"},
			Version: "cudaRuntimeGetVersion",
			Majors:  true,
			Missing: "install the CUDA runtime {major}, or set LD_LIBRARY_PATH to the directory of libcudart.so.{so}",
		},
	},
}

// RowOf returns the row of an API, nil for an unknown one.
func RowOf(api string) *Row {
	if i := slices.IndexFunc(Rows, func(r *Row) bool { return r.API == api }); i >= 0 {
		return Rows[i]
	}
	return nil
}

// APIs returns the names of all libraries.
func APIs() []string {
	var names []string
	for _, r := range Rows {
		names = append(names, r.API)
	}
	return names
}

// Major returns the major version of CUDA.
func Major(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

// For fills in a text of a row for a version of CUDA.
func (r *Row) For(version, text string) string {
	major := Major(version)
	so := r.Library.SO[major]
	if so == "" {
		so = major
	}
	return strings.NewReplacer("{major}", major, "{so}", so).Replace(text)
}
