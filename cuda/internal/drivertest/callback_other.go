//go:build (linux && !cgo && cudabind_nocgo) || windows

package drivertest

import (
	"sync"
	"sync/atomic"
)

// Handle stands for a Go value in C. Without cgo, a program that imports runtime/cgo does
// not link beside purego.
type Handle uintptr

var (
	handles    sync.Map
	lastHandle atomic.Uintptr
)

// NewHandle returns a handle of a value.
func NewHandle(v any) Handle {
	h := Handle(lastHandle.Add(1))
	handles.Store(h, v)
	return h
}

// Value returns the value of a handle.
func (h Handle) Value() any {
	v, _ := handles.Load(h)
	return v
}

// Delete forgets the value.
func (h Handle) Delete() { handles.Delete(h) }

// HostFunc is the address of a CUhostFn that runs the func() in the
// [Handle] it gets as user data, on the thread that calls it.
func HostFunc() uintptr { return hostFunc() }

// StreamCallback is the address of a CUstreamCallback that runs the
// func(stream uintptr, status int) in the [Handle] it gets as user
// data, on the thread that calls it.
func StreamCallback() uintptr { return streamCallback() }

// onBlockBytes is what [BlockBytesInGo] was last called with.
var onBlockBytes func(threads int32) uintptr

// BlockBytesInGo is the address of a CUoccupancyB2DSize that calls f on the thread that
// calls it.
func BlockBytesInGo(f func(threads int32) uintptr) uintptr {
	onBlockBytes = f
	return blockBytes()
}
