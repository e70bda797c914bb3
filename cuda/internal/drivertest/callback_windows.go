package drivertest

import (
	"sync"
	"syscall"
)

var hostFunc = sync.OnceValue(func() uintptr {
	return syscall.NewCallback(func(userData uintptr) uintptr {
		Handle(userData).Value().(func())()
		return 0
	})
})

var streamCallback = sync.OnceValue(func() uintptr {
	return syscall.NewCallback(func(stream uintptr, status int32, userData uintptr) uintptr {
		Handle(userData).Value().(func(stream uintptr, status int))(stream, int(status))
		return 0
	})
})

var blockBytes = sync.OnceValue(func() uintptr {
	return syscall.NewCallback(func(threads int32) uintptr { return onBlockBytes(threads) })
})
