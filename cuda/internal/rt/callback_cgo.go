//go:build cgo && linux && (amd64 || arm64)

package rt

/*
#include "rt.h"
*/
import "C"

import "github.com/cudabind/cudabind/cuda/generated/driver"

//export cudabindHostFunc
func cudabindHostFunc(token C.uintptr_t) { OnHostFunc(uintptr(token)) }

//export cudabindStatus
func cudabindStatus(token C.uintptr_t, code C.uint) { OnStatus(uintptr(token), driver.CUresult(code)) }

// HostFunc is cuLaunchHostFunc, with a mode of 0 or more cuLaunchHostFunc_v2. The
// driver's thread will call OnHostFunc with the token. It must not be called with
// a mode where that function is missing.
func HostFunc(context driver.CUcontext, stream driver.CUstream, token uintptr, mode int) driver.CUresult {
	return driver.CUresult(C.rt_host_func(C.uintptr_t(context), C.uintptr_t(stream), C.uintptr_t(token), C.int(mode)))
}

// HostFunction is the address of what host nodes of graphs call with a token.
func HostFunction() uintptr { return uintptr(C.rt_host_function()) }

// AddCallback is cuStreamAddCallback, unless the stream captures. The driver's
// thread will call OnStatus with the token.
func AddCallback(context driver.CUcontext, stream driver.CUstream, token uintptr) driver.CUresult {
	return driver.CUresult(C.rt_add_callback(C.uintptr_t(context), C.uintptr_t(stream), C.uintptr_t(token)))
}

// InCallback tells whether this goroutine runs on the driver's thread, in
// OnHostFunc or OnStatus.
func InCallback() bool { return C.rt_in_callback() != 0 }

// Thread is the system's number of the thread that this goroutine runs on.
func Thread() int { return int(C.rt_thread()) }
