//go:build cgo && linux && (amd64 || arm64)

package rt

/*
#cgo LDFLAGS: -ldl
#cgo CFLAGS: -O2

// These functions neither call Go on the same thread nor retain pointers. Structs are
// passed as unsigned char, in which cgo does not look for Go pointers: the arguments of a
// launch contain some.
#cgo noescape rt_enter
#cgo nocallback rt_enter
#cgo noescape rt_leave
#cgo nocallback rt_leave
#cgo noescape rt_query
#cgo nocallback rt_query
#cgo noescape rt_capturing
#cgo nocallback rt_capturing
#cgo noescape rt_mark
#cgo nocallback rt_mark
#cgo noescape rt_home_mark
#cgo nocallback rt_home_mark
#cgo noescape rt_home_query
#cgo nocallback rt_home_query
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
#cgo noescape rt_alloc
#cgo nocallback rt_alloc
#cgo noescape rt_import_memory
#cgo nocallback rt_import_memory
#cgo noescape rt_in_callback
#cgo nocallback rt_in_callback
#cgo noescape rt_begin_capture
#cgo nocallback rt_begin_capture
#cgo noescape rt_end_capture
#cgo nocallback rt_end_capture
#cgo noescape rt_instantiate
#cgo nocallback rt_instantiate
#cgo noescape rt_destroy_exec
#cgo nocallback rt_destroy_exec
#cgo noescape rt_graph
#cgo nocallback rt_graph
#cgo noescape rt_kernel_node
#cgo nocallback rt_kernel_node
#cgo noescape rt_batch
#cgo nocallback rt_batch
#cgo noescape rt_kernel_nodes
#cgo nocallback rt_kernel_nodes
#cgo noescape rt_check_home
#cgo nocallback rt_check_home
#cgo noescape rt_create_stream
#cgo nocallback rt_create_stream
#cgo noescape rt_create_graph
#cgo nocallback rt_create_graph
#cgo noescape rt_destroy_graph
#cgo nocallback rt_destroy_graph
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

// Enter makes a context current on this thread, to which the goroutine must be locked,
// until [Leave]. It returns CodeReset if id is not 0 and the context has another id.
func Enter(s *Scope, context driver.CUcontext, id uint64, mode Mode) driver.CUresult {
	code := driver.CUresult(C.rt_enter(C.uintptr_t(context), C.ulonglong(id), C.uint(mode), (*C.uchar)(unsafe.Pointer(s))))
	if code == 0 && mode == Foreign {
		callbacks.Add(1)
		s.set |= isForeign
	}
	return code
}

const isForeign = 2 // in Scope.set, which C compares to 0

// Leave restores the state before [Enter].
func Leave(s *Scope) {
	foreign := s.set&isForeign != 0
	C.rt_leave((*C.uchar)(unsafe.Pointer(s)))
	if foreign {
		callbacks.Add(-1)
	}
}

// Check returns CodeReset if the context has another ID.
func (h Home) Check() driver.CUresult {
	return driver.CUresult(C.rt_check_home(C.uintptr_t(h.Context), C.ulonglong(h.ID)))
}

// CreateStream is cuStreamCreateWithPriority in h.Context.
func (h Home) CreateStream(stream *driver.CUstream, flags driver.CUstream_flags, priority int) driver.CUresult {
	return driver.CUresult(C.rt_create_stream(C.uintptr_t(h.Context), C.ulonglong(h.ID), (*C.uchar)(unsafe.Pointer(stream)), C.uint(flags), C.int(priority)))
}

// CreateGraph is cuGraphCreate in h.Context.
func (h Home) CreateGraph(graph *driver.CUgraph) driver.CUresult {
	return driver.CUresult(C.rt_create_graph(C.uintptr_t(h.Context), C.ulonglong(h.ID), (*C.uchar)(unsafe.Pointer(graph))))
}

// DestroyGraph is cuGraphDestroy in h.Context.
func (h Home) DestroyGraph(graph driver.CUgraph) driver.CUresult {
	return driver.CUresult(C.rt_destroy_graph(C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(graph)))
}

// BeginCapture is cuStreamBeginCapture in h.Context, unless the stream is capturing.
func (h Home) BeginCapture(stream driver.CUstream, mode driver.CUstreamCaptureMode) driver.CUresult {
	return driver.CUresult(C.rt_begin_capture(C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(stream), C.uint(mode)))
}

// EndCapture is cuStreamEndCapture in h.Context, or in the thread's own context if that
// cannot be made current.
func (h Home) EndCapture(stream driver.CUstream, graph *driver.CUgraph) driver.CUresult {
	return driver.CUresult(C.rt_end_capture(C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(stream), (*C.uchar)(unsafe.Pointer(graph))))
}

// Do counts the graph's nodes and is cuGraphInstantiateWithParams in i.Context, before CUDA
// 12.0 cuGraphInstantiateWithFlags.
func (i *Instantiation) Do() driver.CUresult {
	return driver.CUresult(C.rt_instantiate((*C.uchar)(unsafe.Pointer(i))))
}

// DestroyExec is cuGraphExecDestroy in h.Context.
func (h Home) DestroyExec(exec driver.CUgraphExec) driver.CUresult {
	return driver.CUresult(C.rt_destroy_exec(C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(exec)))
}

// Query queries for up to spin nanoseconds whether the stream's work has completed. It does
// not query a capturing stream, which would invalidate the capture.
func Query(context driver.CUcontext, stream driver.CUstream, spin int64) driver.CUresult {
	return driver.CUresult(C.rt_query(C.uintptr_t(context), C.uintptr_t(stream), C.long(spin)))
}

// Capturing returns whether the stream is capturing.
func Capturing(context driver.CUcontext, stream driver.CUstream) bool {
	return C.rt_capturing(C.uintptr_t(context), C.uintptr_t(stream)) != 0
}

// Mark records event after the stream's work and returns driver.CUDA_ERROR_NOT_READY, or
// 0 if the work has completed.
func Mark(context driver.CUcontext, stream driver.CUstream, event driver.CUevent) driver.CUresult {
	return driver.CUresult(C.rt_mark(C.uintptr_t(context), C.uintptr_t(stream), C.uintptr_t(event)))
}

// Record is cuEventRecord, unless the stream is capturing.
func Record(context driver.CUcontext, event driver.CUevent, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_record(C.uintptr_t(context), C.uintptr_t(event), C.uintptr_t(stream)))
}

// RecordWith is cuEventRecord, or cuEventRecordWithFlags with flags. It also records on a
// capturing stream, and then returns CodeCaptured.
func RecordWith(context driver.CUcontext, event driver.CUevent, stream driver.CUstream, flags uint32) driver.CUresult {
	return driver.CUresult(C.rt_record_with(C.uintptr_t(context), C.uintptr_t(event), C.uintptr_t(stream), C.uint(flags)))
}

// WaitEvent is cuStreamWaitEvent. If outside is set, the event was recorded outside of
// captures, and a capturing stream cannot wait for it.
func WaitEvent(context driver.CUcontext, stream driver.CUstream, event driver.CUevent, flags uint32, outside bool) driver.CUresult {
	check := C.uint(0)
	if outside {
		check = 1
	}
	return driver.CUresult(C.rt_wait_event(C.uintptr_t(context), C.uintptr_t(stream), C.uintptr_t(event), C.uint(flags), check))
}

// EventQuery queries an event for up to spin nanoseconds.
func EventQuery(context driver.CUcontext, event driver.CUevent, spin int64) driver.CUresult {
	return driver.CUresult(C.rt_event_query(C.uintptr_t(context), C.uintptr_t(event), C.long(spin)))
}

// Do is cuLaunchKernel, or cuLaunchKernelEx with attributes. args points to l.Args
// arguments.
func (l *Launch) Do(args *Arg) driver.CUresult {
	return driver.CUresult(C.rt_launch((*C.uchar)(unsafe.Pointer(l)), (*C.uchar)(unsafe.Pointer(args))))
}

// Do is cuGraphAddKernelNode, or changes the node. deps and args point to n.Deps and
// n.Args elements.
func (n *KernelNode) Do(deps *driver.CUgraphNode, args *Arg) driver.CUresult {
	return driver.CUresult(C.rt_kernel_node((*C.uchar)(unsafe.Pointer(n)), (*C.uchar)(unsafe.Pointer(deps)), (*C.uchar)(unsafe.Pointer(args))))
}

// Do enqueues a copy, a memset or a launch, and waits for the stream if c.Wait is set, also after
// an error, but not if it has refused the copy. host is the host side of the copy, or the list
// with the launch.
func (c *Copy) Do(host unsafe.Pointer) driver.CUresult {
	return driver.CUresult(C.rt_copy((*C.uchar)(unsafe.Pointer(c)), (*C.uchar)(host)))
}

// Do is cuMemAllocAsync or cuMemAllocFromPoolAsync, and sets a.Address.
func (a *Alloc) Do() driver.CUresult {
	return driver.CUresult(C.rt_alloc((*C.uchar)(unsafe.Pointer(a))))
}

// FreeAsync is cuMemFreeAsync, unless the stream is capturing.
func (h Home) FreeAsync(address driver.CUdeviceptr, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_free_async(C.uintptr_t(h.CallContext), C.uintptr_t(h.Context), C.ulonglong(h.ID), C.ulonglong(address), C.uintptr_t(stream), 1))
}

// Free is cuMemFreeAsync on a stream that never captures.
func (h Home) Free(address driver.CUdeviceptr, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_free_async(C.uintptr_t(h.CallContext), C.uintptr_t(h.Context), C.ulonglong(h.ID), C.ulonglong(address), C.uintptr_t(stream), 0))
}

// Mark is the function Mark.
func (h Home) Mark(stream driver.CUstream, event driver.CUevent) driver.CUresult {
	return driver.CUresult(C.rt_home_mark(C.uintptr_t(h.CallContext), C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(stream), C.uintptr_t(event)))
}

// EventQuery queries an event.
func (h Home) EventQuery(event driver.CUevent) driver.CUresult {
	return driver.CUresult(C.rt_home_query(C.uintptr_t(h.CallContext), C.uintptr_t(h.Context), C.ulonglong(h.ID), C.uintptr_t(event)))
}

// ImportMemory is cuMemImportFromShareableHandle for a file descriptor, which must never
// be a pointer in Go.
func ImportMemory(memory *driver.CUmemGenericAllocationHandle, fd uintptr) driver.CUresult {
	return driver.CUresult(C.rt_import_memory((*C.uchar)(unsafe.Pointer(memory)), C.uintptr_t(fd)))
}

// ImportPool is cuMemPoolImportFromShareableHandle for a file descriptor.
func ImportPool(pool *driver.CUmemoryPool, fd uintptr) driver.CUresult {
	return driver.CUresult(C.rt_import_pool((*C.uchar)(unsafe.Pointer(pool)), C.uintptr_t(fd)))
}

// Poll queries the events of entries until some have completed, and returns their number.
// It sleeps in between. It also returns if Wake was called after the alarm returned seen.
func Poll(entries []Entry, a *Alarm, seen uint32) int {
	return int(C.rt_poll((*C.uchar)(unsafe.Pointer(unsafe.SliceData(entries))), C.uint(len(entries)), (*C.uchar)(unsafe.Pointer(a)), C.uint(seen)))
}

// Wake ends the current Poll, or the next one if its seen is older.
func (a *Alarm) Wake() { C.rt_wake((*C.uchar)(unsafe.Pointer(a))) }

// GraphLaunch is cuGraphLaunch, unless the stream is capturing.
func GraphLaunch(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_graph(C.uintptr_t(context), C.uintptr_t(exec), C.uintptr_t(stream), 0))
}

// GraphUpload is cuGraphUpload, unless the stream is capturing.
func GraphUpload(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return driver.CUresult(C.rt_graph(C.uintptr_t(context), C.uintptr_t(exec), C.uintptr_t(stream), 1))
}

// run is [Batch].
func run(context driver.CUcontext, stream driver.CUstream, list *uint64, n int, outside bool) uint64 {
	check := C.uint(0)
	if outside {
		check = 1
	}
	return uint64(C.rt_batch(C.uintptr_t(context), C.uintptr_t(stream), (*C.uchar)(unsafe.Pointer(list)), C.uint(n), check))
}

// change is [KernelNodes].
func change(context driver.CUcontext, of uintptr, what NodeCall, n int, list *uint64, nodes *driver.CUgraphNode) uint64 {
	return uint64(C.rt_kernel_nodes(C.uintptr_t(context), C.uintptr_t(of), C.uint(what), C.uint(n), (*C.uchar)(unsafe.Pointer(list)), (*C.uchar)(unsafe.Pointer(nodes))))
}
