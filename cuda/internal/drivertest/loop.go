//go:build cgo && linux

package drivertest

/*
#cgo LDFLAGS: -ldl
#cgo CFLAGS: -O2
#cgo noescape drivertest_empty
#cgo nocallback drivertest_empty

#include <stdlib.h>
#include "drivertest.h"
*/
import "C"

import "unsafe"

// Empty is a call of a C function that does nothing: what cgo costs alone.
func Empty() { C.drivertest_empty() }

// Symbol is the address of a function in a library, 0 where it is not there.
func Symbol(file, name string) uintptr {
	f, n := C.CString(file), C.CString(name)
	defer C.free(unsafe.Pointer(f))
	defer C.free(unsafe.Pointer(n))
	return uintptr(C.drivertest_symbol(f, n))
}

// LoopVersion calls fn, a cuDriverGetVersion, n times.
func LoopVersion(fn uintptr, n int) { C.drivertest_loop_version(C.uintptr_t(fn), C.long(n)) }

// LoopQuery calls fn, a cuStreamQuery, n times.
func LoopQuery(fn, stream uintptr, n int) {
	C.drivertest_loop_query(C.uintptr_t(fn), C.uintptr_t(stream), C.long(n))
}

// LoopLaunch calls fn, a cuLaunchKernel, n times with one block of one thread
// and no parameters.
func LoopLaunch(fn, function, stream uintptr, n int) {
	C.drivertest_loop_launch(C.uintptr_t(fn), C.uintptr_t(function), C.uintptr_t(stream), C.long(n))
}
