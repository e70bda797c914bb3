//go:build (cgo || cudabind_nocgo) && (amd64 || arm64)

package rt

import "syscall"

// Thread returns the system's id of the current thread.
func Thread() int { return syscall.Gettid() }
