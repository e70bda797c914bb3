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
#cgo noescape rt_call
#cgo nocallback rt_call
#cgo noescape rt_call_functions
#cgo nocallback rt_call_functions
#cgo noescape rt_launch
#cgo nocallback rt_launch
#cgo noescape rt_kernel_node
#cgo nocallback rt_kernel_node
#cgo noescape rt_batch
#cgo nocallback rt_batch
#cgo noescape rt_kernel_nodes
#cgo nocallback rt_kernel_nodes
#cgo noescape rt_instantiate
#cgo nocallback rt_instantiate
#cgo noescape rt_await
#cgo nocallback rt_await
#cgo noescape rt_poll
#cgo nocallback rt_poll
#cgo noescape rt_wake
#cgo nocallback rt_wake
#cgo noescape rt_in_callback
#cgo nocallback rt_in_callback

#include <stdlib.h>
#include "rt.h"
*/
import "C"

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// finder returns a function that finds a function of the loaded driver, for C.
func finder(file string) (find func(f function, name string) bool, err error) {
	n := C.CString(file)
	defer C.free(unsafe.Pointer(n))
	library := C.rt_library(n)
	if library == 0 {
		return nil, errors.New("the driver is not loaded")
	}
	return func(f function, name string) bool {
		n := C.CString(name)
		defer C.free(unsafe.Pointer(n))
		return C.rt_find(C.uint(f), library, n) != 0
	}, nil
}

// do makes the call.
func (c *call) do() driver.CUresult {
	return driver.CUresult(C.rt_call((*C.uchar)(unsafe.Pointer(c))))
}

// CallsFunctions tells whether [Calls] can be made.
const CallsFunctions = true

// Symbol returns the address of a function of a library that is loaded from file, or 0.
func Symbol(file, name string) uintptr {
	f, n := C.CString(file), C.CString(name)
	defer C.free(unsafe.Pointer(f))
	defer C.free(unsafe.Pointer(n))
	return uintptr(C.rt_symbol(f, n))
}

// Do makes the calls in their order, unless Stream is capturing: then it makes none and returns CodeCapturing.
func (c *Calls) Do(functions *Function) driver.CUresult {
	return driver.CUresult(C.rt_call_functions((*C.uchar)(unsafe.Pointer(c)), (*C.uchar)(unsafe.Pointer(functions))))
}

// Enter makes a context current on this thread, to which the goroutine must be locked,
// until [Leave]. It returns CodeReset if id is not 0 and the context has another id. It asks
// whether the stream is capturing, unless that is 0: to ask later takes a further call of C.
func Enter(s *Scope, context driver.CUcontext, id uint64, mode Mode, stream driver.CUstream) driver.CUresult {
	code := driver.CUresult(C.rt_enter(C.uintptr_t(context), C.ulonglong(id), C.uint(mode), C.uintptr_t(stream), (*C.uchar)(unsafe.Pointer(s))))
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

// Do counts the graph's nodes and is cuGraphInstantiateWithParams in i.Context, before CUDA
// 12.0 cuGraphInstantiateWithFlags.
func (i *Instantiation) Do() driver.CUresult {
	return driver.CUresult(C.rt_instantiate((*C.uchar)(unsafe.Pointer(i))))
}

// Await waits for an event that is likely to complete in e.Expected nanoseconds. It sleeps between a few queries until
// shortly before that time, then queries all the time, and returns driver.CUDA_ERROR_NOT_READY shortly after it.
func Await(e *Entry) driver.CUresult {
	return driver.CUresult(C.rt_await((*C.uchar)(unsafe.Pointer(e))))
}

// Poll queries the events of entries until some have completed, and returns their number.
// It sleeps in between. It also returns if Wake was called after the alarm returned seen.
func Poll(entries []Entry, a *Alarm, seen uint32) int {
	return int(C.rt_poll((*C.uchar)(unsafe.Pointer(unsafe.SliceData(entries))), C.uint(len(entries)), (*C.uchar)(unsafe.Pointer(a)), C.uint(seen)))
}

// Wake ends the current Poll, or the next one if its seen is older.
func (a *Alarm) Wake() { C.rt_wake((*C.uchar)(unsafe.Pointer(a))) }

// run makes the calls of a list for [Batch].
func run(context driver.CUcontext, stream driver.CUstream, list *uint64, n int, outside bool) uint64 {
	check := C.uint(0)
	if outside {
		check = 1
	}
	return uint64(C.rt_batch(C.uintptr_t(context), C.uintptr_t(stream), (*C.uchar)(unsafe.Pointer(list)), C.uint(n), check))
}

// change adds or changes the nodes of a list for [KernelNodes].
func change(context driver.CUcontext, of uintptr, what NodeCall, n int, list *uint64, nodes *driver.CUgraphNode) uint64 {
	return uint64(C.rt_kernel_nodes(C.uintptr_t(context), C.uintptr_t(of), C.uint(what), C.uint(n), (*C.uchar)(unsafe.Pointer(list)), (*C.uchar)(unsafe.Pointer(nodes))))
}

// callbacks counts the threads on which InCallback is true. While there are none, it need
// not ask C.
var callbacks atomic.Int32

//export cudabindHostFunc
func cudabindHostFunc(token C.uintptr_t) {
	callbacks.Add(1)
	defer callbacks.Add(-1)
	OnHostFunc(uintptr(token))
}

//export cudabindStatus
func cudabindStatus(token C.uintptr_t, code C.uint) {
	callbacks.Add(1)
	defer callbacks.Add(-1)
	OnStatus(uintptr(token), driver.CUresult(code))
}

// HostFunction returns the address of the C function for host nodes of graphs, whose
// argument is a token.
func HostFunction() uintptr { return uintptr(C.rt_host_function()) }

func statusFunction() uintptr { return uintptr(C.rt_status_function()) }

// InCallback returns whether this goroutine must not wait: it runs on the driver's thread,
// in OnHostFunc or OnStatus, or its thread has entered the mode [Foreign].
func InCallback() bool { return callbacks.Load() != 0 && C.rt_in_callback() != 0 }
