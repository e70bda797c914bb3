package rt

import "strings"

// A function is one of the driver's.
type function uint32

// The functions have the order of EVERY in rt_internal.h.
const (
	none function = iota
	fnCtxGetCurrent
	fnCtxSetCurrent
	fnExchangeMode
	fnIsCapturing
	fnStreamQuery
	fnStreamSynchronize
	fnStreamWaitEvent
	fnStreamCreate
	fnEventQuery
	fnEventRecord
	fnEventRecordWithFlags
	fnLaunchKernel
	fnLaunchKernelEx
	fnCopyHtoD
	fnCopyDtoH
	fnCopyDtoD
	fnCopy
	fnCopyPeer
	fnSet8
	fnSet16
	fnSet32
	fnCopyRows
	fnCopyRowsPeer
	fnSetRows8
	fnSetRows16
	fnSetRows32
	fnAlloc
	fnAllocFromPool
	fnFree
	fnImportMemory
	fnImportPool
	fnLaunchHostFunc
	fnAddCallback
	fnBeginCapture
	fnGraphCreate
	fnGraphDestroy
	fnGraphGetNodes
	fnGraphNodeType
	fnInstantiate
	fnExecDestroy
	fnGraphLaunch
	fnGraphUpload
	fnAddKernelNode // these three without _v2 before CUDA 12.0: they read a prefix of the same struct
	fnSetKernelNode
	fnSetExecKernelNode
	fnCtxGetID              // from CUDA 12.0 on, else 0
	fnInstantiateWithParams // from CUDA 12.0 on, else 0
	functions
)

var names = [functions]string{
	fnCtxGetCurrent:         "cuCtxGetCurrent",
	fnCtxSetCurrent:         "cuCtxSetCurrent",
	fnExchangeMode:          "cuThreadExchangeStreamCaptureMode",
	fnIsCapturing:           "cuStreamIsCapturing",
	fnStreamQuery:           "cuStreamQuery",
	fnStreamSynchronize:     "cuStreamSynchronize",
	fnStreamWaitEvent:       "cuStreamWaitEvent",
	fnStreamCreate:          "cuStreamCreateWithPriority",
	fnEventQuery:            "cuEventQuery",
	fnEventRecord:           "cuEventRecord",
	fnEventRecordWithFlags:  "cuEventRecordWithFlags",
	fnLaunchKernel:          "cuLaunchKernel",
	fnLaunchKernelEx:        "cuLaunchKernelEx",
	fnCopyHtoD:              "cuMemcpyHtoDAsync_v2",
	fnCopyDtoH:              "cuMemcpyDtoHAsync_v2",
	fnCopyDtoD:              "cuMemcpyDtoDAsync_v2",
	fnCopy:                  "cuMemcpyAsync",
	fnCopyPeer:              "cuMemcpyPeerAsync",
	fnSet8:                  "cuMemsetD8Async",
	fnSet16:                 "cuMemsetD16Async",
	fnSet32:                 "cuMemsetD32Async",
	fnCopyRows:              "cuMemcpy3DAsync_v2",
	fnCopyRowsPeer:          "cuMemcpy3DPeerAsync",
	fnSetRows8:              "cuMemsetD2D8Async",
	fnSetRows16:             "cuMemsetD2D16Async",
	fnSetRows32:             "cuMemsetD2D32Async",
	fnAlloc:                 "cuMemAllocAsync",
	fnAllocFromPool:         "cuMemAllocFromPoolAsync",
	fnFree:                  "cuMemFreeAsync",
	fnImportMemory:          "cuMemImportFromShareableHandle",
	fnImportPool:            "cuMemPoolImportFromShareableHandle",
	fnLaunchHostFunc:        "cuLaunchHostFunc",
	fnAddCallback:           "cuStreamAddCallback",
	fnBeginCapture:          "cuStreamBeginCapture_v2",
	fnGraphCreate:           "cuGraphCreate",
	fnGraphDestroy:          "cuGraphDestroy",
	fnGraphGetNodes:         "cuGraphGetNodes",
	fnGraphNodeType:         "cuGraphNodeGetType",
	fnInstantiate:           "cuGraphInstantiateWithFlags",
	fnExecDestroy:           "cuGraphExecDestroy",
	fnGraphLaunch:           "cuGraphLaunch",
	fnGraphUpload:           "cuGraphUpload",
	fnAddKernelNode:         "cuGraphAddKernelNode_v2",
	fnSetKernelNode:         "cuGraphKernelNodeSetParams_v2",
	fnSetExecKernelNode:     "cuGraphExecKernelNodeSetParams_v2",
	fnCtxGetID:              "cuCtxGetId",
	fnInstantiateWithParams: "cuGraphInstantiateWithParams",
}

// bind finds the functions in the loaded driver, and returns the name of one that is missing.
func bind(file string) (missing string) {
	find, err := finder(file)
	if err != nil {
		return file
	}
	for f := none + 1; f < functions; f++ {
		name := names[f]
		found := find(f, name)
		if !found && f >= fnAddKernelNode && f <= fnSetExecKernelNode {
			name = strings.TrimSuffix(name, "_v2")
			found = find(f, name)
		}
		if !found && f < fnCtxGetID {
			return name
		}
	}
	return ""
}
