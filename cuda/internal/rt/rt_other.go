//go:build !((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) && !(windows && amd64)

package rt

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Init fails, as the raw packages do, and nothing else is called.

const unsupported = driver.CUDA_ERROR_NOT_SUPPORTED

func Enter(*Scope, driver.CUcontext, uint64, Mode, driver.CUstream) driver.CUresult {
	return unsupported
}

func Leave(*Scope) {}

const CallsFunctions = false

func Symbol(string, string) uintptr { return 0 }

func (*Calls) Do(*Function) driver.CUresult { return unsupported }

func (*Launch) Do(*Arg) driver.CUresult { return unsupported }

func Await(*Entry) driver.CUresult     { return driver.CUDA_ERROR_NOT_READY }
func Poll([]Entry, *Alarm, uint32) int { return 0 }

func (*Alarm) Wake() {}

func (*KernelNode) Do(*driver.CUgraphNode, *Arg) driver.CUresult { return unsupported }

func HostFunction() uintptr { return 0 }

func InCallback() bool { return false }

func Thread() int { return 0 }

func run(driver.CUcontext, driver.CUstream, *uint64, int, bool) uint64 { return uint64(unsupported) }

func change(driver.CUcontext, uintptr, NodeCall, int, *uint64, *driver.CUgraphNode) uint64 {
	return uint64(unsupported)
}

func (*call) do() driver.CUresult { return unsupported }

func finder(string) (func(function, string) bool, error) { return nil, unsupported }

func statusFunction() uintptr { return 0 }

func (*Instantiation) Do() driver.CUresult { return unsupported }
