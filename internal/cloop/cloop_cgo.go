//go:build cgo && linux

package cloop

/*
#cgo LDFLAGS: -ldl -pthread
#cgo CFLAGS: -O2
#cgo noescape cloop_empty
#cgo nocallback cloop_empty
#cgo noescape cloop_run
#cgo nocallback cloop_run
#cgo noescape cloop_timed
#cgo nocallback cloop_timed
#cgo noescape cloop_now
#cgo nocallback cloop_now
#cgo noescape cloop_watch
#cgo nocallback cloop_watch
#cgo noescape cloop_watched
#cgo nocallback cloop_watched

#include <stdlib.h>
#include "cloop.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Built tells whether the loops were built, which takes cgo.
const Built = true

// Empty is a call of a C function that does nothing: what cgo costs alone.
func Empty() { C.cloop_empty() }

// Symbol is the address of a function of a library that is loaded already, 0
// where it is not there.
func Symbol(file, name string) uintptr {
	f, n := C.CString(file), C.CString(name)
	defer C.free(unsafe.Pointer(f))
	defer C.free(unsafe.Pointer(n))
	return uintptr(C.cloop_symbol(f, n))
}

// Now is the time of CLOCK_MONOTONIC, in nanoseconds.
func Now() int64 { return int64(C.cloop_now()) }

// Run goes through the loop n times. It returns the last code of the driver's
// that was not 0, if there was one. It panics if the arguments are too few or
// too many, or if a function is 0.
func (l Loop) Run(n int, args ...uintptr) (code int) {
	return int(C.cloop_run(C.uint(l), l.check(args), C.long(n)))
}

// Timed goes through the loop once for each of ns, which gets how long that
// took, in nanoseconds. It ends at the first code that is not 0. It panics where
// Run does.
func (l Loop) Timed(ns []int64, args ...uintptr) (code int) {
	return int(C.cloop_timed(C.uint(l), l.check(args), (*C.int64_t)(unsafe.SliceData(ns)), C.long(len(ns))))
}

func (l Loop) check(args []uintptr) *C.uintptr_t {
	if len(args) != arguments[l] || len(args) > 0 && args[0] == 0 {
		panic(fmt.Sprintf("cloop: loop %d with %#x", l, args))
	}
	return (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(args)))
}

// Start starts a thread that makes a context current by cuCtxSetCurrent and
// waits for an event by cuEventSynchronize. ok tells whether it could; Done must
// be called then.
func Start(synchronize, event, setCurrent, context uintptr) (w Watch, ok bool) {
	args := [...]uintptr{synchronize, event, setCurrent, context}
	w.thread = unsafe.Pointer(C.cloop_watch((*C.uintptr_t)(unsafe.Pointer(&args[0]))))
	return w, w.thread != nil
}

// Done waits for the thread. It returns when that had waited, as [Now] tells
// time, and the first code of the driver's that was not 0.
func (w Watch) Done() (at int64, code int) {
	var t C.int64_t
	code = int(C.cloop_watched((*C.struct_cloop_watch)(w.thread), &t))
	return int64(t), code
}
