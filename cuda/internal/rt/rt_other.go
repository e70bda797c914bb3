//go:build !((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) && !(windows && amd64)

package rt

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Init fails, as the raw packages do, and nothing else is called.

const none = driver.CUDA_ERROR_NOT_SUPPORTED

func bind(string) string { return "" }

func Enter(*Scope, driver.CUcontext, uint64, Mode) driver.CUresult { return none }

func Leave(*Scope) {}

func Query(driver.CUcontext, driver.CUstream, int64) driver.CUresult { return none }

func Capturing(driver.CUcontext, driver.CUstream) bool { return false }

func Mark(driver.CUcontext, driver.CUstream, driver.CUevent) driver.CUresult { return none }

func Record(driver.CUcontext, driver.CUevent, driver.CUstream) driver.CUresult { return none }

func RecordWith(driver.CUcontext, driver.CUevent, driver.CUstream, uint32) driver.CUresult {
	return none
}

func WaitEvent(driver.CUcontext, driver.CUstream, driver.CUevent, uint32, bool) driver.CUresult {
	return none
}

func EventQuery(driver.CUcontext, driver.CUevent, int64) driver.CUresult { return none }

func (*Launch) Do(*Arg) driver.CUresult { return none }

func (*Copy) Do(unsafe.Pointer) driver.CUresult { return none }

func (*Alloc) Do() driver.CUresult { return none }

func (Home) FreeAsync(driver.CUdeviceptr, driver.CUstream) driver.CUresult { return none }

func (Home) Free(driver.CUdeviceptr, driver.CUstream) driver.CUresult { return none }

func (Home) Mark(driver.CUstream, driver.CUevent) driver.CUresult { return none }

func (Home) EventQuery(driver.CUevent) driver.CUresult { return none }

func ImportMemory(*driver.CUmemGenericAllocationHandle, uintptr) driver.CUresult { return none }

func ImportPool(*driver.CUmemoryPool, uintptr) driver.CUresult { return none }

func Poll([]Entry, *Alarm, uint32) int { return 0 }

func (*Alarm) Wake() {}

func HostFunc(driver.CUcontext, driver.CUstream, uintptr, int) driver.CUresult { return none }

func AddCallback(driver.CUcontext, driver.CUstream, uintptr) driver.CUresult { return none }

func (*KernelNode) Do(*driver.CUgraphNode, *Arg) driver.CUresult { return none }

func HostFunction() uintptr { return 0 }

func InCallback() bool { return false }

func Thread() int { return 0 }

func GraphLaunch(driver.CUcontext, driver.CUgraphExec, driver.CUstream) driver.CUresult { return none }

func GraphUpload(driver.CUcontext, driver.CUgraphExec, driver.CUstream) driver.CUresult { return none }

func run(driver.CUcontext, driver.CUstream, *uint64, int, bool) uint64 { return uint64(none) }

func change(driver.CUcontext, uintptr, NodeCall, int, *uint64, *driver.CUgraphNode) uint64 {
	return uint64(none)
}

func (Home) Check() driver.CUresult { return none }

func (Home) CreateStream(*driver.CUstream, driver.CUstream_flags, int) driver.CUresult { return none }

func (Home) CreateGraph(*driver.CUgraph) driver.CUresult { return none }

func (Home) DestroyGraph(driver.CUgraph) driver.CUresult { return none }

func (Home) DestroyExec(driver.CUgraphExec) driver.CUresult { return none }

func (Home) BeginCapture(driver.CUstream, driver.CUstreamCaptureMode) driver.CUresult { return none }

func (Home) EndCapture(driver.CUstream, *driver.CUgraph) driver.CUresult { return none }

func (*Instantiation) Do() driver.CUresult { return none }
