package model

import (
	"regexp"
	"slices"
	"strings"
)

// Row is what the generator has to be told of a library. No stage knows one by
// its name.
type Row struct {
	API      string         // how -api and the texts call it: "driver"
	Title    string         // "the CUDA driver API"
	Headers  []string       // that it is read from, the one that declares it first
	Typedefs string         // the one of Headers that tells the version of each function, "" for none
	Inline   bool           // functions that the header defines are bound: the library exports them too
	Prefix   string         // that each function begins with
	Skip     *regexp.Regexp // functions that are not bound, nil for none
	Types    *regexp.Regexp // further names that belong to it, nil for none
	Status   string         // the status type: its name or its tag
	Success  string         // its code for success
	Example  string         // a code that the package comment shows, as Go names it
	Stream   string         // its type of streams
	OwnQueue string         // the stream that is the thread's own, as Go names it
	Manual   string         // NVIDIA's page of a function; {group} is its chapter
	Other    string         // the API that comments link to, "" for none
	Reading  int            // which of {driver|runtime} in a text is meant
	Package  string         // where its packages are published, below cuda/generated
	Versions []string       // of CUDA that the published packages are from, one for each major that has its own
	Library  Library
}

// Library says where an API's library is found and how it is told from others.
// In the texts {major} is CUDA's major version, and {so} the library's.
type Library struct {
	What    string            // for messages
	Names   []string          // what the loader is asked for, in this order
	SO      map[string]string // {so} where it is not {major}, by {major}
	Subdirs []string          // where it lies below a folder that a program names
	Version string            // the function that tells its version, as an int such as 13050
	Pair    bool              // it tells major and minor as two ints
	Majors  bool              // a package is for one major version alone
	Stub    int               // what functions of the toolkit's stub return, 0 if there is none
	Beside  []string          // patterns of files that it opens by name, which may lie beside it
	Missing string            // what to do where there is none
}

// Rows are all libraries.
var Rows = []*Row{
	{
		API: "driver", Title: "the CUDA driver API",
		Headers: []string{"cuda.h", "cudaTypedefs.h"}, Typedefs: "cudaTypedefs.h",
		Prefix: "cu", Status: "CUresult", Success: "CUDA_SUCCESS", Example: "CUDA_ERROR_OUT_OF_MEMORY",
		Stream: "CUstream", OwnQueue: "CU_STREAM_PER_THREAD",
		Manual: "https://docs.nvidia.com/cuda/cuda-driver-api/group__{group}.html", Other: "runtime", Package: "driver", Versions: []string{"13.5"},
		Library: Library{
			What:    "the CUDA driver",
			Names:   []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"},
			Version: "cuDriverGetVersion",
			Stub:    34,
			Missing: "install NVIDIA's driver (a container must be started with access to the GPUs), or set LD_LIBRARY_PATH to the directory of libcuda.so.1",
		},
	},
	{
		API: "runtime", Title: "the CUDA runtime API",
		Headers: []string{"cuda_runtime_api.h"},
		Prefix:  "cuda", Types: regexp.MustCompile(`^(dim3|(u?(char|short|int|long|longlong)|float|double)[1-4](_\d+a)?$)`),
		Status: "cudaError", Success: "cudaSuccess", Example: "CudaErrorMemoryAllocation",
		Stream: "cudaStream_t", OwnQueue: "CudaStreamPerThread",
		Manual: "https://docs.nvidia.com/cuda/cuda-runtime-api/group__{group}.html", Other: "driver", Reading: 1, Package: "cudart{major}", Versions: []string{"12.9", "13.5"},
		Library: Library{
			What:    "the CUDA runtime {major}",
			Names:   []string{"libcudart.so.{so}"},
			SO:      map[string]string{"11": "11.0"},
			Subdirs: []string{"nvidia/cu{major}/lib", "nvidia/cuda_runtime/lib", "lib64", "lib"},
			Version: "cudaRuntimeGetVersion",
			Majors:  true,
			Stub:    34,
			Missing: "install the CUDA runtime {major}, or set LD_LIBRARY_PATH to the directory of libcudart.so.{so}",
		},
	},
	{
		API: "nvrtc", Title: "NVRTC, the compiler for CUDA C++ at run time",
		Headers: []string{"nvrtc.h"},
		Prefix:  "nvrtc", Status: "nvrtcResult", Success: "NVRTC_SUCCESS", Example: "NVRTC_ERROR_OUT_OF_MEMORY",
		Manual: "https://docs.nvidia.com/cuda/nvrtc", Other: "driver", Package: "nvrtc", Versions: []string{"13.5"},
		Library: Library{
			What:    "NVRTC",
			Names:   []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
			Subdirs: []string{"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "lib64", "lib"},
			Version: "nvrtcVersion",
			Pair:    true,
			Beside:  []string{"libnvrtc-builtins.so*"},
			Missing: "install NVRTC, which is in the CUDA toolkit and in the Python package nvidia-cuda-nvrtc, and set LD_LIBRARY_PATH to its directory, or name that in Open",
		},
	},
	{
		API: "nvjitlink", Title: "nvJitLink, the linker for device code at run time",
		Headers: []string{"nvJitLink.h"},
		// The header's functions call symbols of one version, which other versions lack.
		Inline: true, Skip: regexp.MustCompile(`^__nvJitLink`),
		Prefix: "nvJitLink", Status: "nvJitLinkResult", Success: "NVJITLINK_SUCCESS", Example: "NVJITLINK_ERROR_MISSING_ARCH",
		Manual: "https://docs.nvidia.com/cuda/nvjitlink", Other: "driver", Package: "nvjitlink", Versions: []string{"13.5"},
		Library: Library{
			What:    "nvJitLink",
			Names:   []string{"libnvJitLink.so.13", "libnvJitLink.so.12"},
			Subdirs: []string{"nvidia/cu13/lib", "nvidia/nvjitlink/lib", "lib64", "lib"},
			Version: "nvJitLinkVersion",
			Pair:    true,
			Missing: "install nvJitLink, which is in the CUDA toolkit and in the Python package nvidia-nvjitlink, and set LD_LIBRARY_PATH to its directory, or name that in Open",
		},
	},
}

// Published is a package of this module.
type Published struct {
	Name    string // "cudart13"
	API     string
	Version string // of CUDA, whose header it is from
}

// Packages returns all packages that this module publishes.
func Packages() []Published {
	var all []Published
	for _, r := range Rows {
		for _, v := range r.Versions {
			all = append(all, Published{r.For(v, r.Package), r.API, v})
		}
	}
	return all
}

// PackageFor returns the published package for a major version of CUDA, "" if
// there is none.
func (r *Row) PackageFor(version string) string {
	name := r.For(version, r.Package)
	for _, p := range Packages() {
		if p.Name == name {
			return name
		}
	}
	return ""
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
