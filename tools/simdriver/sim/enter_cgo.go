//go:build linux && cgo

package sim

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include "c/simulate.h"

static void *loaded(const char *file) { return dlopen(file, RTLD_LAZY | RTLD_NOLOAD); }

// Integers and addresses go the same way into every function.
static uintptr_t enter(uintptr_t f, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e)
{
	return ((uintptr_t (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t))f)(a, b, c, d, e);
}

extern unsigned simGoKernel(size_t, struct simGrid *, void **, size_t *, char *, size_t);
static uintptr_t go_kernel(void) { return (uintptr_t)simGoKernel; }
*/
import "C"

import "unsafe"

// loaded returns the library of a file if this process has loaded it, else 0.
func loaded(file string) uintptr {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	return uintptr(C.loaded(name))
}

// find returns the address of a function that a library exports, or 0.
func find(lib uintptr, function string) uintptr {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return uintptr(C.dlsym(*(*unsafe.Pointer)(unsafe.Pointer(&lib)), name))
}

// enter calls the function at an address.
func enter(f uintptr, a [5]uintptr) uintptr {
	return uintptr(C.enter(C.uintptr_t(f), C.uintptr_t(a[0]), C.uintptr_t(a[1]), C.uintptr_t(a[2]), C.uintptr_t(a[3]), C.uintptr_t(a[4])))
}

// goKernel is the address of a C function that calls runKernel.
func goKernel() uintptr { return uintptr(C.go_kernel()) }

//export simGoKernel
func simGoKernel(id C.size_t, g *C.struct_simGrid, args *unsafe.Pointer, rest *C.size_t, why *C.char, room C.size_t) C.uint {
	return C.uint(runKernel(uintptr(id), (*launched)(unsafe.Pointer(g)), args, (*uintptr)(unsafe.Pointer(rest)), (*byte)(unsafe.Pointer(why)), uintptr(room)))
}

// The Go structs have the layouts of C's.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(launched{})-C.sizeof_struct_simGrid]
	_ = [1]struct{}{}[unsafe.Sizeof(parameter{})-C.sizeof_struct_simParameter]
)
