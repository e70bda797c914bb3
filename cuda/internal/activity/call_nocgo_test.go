//go:build !cgo && cudabind_nocgo && linux && (amd64 || arm64)

package activity

import "github.com/ebitengine/purego"

// call calls a function, as CUPTI does.
func call(f uintptr, args [5]uintptr) {
	purego.SyscallN(f, args[0], args[1], args[2], args[3], args[4])
}
