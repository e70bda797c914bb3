//go:build linux && !cgo && cudabind_nocgo

package sim

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// loaded returns the library of a file if this process has loaded it, else 0.
func loaded(file string) uintptr {
	const noLoad = 4
	lib, _ := purego.Dlopen(file, purego.RTLD_LAZY|noLoad)
	return lib
}

// find returns the address of a function that a library exports, or 0.
func find(lib uintptr, function string) uintptr {
	address, _ := purego.Dlsym(lib, function)
	return address
}

// enter calls the function at an address.
func enter(f uintptr, a [5]uintptr) uintptr {
	r, _, _ := purego.SyscallN(f, a[0], a[1], a[2], a[3], a[4])
	return r
}

// goKernel is the address of a C function that calls runKernel.
var goKernel = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(id uintptr, g *launched, args *unsafe.Pointer, rest *uintptr, why *byte, room uintptr) uintptr {
		return uintptr(runKernel(id, g, args, rest, why, room))
	})
})
