//go:build cgo && linux && (amd64 || arm64)

package rt

/*
#include "rt.h"
*/
import "C"

import (
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// callbacks counts the threads on which InCallback is true. While there are none, it need
// not ask C.
var callbacks atomic.Int32

//export cudabindHostFunc
func cudabindHostFunc(token C.uintptr_t) {
	callbacks.Add(1)
	defer callbacks.Add(-1)
	OnHostFunc(uintptr(token))
}

//export cudabindStatus
func cudabindStatus(token C.uintptr_t, code C.uint) {
	callbacks.Add(1)
	defer callbacks.Add(-1)
	OnStatus(uintptr(token), driver.CUresult(code))
}

// HostFunction returns the address of the C function for host nodes of graphs, whose
// argument is a token.
func HostFunction() uintptr { return uintptr(C.rt_host_function()) }

func statusFunction() uintptr { return uintptr(C.rt_status_function()) }

// InCallback returns whether this goroutine must not wait: it runs on the driver's thread,
// in OnHostFunc or OnStatus, or its thread has entered the mode [Foreign].
func InCallback() bool { return callbacks.Load() != 0 && C.rt_in_callback() != 0 }
