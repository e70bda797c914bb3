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
	Also     []Also         // further headers of it, each of which an include folder may lack
	Apart    bool           // its versions do not follow CUDA's, so that no CUDA version introduced a function
	Own      []string       // the headers whose functions, constants and types are bound, nil for all; of others only types that these use
	Uses     []string       // the APIs whose types this one takes from their packages; of one that is bound on request only if the user says where its package is
	Before   []string       // headers of C or of other systems that its headers need and do not include
	Internal string         // the macro that makes the header declare every exported symbol, "" for __CUDA_API_VERSION_INTERNAL
	Typedefs string         // the one of Headers that tells the version of each of its functions, "" for none
	Inline   bool           // functions that the header defines are bound: the library exports them too
	Prefix   string         // that each function begins with
	Skip     *regexp.Regexp // functions that are not bound, nil for none
	Only     *regexp.Regexp // the functions, types and constants of Own's headers that are bound, nil for all; what these use is bound, too
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
	Fetch    string         // the library whose headers package headers fetches on request, "" for those of every release
	Release  string         // the version of headers that do not come with CUDA's
	Callback string         // on which thread it calls the callbacks that no quirk is about
	Library  Library

	// CPlusPlus is a line, and the start of the next, under which the header declares for C++
	// alone what C can call too: functions with types such as __half. Its last group stays.
	CPlusPlus *regexp.Regexp

	At map[string]string `json:"-"` // import paths of packages with types of Uses, by API, in place of published ones
}

// Also is a header of functions that share graphics or a tool with another system.
type Also struct {
	Header   string
	Typedefs string // the header that tells the version of each of its functions, "" for none
}

// Library says where an API's library is found and how it is told from others.
// In the texts {major} is CUDA's major version, and {so} the library's.
type Library struct {
	What    string            // for messages
	Names   []string          // what the loader is asked for, in this order
	SO      map[string]string // {so} where it is not {major}, by {major}
	Subdirs []string          // where it lies below toolkits, site-packages and folders that a program names; none if only the system's loader knows
	Cache   string            // how tools/libs calls it, "" if that has none
	Version string            // the function that tells its version, as an int such as 13050
	Pair    bool              // it tells major and minor as two ints
	Form    string            // how else it tells it: "property" by cudaDataType's libraryPropertyType, "parts" as 23203 for 2.32.3, "size" as that in a size_t result, "none" for not at all
	Majors  bool              // a package is for one major version alone
	From    map[string]int    // the versions from which functions take the parameters that they have now
	Stub    int               // what functions of the toolkit's stub return, 0 if there is none
	Beside  []string          // patterns of files that it opens by name, which may lie beside it
	Missing string            // what to do where there is none
	Windows Windows           // the same on Windows
}

// Windows says where an API's library is found on Windows.
type Windows struct {
	Names   []string // of the file; none: the name of the API
	Subdirs []string // where it lies below toolkits, site-packages and folders that a program names
	Beside  []string // patterns of files that it opens by name, which may lie beside it
	Missing string   // what to do where there is none, "" for what Complete says
}

// Rows are all libraries.
var Rows = []*Row{
	{
		API: "driver", Title: "the CUDA driver API",
		Headers: []string{"cuda.h", "cudaTypedefs.h"}, Typedefs: "cudaTypedefs.h",
		Also: []Also{
			{"cudaProfiler.h", "cudaProfilerTypedefs.h"}, {"cudaGL.h", "cudaGLTypedefs.h"},
			{"cudaEGL.h", "cudaEGLTypedefs.h"}, {"cudaVDPAU.h", "cudaVDPAUTypedefs.h"},
		},
		Before: []string{"vdpau/vdpau.h"},
		Prefix: "cu", Status: "CUresult", Success: "CUDA_SUCCESS", Example: "CUDA_ERROR_OUT_OF_MEMORY",
		Stream: "CUstream", OwnQueue: "CU_STREAM_PER_THREAD",
		Manual: "https://docs.nvidia.com/cuda/cuda-driver-api/group__{group}.html", Other: "runtime", Package: "driver", Versions: []string{"13.5"},
		Library: Library{
			What:    "the CUDA driver",
			Names:   []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"},
			Version: "cuDriverGetVersion",
			Stub:    34,
			Missing: "install NVIDIA's driver (a container must be started with access to the GPUs), or set LD_LIBRARY_PATH to the directory of libcuda.so.1",
			Windows: Windows{
				Names:   []string{"nvcuda.dll"},
				Missing: "install NVIDIA's driver",
			},
		},
	},
	{
		API: "runtime", Title: "the CUDA runtime API",
		Headers: []string{"cuda_runtime_api.h"},
		Also:    []Also{{Header: "cuda_profiler_api.h"}, {Header: "cuda_gl_interop.h"}, {Header: "cuda_egl_interop.h"}, {Header: "cuda_vdpau_interop.h"}},
		Before:  []string{"GL/gl.h"},
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
			Cache:   "cudart",
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get -version {major} cudart, or install the CUDA runtime {major}, or set LD_LIBRARY_PATH to the directory of libcudart.so.{so}",
			Windows: Windows{
				Names:   []string{"cudart64_{major}.dll", "cudart64_{major}0.dll"}, // the second of CUDA 11
				Subdirs: []string{"nvidia/cu{major}/bin/x86_64", "nvidia/cuda_runtime/bin", "bin/x64", "bin"},
				Missing: "install the CUDA runtime {major}, or name the directory of cudart64_{major}.dll in {package}.Open",
			},
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
			Cache:   "nvrtc",
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get nvrtc, or install the CUDA toolkit or the Python package nvidia-cuda-nvrtc, or name the directory of NVRTC in {package}.Open",
			Windows: Windows{
				Names:   []string{"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"},
				Subdirs: []string{"nvidia/cu13/bin/x86_64", "nvidia/cuda_nvrtc/bin", "bin/x64", "bin"},
				Beside:  []string{"nvrtc-builtins64_*.dll"},
				Missing: "install the CUDA toolkit or the Python package nvidia-cuda-nvrtc, or name the directory of NVRTC in {package}.Open",
			},
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
			Cache:   "nvjitlink",
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get nvjitlink, or install the CUDA toolkit or the Python package nvidia-nvjitlink, or name the directory of nvJitLink in {package}.Open",
			Windows: Windows{
				Names:   []string{"nvJitLink_130_0.dll", "nvJitLink_120_0.dll"},
				Subdirs: []string{"nvidia/cu13/bin/x86_64", "nvidia/nvjitlink/bin", "bin/x64", "bin"},
				Missing: "install the CUDA toolkit or the Python package nvidia-nvjitlink, or name the directory of nvJitLink in {package}.Open",
			},
		},
	},
	{
		API: "library_types", Title: "the types that CUDA's libraries share",
		Headers: []string{"library_types.h"}, Own: []string{"library_types.h"},
		Prefix: "cuda", Manual: "https://docs.nvidia.com/cuda", Package: "librarytypes", Versions: []string{"13.5"},
	},
	{
		API: "nccl", Title: "NCCL, collective communication between GPUs",
		Headers: []string{"nccl.h"}, Own: []string{"nccl.h"}, Uses: []string{"driver"}, Skip: regexp.MustCompile(`^pnccl`), Apart: true,
		Prefix: "nccl", Status: "ncclResult_t", Success: "ncclSuccess", Example: "NcclUnhandledCudaError", Stream: "cudaStream_t",
		Manual: "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html", Other: "driver", Package: "nccl", Versions: []string{"13.5"},
		Library: Library{
			What:    "NCCL",
			Names:   []string{"libnccl.so.2"},
			Subdirs: []string{"nvidia/nccl/lib", "lib64", "lib"},
			Cache:   "nccl",
			Version: "ncclGetVersion",
			Form:    "parts",
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get nccl, or install the Python package nvidia-nccl-cu13 or NVIDIA's package libnccl2, or name the directory of NCCL in {package}.Open",
		},
	},
	{
		API: "cublas", Title: "cuBLAS, linear algebra with dense vectors and matrices",
		Headers: []string{"cublas_v2.h"}, Own: []string{"cublas_v2.h", "cublas_api.h"}, Uses: []string{"driver", "library_types"},
		CPlusPlus: regexp.MustCompile(`#if defined\(__cplusplus\)(\s+(?:CUBLASAPI )?cublasStatus_t)`),
		Prefix:    "cublas", Status: "cublasStatus_t", Success: "CUBLAS_STATUS_SUCCESS", Example: "CUBLAS_STATUS_NOT_SUPPORTED", Stream: "cudaStream_t",
		Manual: "https://docs.nvidia.com/cuda/cublas", Other: "driver", Package: "cublas", Versions: []string{"13.5"},
		Library: Library{
			What:    "cuBLAS",
			Names:   []string{"libcublas.so.13", "libcublas.so.12"},
			Subdirs: []string{"nvidia/cu13/lib", "nvidia/cublas/lib", "lib64", "lib"},
			Cache:   "cublas",
			Version: "cublasGetProperty",
			Form:    "property",
			Beside:  []string{"libcublasLt.so.*"},
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get cublas, or install the CUDA toolkit or the Python package nvidia-cublas, or name the directory of cuBLAS in {package}.Open",
			Windows: Windows{
				Names:   []string{"cublas64_13.dll", "cublas64_12.dll"},
				Subdirs: []string{"nvidia/cu13/bin/x86_64", "nvidia/cublas/bin", "bin/x64", "bin"},
				Missing: "install the CUDA toolkit or the Python package nvidia-cublas, or name the directory of cuBLAS in {package}.Open",
			},
		},
	},
	{
		API: "cublaslt", Title: "cuBLASLt, matrix multiplication with chosen algorithms and fused operations",
		Headers: []string{"cublasLt.h"}, Own: []string{"cublasLt.h"}, Uses: []string{"driver", "library_types", "cublas"},
		// It is declared, but no library exports it.
		Skip:   regexp.MustCompile(`^cublasLtDisableCpuInstructionsSetMask$`),
		Prefix: "cublasLt", Status: "cublasStatus_t", Success: "CUBLAS_STATUS_SUCCESS", Example: "cublas.CUBLAS_STATUS_NOT_SUPPORTED", Stream: "cudaStream_t",
		Manual: "https://docs.nvidia.com/cuda/cublas", Other: "driver", Package: "cublaslt", Versions: []string{"13.5"},
		Library: Library{
			What:    "cuBLASLt",
			Names:   []string{"libcublasLt.so.13", "libcublasLt.so.12"},
			Subdirs: []string{"nvidia/cu13/lib", "nvidia/cublas/lib", "lib64", "lib"},
			Cache:   "cublas",
			Version: "cublasLtGetProperty",
			Form:    "property",
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get cublas, or install the CUDA toolkit or the Python package nvidia-cublas, or name the directory of cuBLAS in {package}.Open",
			Windows: Windows{
				Names:   []string{"cublasLt64_13.dll", "cublasLt64_12.dll"},
				Subdirs: []string{"nvidia/cu13/bin/x86_64", "nvidia/cublas/bin", "bin/x64", "bin"},
				Missing: "install the CUDA toolkit or the Python package nvidia-cublas, or name the directory of cuBLASLt in {package}.Open",
			},
		},
	},
	{
		API: "cufft", Title: "cuFFT, fast Fourier transforms",
		Headers: []string{"cufftXt.h"}, Own: []string{"cufft.h", "cufftXt.h", "cudalibxt.h"}, Uses: []string{"driver", "library_types"},
		Skip:   regexp.MustCompile(`^__cufft`),
		Prefix: "cufft", Status: "cufftResult_t", Success: "CUFFT_SUCCESS", Example: "CUFFT_INVALID_SIZE", Stream: "cudaStream_t",
		Manual: "https://docs.nvidia.com/cuda/cufft", Other: "driver", Package: "cufft", Versions: []string{"13.5"},
		Library: Library{
			What:    "cuFFT",
			Names:   []string{"libcufft.so.12", "libcufft.so.11"},
			From:    map[string]int{"cufftXtSetJITCallback": 120000},
			Subdirs: []string{"nvidia/cu13/lib", "nvidia/cufft/lib", "lib64", "lib"},
			Cache:   "cufft",
			Version: "cufftGetProperty",
			Form:    "property",
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get cufft, or install the CUDA toolkit or the Python package nvidia-cufft, or name the directory of cuFFT in {package}.Open",
			Windows: Windows{
				Names:   []string{"cufft64_12.dll", "cufft64_11.dll"},
				Subdirs: []string{"nvidia/cu13/bin/x86_64", "nvidia/cufft/bin", "bin/x64", "bin"},
				Missing: "install the CUDA toolkit or the Python package nvidia-cufft, or name the directory of cuFFT in {package}.Open",
			},
		},
	},
	{
		API: "curand", Title: "cuRAND, random numbers",
		Headers: []string{"curand.h"}, Own: []string{"curand.h"}, Uses: []string{"driver", "library_types"},
		// They are declared, but no library exports them.
		Skip:   regexp.MustCompile(`^curandGenerateBinomial(Method)?$`),
		Prefix: "curand", Status: "curandStatus", Success: "CURAND_STATUS_SUCCESS", Example: "CURAND_STATUS_OUT_OF_RANGE", Stream: "cudaStream_t",
		Manual: "https://docs.nvidia.com/cuda/curand", Other: "driver", Package: "curand", Versions: []string{"13.5"},
		Library: Library{
			What:    "cuRAND",
			Names:   []string{"libcurand.so.10"},
			Subdirs: []string{"nvidia/cu13/lib", "nvidia/curand/lib", "lib64", "lib"},
			Cache:   "curand",
			Version: "curandGetProperty",
			Form:    "property",
			Beside:  []string{"libcudart.so.*"},
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get curand, or install the CUDA toolkit or the Python package nvidia-curand, or name the directory of cuRAND in {package}.Open",
			Windows: Windows{
				Names:   []string{"curand64_10.dll"},
				Subdirs: []string{"nvidia/cu13/bin/x86_64", "nvidia/curand/bin", "bin/x64", "bin"},
				Missing: "install the CUDA toolkit or the Python package nvidia-curand, or name the directory of cuRAND in {package}.Open",
			},
		},
	},
	{
		// What a timeline needs. The whole library can be bound on request.
		API: "cupti_activity", Title: "CUPTI's records of what GPUs and the host did",
		Headers: []string{"cupti.h"}, Own: []string{"cupti_activity.h", "cupti_activity_deprecated.h", "cupti_callbacks.h", "cupti_result.h", "cupti_version.h"}, Uses: []string{"driver"},
		Only: regexp.MustCompile(`^(cupti(Get(Version|ErrorMessage|Timestamp|ContextId|StreamIdEx|CallbackName)|Subscribe|Unsubscribe|Finalize|SetThreadIdType|` +
			`Activity(RegisterCallbacks|Enable|Disable|EnableDriverApi|FlushAll|GetNextRecord|GetNumDroppedRecords))|` +
			`CUpti_Activity(API|Kernel9|Memcpy6|MemcpyKind|MemcpyPtoP4|Memset4|GraphTrace2|Synchronization2|SynchronizationType|Overhead3|OverheadKind))$`),
		Internal: "CUPTI_AS_PROGRAMS_SEE_IT",
		Prefix:   "cupti", Status: "CUptiResult", Success: "CUPTI_SUCCESS", Example: "CUPTI_ERROR_NOT_INITIALIZED",
		Manual: "https://docs.nvidia.com/cupti", Other: "driver", Package: "cupti", Versions: []string{"13.5"}, Fetch: "cupti",
		Library: Library{
			What:    "CUPTI",
			Names:   []string{"libcupti.so.13", "libcupti.so.12"},
			Subdirs: []string{"nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "extras/CUPTI/lib64", "lib64", "lib"},
			Cache:   "cupti",
			Version: "cuptiGetVersion",
			Form:    "none",
			Missing: "get it with go run github.com/cudabind/cudabind/tools/libs@latest get cupti, or install the CUDA toolkit or the Python package nvidia-cuda-cupti, or name the directory of CUPTI in {package}.Open",
		},
	},
	{
		API: "nvml", Title: "NVML, the management library of NVIDIA's driver",
		Headers: []string{"nvml.h"}, Own: []string{"nvml.h"}, Internal: "NVML_NO_UNVERSIONED_FUNC_DEFS",
		Prefix: "nvml", Status: "nvmlReturn_enum", Success: "NVML_SUCCESS", Example: "NVML_ERROR_NOT_SUPPORTED",
		Manual: "https://docs.nvidia.com/deploy/nvml-api", Other: "driver", Package: "nvml", Versions: []string{"13.5"},
		Library: Library{
			What:    "NVML",
			Names:   []string{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"},
			Version: "nvmlInit_v2",
			Form:    "none",
			Missing: "install NVIDIA's driver (a container must be started with access to the GPUs), or set LD_LIBRARY_PATH to the directory of libnvidia-ml.so.1",
			Windows: Windows{
				Names:   []string{"nvml.dll"},
				Missing: "install NVIDIA's driver",
			},
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

// generated is where this module's packages are.
const generated = "github.com/cudabind/cudabind/cuda/generated/"

// Shown is the text of a header with what it shows to C++ alone and C can call too.
func (r *Row) Shown(header []byte) []byte {
	if r.CPlusPlus == nil {
		return header
	}
	return r.CPlusPlus.ReplaceAll(header, []byte("#if 1$1"))
}

// Import returns the import path of the package of one of r's Uses, "" if r's package
// declares these types itself.
func (r *Row) Import(api, version string) string {
	if at := r.At[api]; at != "" {
		return at
	}
	of := RowOf(api)
	if len(of.Versions) == 0 {
		return ""
	}
	return generated + of.For(version, of.Package)
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

// IsStatus tells whether a type is the library's status type.
func (r *Row) IsStatus(d *Decl) bool {
	return r.Status != "" && (d.C == r.Status || d.Tag == r.Status)
}

// RowOf returns the row of an API, nil for an unknown one.
func RowOf(api string) *Row {
	if r := rowIn(Rows, api); r != nil {
		return r
	}
	return rowIn(Requested(), api)
}

func rowIn(rows []*Row, api string) *Row {
	if i := slices.IndexFunc(rows, func(r *Row) bool { return r.API == api }); i >= 0 {
		return rows[i]
	}
	return nil
}

// APIs returns the names of the libraries with published packages.
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
