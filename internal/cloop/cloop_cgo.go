//go:build cgo && linux

package cloop

/*
#cgo LDFLAGS: -ldl -pthread
#cgo CFLAGS: -O2
#cgo noescape cloop_empty
#cgo nocallback cloop_empty
#cgo noescape cloop_run
#cgo nocallback cloop_run

#include <stdlib.h>
#include "cloop.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

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

// Run goes through the loop n times. It returns the last code of the driver's
// that was not 0, if there was one. It panics if the arguments are too few or
// too many, or if a function is 0.
func (l Loop) Run(n int, args ...uintptr) (code int) {
	if len(args) != arguments[l] || len(args) > 0 && args[0] == 0 {
		panic(fmt.Sprintf("cloop: loop %d with %#x", l, args))
	}
	return int(C.cloop_run(C.uint(l), (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(args))), C.long(n)))
}
