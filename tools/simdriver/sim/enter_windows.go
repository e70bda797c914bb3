//go:build amd64

package sim

import (
	"sync"
	"syscall"
	"unsafe"
)

var moduleHandle = syscall.NewLazyDLL("kernel32.dll").NewProc("GetModuleHandleW")

// loaded returns the library of a file if this process has loaded it, else 0.
func loaded(file string) uintptr {
	name, err := syscall.UTF16PtrFromString(file)
	if err != nil {
		return 0
	}
	lib, _, _ := moduleHandle.Call(uintptr(unsafe.Pointer(name)))
	return lib
}

// find returns the address of a function that a library exports, or 0.
func find(lib uintptr, function string) uintptr {
	address, _ := syscall.GetProcAddress(syscall.Handle(lib), function)
	return address
}

// enter calls the function at an address.
func enter(f uintptr, a [5]uintptr) uintptr {
	r, _, _ := syscall.SyscallN(f, a[:]...)
	return r
}

// goKernel is the address of a C function that calls runKernel.
var goKernel = sync.OnceValue(func() uintptr {
	return syscall.NewCallback(func(id uintptr, g *launched, args *unsafe.Pointer, rest *uintptr, why *byte, room uintptr) uintptr {
		return uintptr(runKernel(id, g, args, rest, why, room))
	})
})
