package nvtx

import (
	"syscall"
	"unsafe"
)

func callback(f any) uintptr { return syscall.NewCallbackCDecl(f) }

func symbol(path, name string) uintptr {
	lib, err := syscall.LoadLibrary(path)
	if err != nil {
		return 0
	}
	f, _ := syscall.GetProcAddress(lib, name) // 0 with an error
	return f
}

func call(f uintptr, args ...uintptr) uintptr {
	r, _, _ := syscall.SyscallN(f, args...)
	return r
}

func callPush(f, domain uintptr, a *attributes) {
	syscall.SyscallN(f, domain, uintptr(unsafe.Pointer(a)))
}

func callName(f, of uintptr, name *byte) {
	syscall.SyscallN(f, of, uintptr(unsafe.Pointer(name)))
}
