//go:build (linux && (cgo || cudabind_nocgo)) || (windows && amd64)

package sim

import (
	"fmt"
	"reflect"
	"unsafe"
)

// A fault is a panic that fails the launch with a code of its own.
type fault struct {
	code uint32
	text string
}

func (f fault) Error() string { return f.text }

// Slice returns the values from an address in device memory to the end of the allocation, for
// functions of [Control.Kernel] that get the address in a struct or in memory. It is nil for a
// null address. For an address that a kernel cannot use, Slice panics, which fails the launch
// with CUDA_ERROR_ILLEGAL_ADDRESS, or CUDA_ERROR_MISALIGNED_ADDRESS. The rules for T and for the
// slice are those of [Control.Kernel].
func Slice[T any](address uint64) []T {
	must[T]()
	if address == 0 {
		return nil
	}
	var rest uintptr
	var code uint32
	pinned(&rest, func(to uintptr) {
		code = uint32(simMemory.call(uintptr(address), unsafe.Alignof(*new(T)), to))
	})
	failIf(code, fmt.Sprintf("address %#x", address))
	return sliceOf[T](address, rest)
}

// Variable returns the values of a __device__, __constant__ or __managed__ variable of the
// module whose kernel runs, for functions of [Control.Kernel]. The name is that of the source,
// such as "ns::table", or the symbol. If there is no such variable, Variable panics, which fails
// the launch with CUDA_ERROR_LAUNCH_FAILED. The rules for T and for the slice are those of
// [Control.Kernel].
func Variable[T any](name string) []T {
	must[T]()
	var to struct{ address, size uint64 }
	var code uint32
	symbol := append([]byte(name), 0)
	pinned(&symbol[0], func(symbol uintptr) {
		pinned(&to, func(at uintptr) { code = uint32(simVariable.call(symbol, at, at+unsafe.Offsetof(to.size))) })
	})
	failIf(code, "variable "+name)
	return sliceOf[T](to.address, uintptr(to.size))
}

// must panics if device memory cannot hold a T.
func must[T any]() {
	if why := unfit(reflect.TypeFor[T]()); why != "" {
		panic("sim: " + why)
	}
}

// failIf panics for a code of the driver.
func failIf(code uint32, what string) {
	switch code {
	case 0:
	case notPermitted:
		panic("sim: " + what + " is used, but no kernel runs")
	case illegalAddress:
		panic(fault{code, what + " is no memory that the kernel can use"})
	case misalignedAddress:
		panic(fault{code, what + " is not a multiple of what its values need"})
	case notFound:
		panic(fault{launchFailed, what + " is not in the kernel's module"})
	default:
		panic(fault{launchFailed, what + " is of a size that the simulated driver cannot tell"})
	}
}

func sliceOf[T any](address uint64, bytes uintptr) []T {
	return unsafe.Slice(*(**T)(unsafe.Pointer(&address)), bytes/unsafe.Sizeof(*new(T)))
}
