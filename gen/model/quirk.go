package model

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A quirk says about one declaration what the headers do not, or not in C.
// Every row has a reason. A row that finds nothing in a version it is meant for
// is an error, so that none outlives the header it was made for.
type quirk struct {
	api      string
	from, to string // the CUDA versions it is meant for; "" is open
	name     string // what it is about, as do reads it
	do       func(*API, string) (found bool)
	reason   string
}

// deviceCode is the place of a callback that is a function of the GPU's.
const deviceCode = "the GPU, as device code"

// dropping is the thread of a destructor, and calling that of most callbacks that run inside a call.
const (
	dropping = "the thread whose call drops the last reference, inside that call"
	calling  = "the calling thread, inside the call"
)

// theFlags is why a number holds the values of an enum.
const theFlags = "the header's text lists the enum's values"

var quirks = []quirk{
	// Callback types: on which thread CUDA calls them. One that is called on the
	// thread that is inside a raw call must not be Go code, since the raw entry
	// promises cgo that C never calls back.
	{"driver", "", "", "CUhostFn", callback("a thread of the driver's own", true), "measured; the exception is cuUserObjectCreate, below"},
	{"driver", "", "", "CUstreamCallback", callback("a thread of the driver's own", true), "measured"},
	{"driver", "", "", "CUoccupancyB2DSize", callback("the calling thread, before the call returns", false), "the occupancy calls ask it for sizes while they compute"},
	{"driver", "12.4", "", "CUasyncCallback", callback("a thread that CUDA does not name", false), "the header promises no thread"},
	{"driver", "12.9", "", "CUlogsCallback", callback("the thread whose call failed, inside that call", false), "measured: a failing call runs it before it returns"},
	{"driver", "13.2", "", "CUcoredumpStatusCallback", callback("a thread that CUDA does not name", false), "the header promises no thread, and the process is about to be dumped"},
	{"driver", "13.3", "", "CUgraphRecaptureCallback", callback("the thread that ends the capture, inside that call", false), "it decides on a difference while the capture ends"},
	{"driver", "", "", "cuUserObjectCreate.destroy", onThread(dropping), "measured: the call that drops the last reference runs it"},

	{"runtime", "", "", "cudaHostFn_t", callback("a thread of the driver's own", true), "measured; the exception is cudaUserObjectCreate, below"},
	{"runtime", "", "", "cudaStreamCallback_t", callback("a thread of the driver's own", true), "measured"},
	{"runtime", "12.4", "", "cudaAsyncCallback", callback("a thread that CUDA does not name", false), "the header promises no thread"},
	{"runtime", "13.0", "", "cudaLogsCallback_t", callback("the thread whose call failed, inside that call", false), "measured: a failing call runs it before it returns"},
	{"runtime", "13.3", "", "cudaGraphRecaptureCallback_t", callback("the thread that ends the capture, inside that call", false), "it decides on a difference while the capture ends"},
	{"runtime", "", "", "cudaUserObjectCreate.destroy", onThread(dropping), "measured: the call that drops the last reference runs it"},

	// Pointers that are not Go pointers. CUDA hands them back untouched, or reads
	// small numbers from them; an unsafe.Pointer that holds such a number crashes
	// Go when the stack grows.
	{"driver", "", "", "*.userData", opaque, "a value of the program's own, handed to its callback"},
	{"runtime", "", "", "*.userData", opaque, "a value of the program's own, handed to its callback"},
	{"driver", "", "", "cuUserObjectCreate.ptr", opaque, "a value of the program's own, handed to its destructor"},
	{"runtime", "", "", "cudaUserObjectCreate.ptr", opaque, "a value of the program's own, handed to its destructor"},
	{"driver", "", "", "*.extra", opaque, "a list that begins with CU_LAUNCH_PARAM_BUFFER_POINTER, which is 1"},
	{"runtime", "", "", "*.extra", opaque, "a list whose first entry may be a small number"},
	{"driver", "", "", "*.optionValues", opaque, "numbers and pointers mixed, each in the place of a pointer"},
	{"driver", "12.0", "", "*.jitOptionsValues", opaque, "numbers and pointers mixed, each in the place of a pointer"},
	{"driver", "12.0", "", "*.libraryOptionValues", opaque, "numbers and pointers mixed, each in the place of a pointer"},
	{"runtime", "12.8", "", "*.jitOptionsValues", opaque, "numbers and pointers mixed, each in the place of a pointer"},
	{"runtime", "12.8", "", "*.libraryOptionValues", opaque, "numbers and pointers mixed, each in the place of a pointer"},

	{"nvrtc", "12.8", "", "nvrtcSetFlowCallback_callback", callback("the thread that compiles, inside NvrtcCompileProgram", false), "it decides during a compilation whether that goes on"},
	{"nvrtc", "12.8", "", "nvrtcSetFlowCallback.payload", opaque, "a value of the program's own, handed to its callback"},

	{"cupti_activity", "", "", "CUpti_CallbackFunc", callback("the thread whose call of CUDA it tells of, inside that call", false), "it is called before and after a call"},
	{"cupti_activity", "", "", "CUpti_BuffersCallbackRequestFunc", callback("the thread that is inside a call of CUDA, or one of CUPTI's own", false), "measured: a launch asks for a buffer"},
	{"cupti_activity", "", "", "CUpti_BuffersCallbackCompleteFunc", callback("the thread that is inside a call of CUDA, or one of CUPTI's own", false), "measured: a launch that fills a buffer hands it over"},
	{"cublas", "", "", "cublasLogCallback", callback("the thread whose call logs, inside that call", false), "the logger runs within the call that it tells of"},
	{"cublaslt", "", "", "cublasLtLoggerCallback_t", callback("the thread whose call logs, inside that call", false), "measured: it runs on the calling thread"},
	{"cufft", "", "", "cufftCallbackLoadC", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "", "", "cufftCallbackLoadZ", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "", "", "cufftCallbackLoadR", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "", "", "cufftCallbackLoadD", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "", "", "cufftCallbackStoreC", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "", "", "cufftCallbackStoreZ", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "", "", "cufftCallbackStoreR", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "", "", "cufftCallbackStoreD", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackLoadC", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackLoadZ", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackLoadR", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackLoadD", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackStoreC", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackStoreZ", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackStoreR", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},
	{"cufft", "12.6", "", "cufftJITCallbackStoreD", callback(deviceCode, false), "cuFFT calls it inside of its kernels"},

	// Numbers that hold the values of an enum.
	{"driver", "", "", "cuCtxCreate.flags", holds("CUctx_flags"), theFlags},
	{"driver", "12.1", "", "cuCtxSetFlags.flags", holds("CUctx_flags"), theFlags},
	{"driver", "", "", "cuCtxGetFlags.flags", holds("CUctx_flags"), theFlags},
	{"driver", "", "", "cuDevicePrimaryCtxSetFlags.flags", holds("CUctx_flags"), theFlags},
	{"driver", "", "", "cuDevicePrimaryCtxGetState.flags", holds("CUctx_flags"), theFlags},
	{"driver", "", "", "cuGLCtxCreate.Flags", holds("CUctx_flags"), theFlags},
	{"driver", "", "", "cuVDPAUCtxCreate.flags", holds("CUctx_flags"), theFlags},
	{"driver", "", "", "cuEventCreate.Flags", holds("CUevent_flags"), theFlags},
	{"driver", "", "", "cuEventCreateFromEGLSync.flags", holds("CUevent_flags"), theFlags},
	{"driver", "", "", "cuEventRecordWithFlags.flags", holds("CUevent_record_flags"), theFlags},
	{"driver", "", "", "cuStreamWaitEvent.Flags", holds("CUevent_wait_flags"), theFlags},
	{"driver", "", "", "cuStreamCreate.Flags", holds("CUstream_flags"), theFlags},
	{"driver", "", "", "cuStreamCreateWithPriority.flags", holds("CUstream_flags"), theFlags},
	{"driver", "", "", "cuStreamGetFlags.flags", holds("CUstream_flags"), theFlags},
	{"driver", "12.5", "", "cuGreenCtxStreamCreate.flags", holds("CUstream_flags"), theFlags},
	{"driver", "", "", "cuStreamWaitValue32.flags", holds("CUstreamWaitValue_flags"), theFlags},
	{"driver", "", "", "cuStreamWaitValue64.flags", holds("CUstreamWaitValue_flags"), theFlags},
	{"driver", "", "", "cuStreamWriteValue32.flags", holds("CUstreamWriteValue_flags"), theFlags},
	{"driver", "", "", "cuStreamWriteValue64.flags", holds("CUstreamWriteValue_flags"), theFlags},
	{"driver", "", "", "cuMemAllocManaged.flags", holds("CUmemAttach_flags"), theFlags},
	{"driver", "", "", "cuStreamAttachMemAsync.flags", holds("CUmemAttach_flags"), theFlags},
	{"driver", "", "", "cuIpcOpenMemHandle.Flags", holds("CUipcMem_flags"), theFlags},
	{"driver", "", "", "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags.flags", holds("CUoccupancy_flags"), theFlags},
	{"driver", "", "", "cuOccupancyMaxPotentialBlockSizeWithFlags.flags", holds("CUoccupancy_flags"), theFlags},
	{"driver", "", "", "cuStreamUpdateCaptureDependencies.flags", holds("CUstreamUpdateCaptureDependencies_flags"), theFlags},
	{"driver", "", "", "cuGraphicsGLRegisterBuffer.Flags", holds("CUgraphicsRegisterFlags"), theFlags},
	{"driver", "", "", "cuGraphicsGLRegisterImage.Flags", holds("CUgraphicsRegisterFlags"), theFlags},
	{"driver", "", "", "cuGraphicsEGLRegisterImage.flags", holds("CUgraphicsRegisterFlags"), theFlags},
	{"driver", "", "", "cuGraphicsVDPAURegisterOutputSurface.flags", holds("CUgraphicsRegisterFlags"), theFlags},
	{"driver", "", "", "cuGraphicsVDPAURegisterVideoSurface.flags", holds("CUgraphicsRegisterFlags"), theFlags},
	{"driver", "", "", "cuGraphicsResourceSetMapFlags.flags", holds("CUgraphicsMapResourceFlags"), theFlags},
	{"driver", "", "", "cuGLSetBufferObjectMapFlags.Flags", holds("CUGLmap_flags"), theFlags},
	{"driver", "", "", "cuEGLStreamConsumerConnectWithFlags.flags", holds("CUeglResourceLocationFlags"), theFlags},
	{"driver", "", "", "cuGraphDebugDotPrint.flags", holds("CUgraphDebugDot_flags"), theFlags},
	{"driver", "", "", "cuUserObjectCreate.flags", holds("CUuserObject_flags"), theFlags},
	{"driver", "", "", "cuGraphRetainUserObject.flags", holds("CUuserObjectRetain_flags"), theFlags},
	{"driver", "", "", "cuGraphInstantiateWithFlags.flags", holds("CUgraphInstantiate_flags"), theFlags},
	{"driver", "", "", "cuGetProcAddress.flags", holds("CUdriverProcAddress_flags"), theFlags},
	{"driver", "12.8", "", "cuMemGetHandleForAddressRange.flags", holds("CUmemRangeFlags"), theFlags},
	{"driver", "12.4", "", "cuGreenCtxCreate.flags", holds("CUgreenCtxCreate_flags"), theFlags},
	{"driver", "13.1", "", "cuDevSmResourceSplitByCount.flags", holds("CUdevSmResourceSplitByCount_flags"), theFlags},
	{"driver", "13.1", "", "CU_DEV_SM_RESOURCE_GROUP_PARAMS.flags", holds("CUdevSmResourceGroup_flags"), theFlags},
	{"driver", "12.8", "", "CUmemcpyAttributes_v1.flags", holds("CUmemcpyFlags"), theFlags},
	{"runtime", "12.0", "", "cudaGraphInstantiate.flags", holds("cudaGraphInstantiateFlags"), theFlags},
	{"driver", "", "", "CUstreamBatchMemOpParams_v1.waitValue.flags", holds("CUstreamWaitValue_flags"), theFlags},
	{"driver", "", "", "CUstreamBatchMemOpParams_v1.writeValue.flags", holds("CUstreamWriteValue_flags"), theFlags},
	{"driver", "", "", "CUstreamBatchMemOpParams_v1.memoryBarrier.flags", holds("CUstreamMemoryBarrier_flags"), theFlags},
	{"runtime", "", "", "cudaGraphInstantiateWithFlags.flags", holds("cudaGraphInstantiateFlags"), theFlags},
	{"runtime", "", "", "cudaGraphDebugDotPrint.flags", holds("cudaGraphDebugDotFlags"), theFlags},
	{"runtime", "", "", "cudaUserObjectCreate.flags", holds("cudaUserObjectFlags"), theFlags},
	{"runtime", "", "", "cudaGraphRetainUserObject.flags", holds("cudaUserObjectRetainFlags"), theFlags},
	{"runtime", "", "", "cudaStreamUpdateCaptureDependencies.flags", holds("cudaStreamUpdateCaptureDependenciesFlags"), theFlags},
	{"runtime", "", "", "cudaGraphicsGLRegisterBuffer.flags", holds("cudaGraphicsRegisterFlags"), theFlags},
	{"runtime", "", "", "cudaGraphicsGLRegisterImage.flags", holds("cudaGraphicsRegisterFlags"), theFlags},
	{"runtime", "", "", "cudaGraphicsEGLRegisterImage.flags", holds("cudaGraphicsRegisterFlags"), theFlags},
	{"runtime", "", "", "cudaGraphicsVDPAURegisterOutputSurface.flags", holds("cudaGraphicsRegisterFlags"), theFlags},
	{"runtime", "", "", "cudaGraphicsVDPAURegisterVideoSurface.flags", holds("cudaGraphicsRegisterFlags"), theFlags},
	{"runtime", "", "", "cudaGraphicsResourceSetMapFlags.flags", holds("cudaGraphicsMapFlags"), theFlags},
	{"runtime", "", "", "cudaGLSetBufferObjectMapFlags.flags", holds("cudaGLMapFlags"), theFlags},
	{"runtime", "", "", "cudaEGLStreamConsumerConnectWithFlags.flags", holds("cudaEglResourceLocationFlags"), theFlags},
	{"runtime", "12.8", "", "struct cudaMemcpyAttributes.flags", holds("cudaMemcpyFlags"), theFlags},
	{"runtime", "13.1", "", "cudaDevSmResourceSplitByCount.flags", holds("cudaDevSmResourceSplitByCount_flags"), theFlags},
	{"runtime", "12.4", "", "cudaGraphConditionalHandleCreate.flags", holds("cudaGraphConditionalHandleFlags"), theFlags},
	{"runtime", "", "", "cudaGetDriverEntryPoint.flags", holds("cudaGetDriverEntryPointFlags"), theFlags},
	{"runtime", "12.5", "", "cudaGetDriverEntryPointByVersion.flags", holds("cudaGetDriverEntryPointFlags"), theFlags},
	{"runtime", "13.1", "", "cudaDevSmResourceGroupParams.flags", holds("cudaDevSmResourceGroup_flags"), theFlags},

	// Status types.
	{"runtime", "", "", "cudaError_t", canonical, "the name by which programs know the type"},

	// Functions outside the header's chapters.
	{"driver", "", "", "cuGetExportTable", group("CUDA_DRIVER_ENTRY_POINT"), "declared after the last chapter"},
	{"runtime", "", "", "cudaGetExportTable", regroup("CUDART_DRIVER_ENTRY_POINT"), "declared after the last chapter, below names of other headers' chapters"},
	{"driver", "11.8", "11.8", "cuDeviceGetExecAffinitySupport", group("CUDA_DEVICE"), "declared between two chapters"},

	// Macros with a body that are no constants.
	{"runtime", "", "", "CUDART_DEVICE", skip, "a storage qualifier of device code"},
	{"runtime", "11.8", "11.8", "cudaDevicePropDontCare", skip, "an initialiser for a struct"},
}

// applyQuirks applies the table and the user's rows to a.
func applyQuirks(a *API, opts Options) error {
	var errs []error
	var gone []row
	ignored := map[string]bool{}
	for _, q := range opts.Quirks {
		ignored[q.name] = ignored[q.name] || q.ignore && q.isFor(a)
	}
	for _, q := range quirks {
		if !q.isFor(a) || ignored[q.name] || q.do(a, q.name) || opts.Partial {
			continue
		}
		errs = append(errs, q.unused(a))
		gone = append(gone, row{API: q.api, From: a.Version, Quirk: "ignore", Name: q.name, Reason: "gone in CUDA " + a.Version})
	}
	if more := len(errs) - 10; more > 0 {
		errs, gone = append(errs[:10], fmt.Errorf("and %d more quirks match nothing: is this the whole of NVIDIA's header?", more)), gone[:10]
	}
	if len(errs) > 0 {
		errs = append(errs, advice(gone))
	}
	for _, q := range opts.Quirks {
		if q.isFor(a) && !q.do(a, q.name) {
			errs = append(errs, fmt.Errorf("%s: %w, or remove it%s", q.pos, q.unused(a), q.wants))
		}
	}
	return errors.Join(errs...)
}

// isFor tells whether q is meant for a.
func (q quirk) isFor(a *API) bool { return q.api == a.Row.API && between(a.Version, q.from, q.to) }

// unused says that q finds nothing in a.
func (q quirk) unused(a *API) error {
	return fmt.Errorf("the quirk for %s (%s) matches nothing in %s: bound its range", q.name, q.reason, a.source())
}

// between compares versions such as 12.10.
func between(v, from, to string) bool {
	return (from == "" || CompareVersions(v, from) >= 0) && (to == "" || CompareVersions(v, to) <= 0)
}

// CompareVersions compares as many parts as both have: 1.2 covers 1.2.3.
func CompareVersions(a, b string) int {
	x, y := versionParts(a), versionParts(b)
	n := min(len(x), len(y))
	return slices.Compare(x[:n], y[:n])
}

func versionParts(v string) (parts []int) {
	for part := range strings.SplitSeq(strings.TrimPrefix(v, "<="), ".") {
		n, _ := strconv.Atoi(part)
		parts = append(parts, n)
	}
	return parts
}

func callback(thread string, goAllowed bool) func(*API, string) bool {
	return func(a *API, name string) bool {
		d := declNamed(a, name)
		if d == nil || d.Kind != Callback {
			return false
		}
		d.Thread, d.GoAllowed = thread, goAllowed
		return true
	}
}

// onThread is for a parameter whose callback runs inside a call, and so elsewhere than its
// type says. It takes a type of its own, so that the rule is part of it.
func onThread(thread string) func(*API, string) bool {
	return func(a *API, name string) bool {
		found := false
		eachParam(a, name, func(f *Func, p *Param) {
			if !p.Type.Is(Callback) {
				return
			}
			own := *p.Type.Decl
			own.Thread, own.GoAllowed = thread, false
			f.Callbacks = append(f.Callbacks, &own)
			found = true
		})
		return found
	}
}

// opaque makes a pointer to anything, as a parameter or a field, a number.
func opaque(a *API, name string) bool {
	found := false
	number := func(t *Type) {
		for t.Kind == Pointer && t.Elem.Kind == Pointer {
			t = t.Elem
		}
		if t.Kind == Pointer && t.Elem.Kind == Void {
			t.Go, found = "uintptr", true
		}
	}
	eachParam(a, name, func(_ *Func, p *Param) { number(p.Type) })
	eachField(a, name, func(f *Field) { number(f.Type) })
	return found
}

// holds makes a number, or what a pointer to numbers points to, the enum whose values it holds, so that its constants
// fit. A pointer needs an enum of the number's size.
func holds(enum string) func(*API, string) bool {
	return func(a *API, name string) bool {
		e := enumNamed(a, enum)
		if e == nil {
			return false
		}
		found := false
		mark := func(t *Type, size func(int64) bool) {
			if t.isInteger() && size(t.Size) {
				t.Enum, found = e, true
			}
		}
		same := func(size int64) bool { return size == e.Size }
		eachParam(a, name, func(_ *Func, p *Param) {
			if p.Type.Kind == Pointer {
				mark(p.Type.Elem, same)
				return
			}
			mark(p.Type, func(size int64) bool { return size >= e.Size })
		})
		eachField(a, name, func(f *Field) { mark(f.Type, same) })
		return found
	}
}

func (t *Type) isInteger() bool {
	return t.Kind == Basic && (strings.HasPrefix(t.Go, "int") || strings.HasPrefix(t.Go, "uint") && t.Go != "uintptr")
}

func enumNamed(a *API, name string) *Decl {
	for _, d := range a.Decls {
		if d.Kind == Enum && BareName(d.C) == name {
			return d
		}
	}
	return nil
}

// eachParam visits the parameters that "function.parameter" names, of every
// variant of the function.
func eachParam(a *API, name string, visit func(*Func, *Param)) {
	of, param, _ := strings.Cut(name, ".")
	for _, f := range a.Funcs {
		base, _, _ := Base(f.Symbol)
		if of != "*" && of != base {
			continue
		}
		for _, p := range f.Params {
			if p.C == param {
				visit(f, p)
			}
		}
	}
}

// eachField visits the members that "record.member" names. Of a member that is a record "record.member.member" names one.
func eachField(a *API, name string, visit func(*Field)) {
	of, path, _ := strings.Cut(name, ".")
	for _, d := range a.Decls {
		if of == "*" || of == d.C {
			d.eachField(path, visit)
		}
	}
}

func (d *Decl) eachField(path string, visit func(*Field)) {
	member, inner, deeper := strings.Cut(path, ".")
	for _, f := range d.Fields {
		switch {
		case f.C != member:
		case !deeper:
			visit(f)
		case f.Type.Kind == Named:
			f.Type.Decl.eachField(inner, visit)
		}
	}
}

// canonical swaps a type's own name with one of its aliases.
func canonical(a *API, name string) bool {
	for _, al := range a.Aliases {
		if al.Func || al.C != name {
			continue
		}
		d := declNamed(a, al.Target)
		d.Go = GoName(name)
		return true
	}
	return false
}

func group(to string) func(*API, string) bool {
	return func(a *API, name string) bool {
		found := false
		for _, f := range a.Funcs {
			if f.Symbol == name && f.Group == "" {
				f.Group, found = to, true
			}
		}
		return found
	}
}

// regroup is for a function below the name of a chapter that is not its own.
func regroup(to string) func(*API, string) bool {
	return func(a *API, name string) bool {
		for _, f := range a.Funcs {
			if f.Symbol == name && f.Group != to {
				f.Group = ""
			}
		}
		return group(to)(a, name)
	}
}

func declNamed(a *API, name string) *Decl {
	for _, d := range a.Decls {
		if d.C == name {
			return d
		}
	}
	return nil
}
