//go:build (amd64 || arm64) && !cgo && cudabind_nocgo

package nvtx

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

func callback(f any) uintptr { return purego.NewCallback(f) }

func symbol(path, name string) uintptr {
	lib, err := purego.Dlopen(path, purego.RTLD_LAZY)
	if err != nil {
		return 0
	}
	f, _ := purego.Dlsym(lib, name) // 0 with an error
	return f
}

func call(f uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(f, args...)
	return r
}

func callPush(f, domain uintptr, a *attributes) {
	purego.SyscallN(f, domain, uintptr(unsafe.Pointer(a)))
}

func callName(f, of uintptr, name *byte) {
	purego.SyscallN(f, of, uintptr(unsafe.Pointer(name)))
}
