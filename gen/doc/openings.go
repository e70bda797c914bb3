package doc

import (
	"embed"
	"path"
	"strings"
	"sync"
)

// An opening is what the package comment says of one library alone.
type opening struct {
	purpose string
	start   string
	heading string
	rules   []string // of threads, contexts and memory
	late    string   // of errors that come late, with a space in front
	earlier bool     // functions return errors of work that was enqueued earlier
	version string
	unbound string // what to use in place of what is not bound, and what only C++ has
}

const (
	handles    = "Any goroutine may use a handle. A handle is a number and keeps nothing alive. Memory that CUDA uses after a call has returned, as asynchronous copies do, must be pinned memory of CUDA, C memory, or Go memory that a runtime.Pinner pins until the work is done. A call that blocks holds an OS thread."
	mixing     = "A program may mix driver and runtime: the runtime works in the devices' primary contexts, and both APIs share streams, events, graphs and device pointers. A conversion is enough, as in "
	backs      = "A callback that CUDA runs on a thread of its own may be a Go function exported to C. A callback that may run on the calling thread must not; the comments say which."
	late       = " A call may also return the error of earlier work, which fails on the device after the call that enqueued it has returned. After a fault every call of the process fails."
	afterwards = " If work fails on the device, a later call returns the error, such as the call that synchronizes with the stream. After a fault every call of the process fails."
	streams    = "Contexts, threads and memory"
	strs       = "C strings are the address of their first byte and end with a zero byte. A list of strings is Go memory that holds addresses: pin the strings with a runtime.Pinner until the call returns."
)

var openings = map[string]opening{
	"driver": {
		start:   "Call [CuInit] first, then [CuDeviceGetCount] and [CuDeviceGet]; [CuDevicePrimaryCtxRetain] returns the context that other libraries use too, and [CuStreamCreate] creates a stream in which to enqueue work.",
		heading: streams,
		rules: []string{
			"CUDA's current context belongs to the OS thread, and goroutines move from thread to thread. Around calls that need a current context, lock the goroutine with runtime.LockOSThread, make the context current with [CuCtxSetCurrent], and afterwards restore the previous context.",
			mixing + "cudart{major}.CudaStream_t(stream).", handles, backs,
		},
		late:    late,
		earlier: true,
		version: "One package serves every driver since CUDA 11.8: no function was ever removed or changed. Functions are named after the symbols they call; a plain name such as [CuCtxCreate] calls the symbol in its comment. It keeps this meaning in later versions of a package that is generated with -frozen, as cudabind's own are.",
		unbound: "For programs that are compiled for per-thread default streams the header defines cuGetProcAddress_v2_ptsz: call [CuGetProcAddress_v2] with [CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM].",
	},
	"runtime": {
		start:   "Begin with [CudaGetDeviceCount] and [CudaSetDevice]; [CudaStreamCreate] creates a stream in which to enqueue work. The runtime initializes a device's primary context at the first call that needs it.",
		heading: streams,
		rules: []string{
			"CUDA's current device belongs to the OS thread, and goroutines move from thread to thread. Lock the goroutine with runtime.LockOSThread before [CudaSetDevice], and afterwards restore the previous device.",
			mixing + "driver.CUstream(stream).", handles, backs,
		},
		late:    late,
		earlier: true,
		version: "Each major version of the runtime has a package of its own, since the same names have different prototypes: this package loads the library of CUDA {major} only.",
	},
	"nvrtc": {
		start:   "[NvrtcCreateProgram] takes source, [NvrtcCompileProgram] compiles it, and [NvrtcGetCUBIN] or [NvrtcGetPTX] returns an image for package driver or package safe to load. Neither a GPU nor a driver is needed.",
		heading: "Threads and memory",
		rules: []string{
			"Any goroutine may compile, and several may at once, each with a program of its own. One program must not be used by two calls at once. A call that compiles holds an OS thread for as long as that takes.",
			strs,
		},
		version: "One package serves every NVRTC since CUDA 11.8. The version of NVRTC decides which GPUs it compiles for and which language it knows; what it compiles to machine code runs with any driver of the same major version or a later one.",
		unbound: "nvrtcGetTypeName is a C++ template that spells the name of a type: pass the name as text.",
	},
	"nvjitlink": {
		start:   "[NvJitLinkCreate] begins with the target GPU, [NvJitLinkAddData] adds LTO IR, PTX, cubins, objects or libraries, [NvJitLinkComplete] links them, and [NvJitLinkGetLinkedCubin] returns an image for package driver or package safe to load. Neither a GPU nor a driver is needed.",
		heading: "Threads and memory",
		rules: []string{
			"Any goroutine may link, and several may at once, each with a handle of its own. One handle must not be used by two calls at once. A call that links holds an OS thread for as long as that takes.",
			strs,
		},
		version: "One package serves every nvJitLink since CUDA 12.3: earlier ones export no plain names. A library links LTO IR of its own version and earlier ones of the same major version.",
	},
	"library_types": {
		purpose: "Functions of several libraries take these types: [CudaDataType] is what the elements of a vector or matrix are, such as [CUDA_R_32F], and [LibraryPropertyType] the part of a version that a function such as cublasGetProperty is asked for. The [CudaEmulationStrategy] and the types beside it say how a library may compute one precision by another.",
	},
	"nccl": {
		purpose: "NCCL exchanges data between GPUs: all-reduce, broadcast, all-gather and others, and messages between two of them, within a host over NVLink, PCIe and shared memory, and between hosts over the network. Package collective in cuda/safe, which is built on this one, serves any goroutine and ends what a lost rank would stop.",
		start:   "[NcclGetUniqueId] makes an identifier in one process, the program sends it to all, and [NcclCommInitRank] joins one GPU as one rank; [NcclCommInitAll] does so for the GPUs of one process. [NcclAllReduce] and the other operations enqueue work on a stream, and [NcclCommDestroy] frees the communicator.",
		heading: "Ranks, threads and memory",
		rules: []string{
			"Each rank has a communicator of its own, and all ranks make the same calls on it in the same order. Creation, splitting, the first collective and destruction wait in the call for the other ranks. So give each rank of a process a goroutine, or put the calls for all ranks between [NcclGroupStart] and [NcclGroupEnd] in one goroutine. A call that waits holds an OS thread, without a time limit.",
			"A group belongs to the OS thread, and so does the current device, which matters when a communicator is made. Lock the goroutine with runtime.LockOSThread from the start of a group to its end, and around setting the device and [NcclCommInitRank]. Two calls must not use one communicator at once. Use the communicators of one device from one goroutine, so that their order is the same on all ranks.",
			"Buffers are device memory; counts are in elements, not bytes. Buffers must live until the stream has passed the operation, and in a graph as long as the graph: handles are numbers and keep nothing alive. A handle that a group or a non-blocking communicator writes after the call returned, as [NcclCommSplit] and [NcclCommWindowRegister] do, needs a variable that is pinned with a runtime.Pinner, or C memory.",
			"Operations can be captured into graphs: all ranks capture them, and all launch the graphs in the same order. Destroy the graphs before the communicator.",
			"NCCL reads variables of the environment such as NCCL_DEBUG=INFO when it first needs them: set them before the program starts, or with os.Setenv before the first call.",
		},
		late:    " [NcclInProgress] is no failure: a communicator with blocking = 0 returns it while it works. A broken connection or a rank that died is no error of a call; the operation never completes, and [NcclCommGetAsyncError] tells why: ask it while you wait for a stream, and call [NcclCommAbort] after an error.",
		version: "One package serves every NCCL 2; the constants [NCCL_MAJOR], [NCCL_MINOR] and [NCCL_PATCH] are the version of the header that it was made from. All ranks of a communicator should load the same version. Structs such as [NcclConfig_t] begin with their size and version, by which older and newer libraries read them; fill these fields in.",
		unbound: "[NcclConfig_t] and the other structs say which values the initializers set. NCCL_VERSION(2, 32, 3) is 23203, as [NcclGetVersion] returns it; ncclResetDebugInit does nothing.",
	},
	"cublas": {
		purpose: "cuBLAS computes with dense vectors and matrices on the GPU: level 1 works on vectors, level 2 on a matrix and a vector, level 3 on matrices, such as [CublasSgemm], and extensions on batches and mixed types, such as [CublasGemmEx]. Package blas in cuda/safe, which is built on this one, multiplies matrices on any goroutine and stream, in captures, too.",
		start:   "[CublasCreate] makes a handle on the current device, [CublasSetStream] gives it a stream, every routine takes the handle first, and [CublasDestroy] frees it. The letters of a name tell the type: S float32, D float64, C complex64, Z complex128. Functions whose names end in _64 take sizes of 64 bits and are otherwise the same.",
		heading: "Handles, streams and memory",
		rules: []string{
			"In a program that uses package safe, call cuBLAS by package safe/blas. For what that lacks, create and destroy handles in safe.Context.WithoutCaptures, and enqueue in safe.Stream.EnqueueRaw: both keep the goroutine on its thread and set the context.",
			"A handle belongs to the device that was current when it was created, and that device must be current in every call: goroutines move from thread to thread, so lock the goroutine with runtime.LockOSThread and set the device or context first. Nothing checks this. Calls with one handle from several goroutines are allowed, but they share its stream, pointer mode and workspace: give each goroutine a handle of its own.",
			"Routines enqueue their work on the handle's stream and return; an error of a kernel comes later, from a call that waits. Vectors and matrices are device memory, and must live until the stream has passed the routine, in a graph as long as the graph: handles are numbers and keep nothing alive.",
			"Matrices are column-major: element (i, j), both from 0, is at i + j*ld, where the leading dimension ld is the distance between two columns in elements. A row-major matrix is the transpose of a column-major one with the length of its rows as ld; so C = A*B for row-major matrices is the call for B*A, with m and n exchanged.",
			"Scalars such as alpha, beta and the result of a dot product are host memory, Go variables, unless [CublasSetPointerMode] says otherwise. A routine with a result in host memory waits for the stream, and cannot be captured. With device pointers nothing waits. A complex128 in host memory must be at a multiple of 16 bytes, or cuBLAS ends the program: Go aligns it to 8, ffi.Aligned to as much as you say.",
			"Creating and destroying handles is slow, and destroying waits for the device: keep handles. Routines can be captured into graphs. Factors in host memory become part of the graph with the value that they have during the capture.",
		},
		late:    " A call may also return [CUBLAS_STATUS_EXECUTION_FAILED] for earlier work that failed on the device; after a fault every call of the process fails.",
		version: "One package serves cuBLAS 12 and 13. Functions are named after the symbols they call; plain names such as [CublasCreate] mean what the header maps them to, the forms ending in _v2. The library also exports symbols with the plain names, for an interface without handles; this package never calls those. cuBLAS has a version of its own: CUDA 13.5 comes with cuBLAS 13.10. It needs libcublasLt of the same version beside it.",
		unbound: "They name functions that no header declares. For C++ alone there are cublasMigrateComputeType and overloads of functions, which take a type of data in place of a compute type: pass the compute type, such as [CUBLAS_COMPUTE_32F].",
	},
	"cublaslt": {
		purpose: "cuBLASLt computes one operation, D = epilogue(alpha*op(A)*op(B) + beta*C), in all its variants: types from float64 to numbers of 4 bits, row-major and tiled layouts, batches, bias and activation in the same kernel, and a choice among algorithms. For the rest of BLAS, and for a plain product in one call, use package cublas. Package blas in cuda/safe, which is built on this one, has products with epilogues on any goroutine and stream, in captures, too.",
		start:   "[CublasLtCreate] makes a handle. Descriptors on the host describe an operation: [CublasLtMatmulDescCreate] for types, transpositions and epilogue, [CublasLtMatrixLayoutCreate] for each matrix. [CublasLtMatmulPreferenceCreate] holds what is allowed, such as the size of the workspace. [CublasLtMatmulAlgoGetHeuristic] returns algorithms for the problem, the fastest first by estimate; [CublasLtMatmul] enqueues the work on a stream. Search once for each problem and keep the result.",
		heading: "Descriptors, streams and memory",
		rules: []string{
			"Attributes are passed as the address of a variable and its size, which must be exactly that of the attribute: int32, uint64 and so on, as the comment of each attribute says. A Go int has 8 bytes and is refused where 4 are expected. Where an attribute is a device address, pass the address of the variable that holds it. The library copies values and checks only their sizes: a value that makes no sense is an error of the search or of the multiplication.",
			"Any goroutine may use a handle, and several may at once. Goroutines may share descriptors and preferences as long as none changes them; calls read them before they return, so that you can destroy them at once. They live in C memory, and nothing frees them when the Go value is collected. An algorithm is a value without pointers: copy it, or store it for the same version of the library.",
			"CUDA's current device belongs to the OS thread, and the handle to a device. Lock the goroutine with runtime.LockOSThread, make the device current, then call.",
			"[CublasLtMatmul] and [CublasLtMatrixTransform] are asynchronous and take the stream as an argument. The workspace is the caller's: device memory at a multiple of 256 bytes, one for each stream, to be freed after the work. Without one the search finds only algorithms that need none. Matrices are device memory and must stay allocated until the work is done. alpha and beta are read from host memory during the call, unless the pointer mode says that they are on the device.",
			"Both can be captured. A captured host factor keeps its value in the graph; matrices and workspace must live as long as the graph. Search for algorithms before the capture.",
			"Matrices are column-major by default. For row-major matrices set [CUBLASLT_MATRIX_LAYOUT_ORDER], or compute the transposed product: swap A with B and m with n.",
		},
		late:    " The codes are those of package cublas, and say little: [CublasLtLoggerSetLevel] with 1 makes the library print the reason, and the environment variable CUBLASLT_LOG_LEVEL does so from outside. CUBLAS_STATUS_NOT_SUPPORTED is the usual answer to types, alignments or an epilogue that have no kernel on this GPU.",
		version: "One package serves cuBLASLt 12 and 13. Tiles, stages and numbers of algorithms belong to one version: store the version of [CublasLtGetVersion] with them.",
	},
	"cufft": {
		purpose: "cuFFT computes discrete Fourier transforms of one, two and three dimensions, of complex and real numbers, one or many at once. Package fft in cuda/safe, which is built on this one, transforms on any goroutine and stream, in captures, too.",
		start:   "[CufftPlan1d], [CufftPlan2d], [CufftPlan3d] and [CufftPlanMany] make a plan: the lengths, the kind of data and its layout, with the kernels and the workspace for it. [CufftSetStream] gives it a stream, [CufftExecC2C] and the other executions run it as often as you like, [CufftDestroy] frees it. Nothing is normalized: forward and then inverse multiplies by the number of elements. [CufftCreate] begins a plan with settings, such as several GPUs or callbacks.",
		heading: "Threads, streams and memory",
		rules: []string{
			"In a program that uses package safe, call cuFFT by package safe/fft. For what that lacks, create and destroy plans in safe.Context.WithoutCaptures, and enqueue in safe.Stream.EnqueueRaw: both keep the goroutine on its thread and set the context.",
			"A plan belongs to the device that was current when it was made. The current device belongs to the OS thread, so lock the goroutine with runtime.LockOSThread and set the device around these calls. cuFFT works in the context that is current, or else in the primary one of the runtime's current device.",
			"No two goroutines may use one plan at the same time, and no two executions of one plan may overlap on the device, since they share its workspace. Different plans run at the same time if their outputs and workspaces are disjoint.",
			"An execution enqueues kernels on the plan's stream and returns. Data is device memory, and it must stay until the stream has done the work. Plan before a capture begins; executions can be captured. Keep plan, workspace and data for as long as the graph lives.",
		},
		late:    afterwards,
		version: "One package serves cuFFT 11 and 12, which come with CUDA 12 and 13. Versions are cuFFT's own: 12.5 belongs to CUDA 13.5. [CufftXtSetJITCallback] has these parameters since cuFFT 12.0: an older library returns a SymbolError.",
	},
	"curand": {
		purpose: "cuRAND fills arrays with pseudorandom and quasirandom numbers: bits, and uniform, normal, log-normal and Poisson distributions. Package random in cuda/safe, which is built on this one, makes numbers on any goroutine and stream, in captures, too.",
		start:   "[CurandCreateGenerator] makes a generator for device memory, [CurandCreateGeneratorHost] one for host memory, which needs neither a GPU nor a driver. [CurandSetPseudoRandomGeneratorSeed] and [CurandSetStream] set it up, [CurandGenerate], [CurandGenerateUniform], [CurandGenerateNormal] and others fill an array, [CurandDestroyGenerator] frees it. The same settings give the same numbers in every run.",
		heading: "Threads, streams and memory",
		rules: []string{
			"In a program that uses package safe, call cuRAND by package safe/random. For what that lacks, create and destroy generators in safe.Context.WithoutCaptures, and enqueue in safe.Stream.EnqueueRaw: both keep the goroutine on its thread and set the context.",
			"A generator for the device belongs to the device that was current when it was made. The current device belongs to the OS thread, so lock the goroutine with runtime.LockOSThread and set the device around these calls. cuRAND works in the context that is current, or else in the primary one of the runtime's current device.",
			"No two goroutines may use one generator at the same time. Give each goroutine a generator of its own, with a seed or an offset of its own.",
			"A generation for the device enqueues kernels on the generator's stream and returns; the array must stay until the stream has done the work. The first generation and the first one after new settings may allocate memory: call [CurandGenerateSeeds] before a capture. The library does not check addresses.",
		},
		late:    afterwards,
		version: "One package serves every cuRAND 10, which CUDA 11 to 13 come with. Versions are cuRAND's own: 10.4 belongs to CUDA 13.5. The header also declares curandGenerateBinomial and curandGenerateBinomialMethod, which no library exports; this package leaves them out.",
	},
	"cupti_activity": {
		purpose: "CUPTI records what the GPUs of a process do, with the calls that enqueued it: kernels, copies, fills, launches of graphs, each with its time. This package has the functions and records that a timeline needs; gen -api cupti binds the whole library. Programs record with package safe's profile, which is built on this one.",
		start:   "[CuptiSubscribe] makes the program the one profiler of the process, [CuptiActivityRegisterCallbacks] names where records go, and [CuptiActivityEnable] begins with a kind of them. [CuptiActivityFlushAll] hands over what there is, and [CuptiActivityGetNextRecord] steps through a buffer. [CuptiUnsubscribe] ends it.",
		heading: "Callbacks, graphs and threads",
		rules: []string{
			"The functions that give and take buffers are called inside calls of CUDA, where no Go code may run: they must be C, or assembly.",
			"A launch of an executable graph that was instantiated before recording began crashes the process (measured with a driver for CUDA 13.0).",
			"One program at a time may record in a process. Under Nsight Systems, Nsight Compute, compute-sanitizer or PyTorch's profiler, [CuptiSubscribe] returns [CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED].",
		},
		version: "One package serves CUPTI of CUDA 12 and 13. Records grow at their end from version to version; the ones here are of the first version that has what a timeline needs, so newer libraries fill them, too.",
	},
	"nvml": {
		purpose: "NVML reads what nvidia-smi shows: names, memory, load, temperatures, clocks, power, errors, processes, NVLink, MIG and vGPU; with root it sets limits and modes. The library comes with the driver and needs no other part of CUDA.",
		start:   "Call [NvmlInit_v2] first and [NvmlShutdown] last, [NvmlDeviceGetCount_v2] and [NvmlDeviceGetHandleByIndex_v2] between.",
		heading: "Devices, threads and memory",
		rules: []string{
			"Initializations are counted: each call of [NvmlInit_v2] or [NvmlInitWithFlags] needs one of [NvmlShutdown], and the last one makes every handle invalid.",
			"NVML counts GPUs in an order of its own and ignores CUDA_VISIBLE_DEVICES, so its index is not CUDA's device number. Match devices by PCI address, with cuDeviceGetPCIBusId and [NvmlDeviceGetHandleByPciBusId_v2], or by UUID, with [NvmlDeviceGetHandleByUUID]. A MIG device has a handle of its own; each function says whether it takes one.",
			"Any goroutine may call any function, several at once, on any thread: no call makes or needs a CUDA context. Only [NvmlDeviceSetCpuAffinity] and [NvmlDeviceClearCpuAffinity] concern the calling OS thread.",
			"Text goes into a []byte of the caller: pass the address of its first byte and its length, and cut the text at the zero byte; the NVML_*_BUFFER_SIZE constants always suffice. Functions that return a list take its length: where the list is too short they return [NVML_ERROR_INSUFFICIENT_SIZE] and the length needed. A list of processes can grow between two calls, so repeat until it fits.",
			"A struct with a member version must say which version it is before the call: uint32(unsafe.Sizeof(s)) | n<<24 for version n, which is what constants such as [NvmlMemory_v2] are; otherwise the call returns [NVML_ERROR_ARGUMENT_VERSION_MISMATCH]. An array whose address is in a struct must be C memory, or be pinned with a runtime.Pinner during the call.",
		},
		version: "One package serves every driver: functions are named after the symbols they call, with their version in the name, and older versions stay. A driver that is older than a function gives a [*SymbolError]. Whether a device has a figure is another question: expect [NVML_ERROR_NOT_SUPPORTED] anywhere.",
		unbound: "The versions of structs are constants here, such as [NvmlMemory_v2]; the comments of fields and masks say where their bits are.",
	},
}

// programFS holds a short program for each library, as code that is built with the module.
//
//go:embed programs/*.go
var programFS embed.FS

// programs are the short programs, by API: what stands below the imports.
var programs = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	files, _ := programFS.ReadDir("programs")
	for _, f := range files {
		text, _ := programFS.ReadFile(path.Join("programs", f.Name()))
		if _, program, ok := strings.Cut(string(text), "\n)\n\n"); ok {
			all[strings.TrimSuffix(f.Name(), ".go")] = "\t" + strings.ReplaceAll(strings.TrimSpace(program), "\n", "\n\t")
		}
	}
	return all
})
