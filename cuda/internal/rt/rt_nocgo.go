//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Without cgo and on Windows, a [call] becomes a [list]. Other functions prepare the thread by one,
// and make further calls one by one.

// cu holds the addresses of the driver's functions.
var cu [functions]uintptr

// finder returns a function that finds a function of the loaded driver, for lists.
func finder(file string) (find func(f function, name string) bool, err error) {
	address, err := symbols(file)
	return func(f function, name string) bool {
		cu[f] = address(name)
		return cu[f] != 0
	}, err
}

// Bits of Scope.set.
const (
	setContext = 1 << iota // the context was made current
	isForeign
)

// unchanged in Scope.mode means that there is no capture mode to restore: the thread has
// kept its own, or that was RELAXED.
const unchanged = uint32(driver.CU_STREAM_CAPTURE_MODE_RELAXED)

// begin locks the goroutine to its thread and makes the calls of l. If it returns no error,
// the thread stays as they have left it until end.
func (s *Scope) begin(l *list) driver.CUresult {
	if InCallback() {
		return CodeCallback
	}
	runtime.LockOSThread()
	r := l.make()
	*s = Scope{before: uintptr(l.before), mode: uint32(l.mode)}
	if l.before != l.context {
		s.set = setContext
	}
	if r != 0 {
		s.end()
	}
	return r
}

func (s *Scope) end() {
	if s.mode != unchanged {
		mode := driver.CUstreamCaptureMode(s.mode)
		_ = driver.CuThreadExchangeStreamCaptureMode(&mode)
	}
	if s.set&setContext != 0 {
		_ = driver.CuCtxSetCurrent(driver.CUcontext(s.before))
	}
	runtime.UnlockOSThread()
}

// Enter makes a context current on this thread, to which the goroutine must be locked,
// until [Leave]. It returns CodeReset if id is not 0 and the context has another id. It asks
// whether the stream is capturing, unless that is 0.
func Enter(s *Scope, context driver.CUcontext, id uint64, mode Mode, stream driver.CUstream) driver.CUresult {
	var l list
	l.at(Home{Context: context, ID: id})
	l.in(context, mode != OwnMode)
	var ask *step
	if stream != 0 {
		ask = l.askCapturing(stream)
		ask.flags = anyResult
	}
	if r := s.begin(&l); r != 0 {
		return r
	}
	if ask != nil && ask.result == 0 {
		s.Status = 1 + uint32(l.status)
	}
	if mode == Foreign {
		s.set |= isForeign
		mark()
	}
	return 0
}

// Leave restores the state before [Enter].
func Leave(s *Scope) {
	if s.set&isForeign != 0 {
		unmark()
	}
	s.set |= setContext // the code in between may have made another context current
	s.end()
}

// CallsFunctions is false: other libraries' functions are called with cgo alone.
const CallsFunctions = false

// Symbol returns 0.
func Symbol(string, string) uintptr { return 0 }

// Do does nothing.
func (*Calls) Do(*Function) driver.CUresult { return driver.CUDA_ERROR_NOT_SUPPORTED }
