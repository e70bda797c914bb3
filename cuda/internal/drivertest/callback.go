//go:build cgo && linux

package drivertest

/*
#include "drivertest.h"
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// Handle stands for a Go value in C.
type Handle = cgo.Handle

// NewHandle returns a handle of a value.
func NewHandle(v any) Handle { return cgo.NewHandle(v) }

//export drivertestHostFunc
func drivertestHostFunc(userData C.uintptr_t) {
	cgo.Handle(userData).Value().(func())()
}

//export drivertestStreamCallback
func drivertestStreamCallback(stream C.uintptr_t, status C.int, userData C.uintptr_t) {
	cgo.Handle(userData).Value().(func(stream uintptr, status int))(uintptr(stream), int(status))
}

// HostFunc is the address of a CUhostFn that runs the func() in the
// [cgo.Handle] it gets as user data, on the thread that calls it.
func HostFunc() uintptr { return address(C.drivertestHostFunc) }

// StreamCallback is the address of a CUstreamCallback that runs the
// func(stream uintptr, status int) in the [cgo.Handle] it gets as user
// data, on the thread that calls it.
func StreamCallback() uintptr { return address(C.drivertestStreamCallback) }

// BlockBytes is the address of a CUoccupancyB2DSize: 4 bytes a thread. It is
// C alone.
func BlockBytes() uintptr { return address(C.drivertest_block_bytes) }

// BlockBytesThread is the thread that last called [BlockBytes].
func BlockBytesThread() int { return int(C.drivertest_block_bytes_thread()) }

// Destructor is the address of a CUhostFn that adds its user data to a sum. It
// is C alone.
func Destructor() uintptr { return address(C.drivertest_destroy) }

// Destroyed is the sum that [Destructor] made.
func Destroyed() int { return int(C.drivertest_destroyed()) }

// Call calls a C function of up to three words, which may call Go, on this thread.
func Call(fn, a, b, c uintptr) {
	C.drivertest_call(C.uintptr_t(fn), C.uintptr_t(a), C.uintptr_t(b), C.uintptr_t(c))
}

func address(fn unsafe.Pointer) uintptr { return uintptr(fn) }
