//go:build cgo && linux && (amd64 || arm64)

package rt

/*
#cgo LDFLAGS: -ldl
#cgo CFLAGS: -O2

// Nothing here calls back into Go on its own thread, and nothing is kept. What
// is pointed to goes as unsigned char, whose target cgo does not search for Go
// pointers: the arguments of a launch hold some.
#cgo noescape rt_enter
#cgo nocallback rt_enter
#cgo noescape rt_leave
#cgo nocallback rt_leave
#cgo noescape rt_query
#cgo nocallback rt_query
#cgo noescape rt_capturing
#cgo nocallback rt_capturing
#cgo noescape rt_point
#cgo nocallback rt_point
#cgo noescape rt_mark
#cgo nocallback rt_mark
#cgo noescape rt_reached
#cgo nocallback rt_reached
#cgo noescape rt_record
#cgo nocallback rt_record
#cgo noescape rt_record_with
#cgo nocallback rt_record_with
#cgo noescape rt_wait_event
#cgo nocallback rt_wait_event
#cgo noescape rt_event_query
#cgo nocallback rt_event_query
#cgo noescape rt_launch
#cgo nocallback rt_launch
#cgo noescape rt_copy
#cgo nocallback rt_copy
#cgo noescape rt_alloc_async
#cgo nocallback rt_alloc_async
#cgo noescape rt_import_memory
#cgo nocallback rt_import_memory
#cgo noescape rt_in_callback
#cgo nocallback rt_in_callback
#cgo noescape rt_thread
#cgo nocallback rt_thread
#cgo noescape rt_graph
#cgo nocallback rt_graph
#cgo noescape rt_kernel_node
#cgo nocallback rt_kernel_node
#cgo noescape rt_poll
#cgo nocallback rt_poll
#cgo noescape rt_wake
#cgo nocallback rt_wake
#cgo noescape rt_free_async
#cgo nocallback rt_free_async
#cgo noescape rt_import_pool
#cgo nocallback rt_import_pool

#include <stdlib.h>
#include "rt.h"
*/
import "C"

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

func bind(file string) (missing string) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	return C.GoString(C.rt_bind(name))
}

// Enter makes a context current on this thread, to which the goroutine must be
// locked, and with relaxed set its capture mode RELAXED, until [Leave]. An id
// other than 0 is the one that the context must still have.
func Enter(s *Scope, context driver.CUcontext, id uint64, relaxed bool) driver.CUresult {
	r := C.uint(0)
	if relaxed {
		r = 1
	}
	return driver.CUresult(C.rt_enter(C.uintptr_t(context), C.ulonglong(id), r, (*C.uchar)(unsafe.Pointer(s))))
}

// Leave puts back what [Enter] found.
func Leave(s *Scope) { C.rt_leave((*C.uchar)(unsafe.Pointer(s))) }

// Query asks whether the stream's work is done. A capturing stream is not
// asked: that would destroy the capture.
func Query(context driver.CUcontext, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_query(C.uintptr_t(context), C.uintptr_t(stream)))
}

// Capturing tells whether the stream captures.
func Capturing(context driver.CUcontext, stream driver.CUstream) bool {
	return C.rt_capturing(C.uintptr_t(context), C.uintptr_t(stream)) != 0
}

// Point records event after the stream's work, unless that is done already. It is
// driver.CUDA_ERROR_NOT_READY if it has recorded it.
func Point(context driver.CUcontext, stream driver.CUstream, event driver.CUevent) driver.CUresult {
	return driver.CUresult(C.rt_point(C.uintptr_t(context), C.uintptr_t(stream), C.uintptr_t(event)))
}

// Record is cuEventRecord, unless the stream captures.
func Record(context driver.CUcontext, event driver.CUevent, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_record(C.uintptr_t(context), C.uintptr_t(event), C.uintptr_t(stream)))
}

// RecordWith is cuEventRecord, with flags cuEventRecordWithFlags, also on a stream
// that captures: the result is then CodeCaptured.
func RecordWith(context driver.CUcontext, event driver.CUevent, stream driver.CUstream, flags uint32) driver.CUresult {
	return driver.CUresult(C.rt_record_with(C.uintptr_t(context), C.uintptr_t(event), C.uintptr_t(stream), C.uint(flags)))
}

// WaitEvent is cuStreamWaitEvent, unless the stream captures and the event stands for
// work outside of captures.
func WaitEvent(context driver.CUcontext, stream driver.CUstream, event driver.CUevent, flags uint32, outside bool) driver.CUresult {
	check := C.uint(0)
	if outside {
		check = 1
	}
	return driver.CUresult(C.rt_wait_event(C.uintptr_t(context), C.uintptr_t(stream), C.uintptr_t(event), C.uint(flags), check))
}

// EventQuery asks whether an event is done, for up to spin nanoseconds.
func EventQuery(context driver.CUcontext, event driver.CUevent, spin int64) driver.CUresult {
	return driver.CUresult(C.rt_event_query(C.uintptr_t(context), C.uintptr_t(event), C.long(spin)))
}

// Do is cuLaunchKernel, with attributes cuLaunchKernelEx. args points to as many
// arguments as l says.
func (l *Launch) Do(args *Arg) driver.CUresult {
	return driver.CUresult(C.rt_launch((*C.uchar)(unsafe.Pointer(l)), (*C.uchar)(unsafe.Pointer(args))))
}

// Do is cuGraphAddKernelNode, or changes the node. deps and args point to as many as
// n says.
func (n *KernelNode) Do(deps *driver.CUgraphNode, args *Arg) driver.CUresult {
	return driver.CUresult(C.rt_kernel_node((*C.uchar)(unsafe.Pointer(n)), (*C.uchar)(unsafe.Pointer(deps)), (*C.uchar)(unsafe.Pointer(args))))
}

// Do enqueues a copy or memset, and waits for the stream if c says so. host is
// the end of the copy that is not on a device.
func (c *Copy) Do(host unsafe.Pointer) driver.CUresult {
	return driver.CUresult(C.rt_copy((*C.uchar)(unsafe.Pointer(c)), (*C.uchar)(host)))
}

// AllocAsync is cuMemAllocAsync.
func AllocAsync(context driver.CUcontext, address *driver.CUdeviceptr, size uint64, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_alloc_async(C.uintptr_t(context), (*C.uchar)(unsafe.Pointer(address)), C.ulonglong(size), C.uintptr_t(stream)))
}

// FreeAsync is cuMemFreeAsync, unless the stream captures.
func (h Home) FreeAsync(address driver.CUdeviceptr, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_free_async(C.uintptr_t(h.Set), C.uintptr_t(h.Context), C.ulonglong(h.ID), C.ulonglong(address), C.uintptr_t(stream)))
}

// Point is the function Point.
func (h Home) Point(stream driver.CUstream, event driver.CUevent) driver.CUresult {
	return driver.CUresult(C.rt_mark(C.uintptr_t(h.Set), C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(stream), C.uintptr_t(event)))
}

// EventQuery asks whether an event is done.
func (h Home) EventQuery(event driver.CUevent) driver.CUresult {
	return driver.CUresult(C.rt_reached(C.uintptr_t(h.Set), C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(event)))
}

// ImportMemory is cuMemImportFromShareableHandle of a file's number, which must
// never be a pointer in Go.
func ImportMemory(memory *driver.CUmemGenericAllocationHandle, fd uintptr) driver.CUresult {
	return driver.CUresult(C.rt_import_memory((*C.uchar)(unsafe.Pointer(memory)), C.uintptr_t(fd)))
}

// ImportPool is cuMemPoolImportFromShareableHandle for a file descriptor.
func ImportPool(pool *driver.CUmemoryPool, fd uintptr) driver.CUresult {
	return driver.CUresult(C.rt_import_pool((*C.uchar)(unsafe.Pointer(pool)), C.uintptr_t(fd)))
}

// Poll asks the events of entries until some are done or Wake was called since
// the alarm was at seen, and returns how many are done. It sleeps in between.
func Poll(entries []Entry, a *Alarm, seen uint32) int {
	return int(C.rt_poll((*C.uchar)(unsafe.Pointer(unsafe.SliceData(entries))), C.uint(len(entries)), (*C.uchar)(unsafe.Pointer(a)), C.uint(seen)))
}

// Wake ends the Poll that is under way, or the next one whose alarm was seen before.
func (a *Alarm) Wake() { C.rt_wake((*C.uchar)(unsafe.Pointer(a))) }

// GraphLaunch is cuGraphLaunch, unless the stream captures.
func GraphLaunch(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_graph(C.uintptr_t(context), C.uintptr_t(exec), C.uintptr_t(stream), 0))
}

// GraphUpload is cuGraphUpload, unless the stream captures.
func GraphUpload(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_graph(C.uintptr_t(context), C.uintptr_t(exec), C.uintptr_t(stream), 1))
}
