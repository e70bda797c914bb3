//go:build linux && !cgo && cudabind_nocgo

package drivertest

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ebitengine/purego"
)

var hostFunc = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(userData uintptr) { Handle(userData).Value().(func())() })
})

var streamCallback = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(stream uintptr, status int32, userData uintptr) {
		Handle(userData).Value().(func(stream uintptr, status int))(stream, int(status))
	})
})

// A Go function takes the place of C's: the test's stack is large enough not to move.
var (
	blockBytesThread, destroyed atomic.Int64

	fourBytes = sync.OnceValue(func() uintptr {
		return purego.NewCallback(func(threads int32) uintptr {
			blockBytesThread.Store(int64(syscall.Gettid()))
			return 4 * uintptr(threads)
		})
	})
	destructor = sync.OnceValue(func() uintptr {
		return purego.NewCallback(func(amount uintptr) { destroyed.Add(int64(amount)) })
	})
)

// BlockBytes is the address of a CUoccupancyB2DSize: 4 bytes a thread.
func BlockBytes() uintptr { return fourBytes() }

// BlockBytesThread is the thread that last called [BlockBytes].
func BlockBytesThread() int { return int(blockBytesThread.Load()) }

// Destructor is the address of a CUhostFn that adds its user data to a sum.
func Destructor() uintptr { return destructor() }

// Destroyed is the sum that [Destructor] made.
func Destroyed() int { return int(destroyed.Load()) }

// Call calls a C function of up to three words, which may call Go, on this thread.
func Call(fn, a, b, c uintptr) { purego.SyscallN(fn, a, b, c) }

var blockBytes = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(threads int32) uintptr { return onBlockBytes(threads) })
})
