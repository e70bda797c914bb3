//go:build !cgo && cudabind_nocgo && (amd64 || arm64)

package rt

import (
	"unsafe"

	"github.com/ebitengine/purego" // so that runtime.cgocall works in a program without cgo
)

// cgocall calls a C function with one argument, as cgo does.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// stepper is the address of a C function in assembly, which makes the steps.
var stepper uintptr

func (s *steps) do() {
	before := uintptr(unsafe.Pointer(s))
	cgocall(stepper, unsafe.Pointer(s))
	if uintptr(unsafe.Pointer(s)) != before {
		panic("cudabind: a call of CUDA has called Go, and the stack has moved: the call's results are lost")
	}
}

// symbols returns a function that finds the address of a function in the loaded driver, or 0.
func symbols(file string) (address func(name string) uintptr, err error) {
	const noLoad = 4
	lib, err := purego.Dlopen(file, purego.RTLD_LAZY|noLoad)
	return func(name string) uintptr {
		address, _ := purego.Dlsym(lib, name) // 0 with an error
		return address
	}, err
}
