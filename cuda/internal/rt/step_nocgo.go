//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import "unsafe"

// A step of a list is a call of CUDA's, or a test. Linux's assembly knows the layout.
type step struct {
	fn     uintptr        // 0 for a test
	args   unsafe.Pointer // words, and at least 8 that can be read
	words  uintptr
	word   *uint64 // nil for none: a call is skipped, and a test is passed, if it equals value
	value  uint64
	result uint64 // of a call, what it returned; of a test, the code that ends the list if it fails
	flags  uint64
}

// Flags of a step.
const (
	evenAfterEnd = 1 << iota // the call is also made after the list has ended, and its result is ignored
	anyResult                // an error does not end the list
	unlessEqual              // word must differ from value instead
	copied                   // neither a call nor a test: word is copied to args
)

// steps are made one after another, until a call or a test fails.
type steps struct {
	first unsafe.Pointer // *step
	n     uint64
	code  uint64 // of the step that has failed
	left  uint64 // how many steps there were from that one on
}

// makeSteps makes n steps. It returns the code of the first that fails, and its index; 0 and
// n if none does.
func makeSteps(first *step, n int) (code uint64, at int) {
	s := steps{first: unsafe.Pointer(first), n: uint64(n)}
	s.do()
	return s.code, n - int(s.left)
}

// cu holds the addresses of the driver's functions that lists call.
var cu struct {
	ctxGetCurrent, ctxSetCurrent, exchangeMode, isCapturing uintptr
	streamCreate, streamQuery, streamSynchronize            uintptr
	streamWaitEvent                                         uintptr
	eventQuery, eventRecord, eventRecordFlags               uintptr
	launchKernel, launchKernelEx, graphLaunch, graphUpload  uintptr
	graphCreate, graphDestroy, execDestroy, beginCapture    uintptr
	launchHostFunc, addCallback                             uintptr
	copyHtoD, copyDtoH, copyDtoD, copyPeer, copyHtoH        uintptr
	set8, set16, set32                                      uintptr
	alloc, allocFromPool, free, importMemory, importPool    uintptr
	addKernelNode, setKernelNode, setExecKernelNode         uintptr
	ctxGetID, launchHostFuncMode                            uintptr // from CUDA 12.0 and 13.2 on, else 0
}

// A symbol is a function of the driver, and where its address goes.
type symbol struct {
	name    string
	address *uintptr
}

// bind finds the functions in the loaded driver, and returns the name of one that is missing.
func bind(file string) (missing string) {
	find, err := finder(file)
	if err != nil {
		return file
	}
	for _, f := range []symbol{
		{"cuCtxGetCurrent", &cu.ctxGetCurrent},
		{"cuCtxSetCurrent", &cu.ctxSetCurrent},
		{"cuThreadExchangeStreamCaptureMode", &cu.exchangeMode},
		{"cuStreamIsCapturing", &cu.isCapturing},
		{"cuStreamCreateWithPriority", &cu.streamCreate},
		{"cuStreamQuery", &cu.streamQuery},
		{"cuStreamSynchronize", &cu.streamSynchronize},
		{"cuStreamWaitEvent", &cu.streamWaitEvent},
		{"cuEventQuery", &cu.eventQuery},
		{"cuEventRecord", &cu.eventRecord},
		{"cuEventRecordWithFlags", &cu.eventRecordFlags},
		{"cuLaunchKernel", &cu.launchKernel},
		{"cuLaunchKernelEx", &cu.launchKernelEx},
		{"cuGraphCreate", &cu.graphCreate},
		{"cuGraphDestroy", &cu.graphDestroy},
		{"cuGraphExecDestroy", &cu.execDestroy},
		{"cuStreamBeginCapture_v2", &cu.beginCapture},
		{"cuGraphLaunch", &cu.graphLaunch},
		{"cuGraphUpload", &cu.graphUpload},
		{"cuLaunchHostFunc", &cu.launchHostFunc},
		{"cuStreamAddCallback", &cu.addCallback},
		{"cuMemcpyHtoDAsync_v2", &cu.copyHtoD},
		{"cuMemcpyDtoHAsync_v2", &cu.copyDtoH},
		{"cuMemcpyDtoDAsync_v2", &cu.copyDtoD},
		{"cuMemcpyPeerAsync", &cu.copyPeer},
		{"cuMemcpyAsync", &cu.copyHtoH},
		{"cuMemsetD8Async", &cu.set8},
		{"cuMemsetD16Async", &cu.set16},
		{"cuMemsetD32Async", &cu.set32},
		{"cuMemAllocAsync", &cu.alloc},
		{"cuMemAllocFromPoolAsync", &cu.allocFromPool},
		{"cuMemFreeAsync", &cu.free},
		{"cuMemImportFromShareableHandle", &cu.importMemory},
		{"cuMemPoolImportFromShareableHandle", &cu.importPool},
	} {
		if *f.address = find(f.name); *f.address == 0 {
			return f.name
		}
	}
	cu.ctxGetID, cu.launchHostFuncMode = find("cuCtxGetId"), find("cuLaunchHostFunc_v2")
	// Before CUDA 12.0 there are only the first versions, which read a prefix of the same struct.
	for _, f := range []symbol{
		{"cuGraphAddKernelNode", &cu.addKernelNode},
		{"cuGraphKernelNodeSetParams", &cu.setKernelNode},
		{"cuGraphExecKernelNodeSetParams", &cu.setExecKernelNode},
	} {
		if *f.address = find(f.name + "_v2"); *f.address == 0 {
			*f.address = find(f.name)
		}
		if *f.address == 0 {
			return f.name
		}
	}
	return ""
}
