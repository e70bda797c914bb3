package safe

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// RawCall is a call of a C function that enqueues work, or prepares that: see [EnqueueCalls].
type RawCall struct {
	// Address is the function's, by [Symbol] or dlsym. It returns an int, 0 for success, and does not call Go.
	Address uintptr
	// Args are its integers and pointers in their order; it may have fewer. An int of C is in the
	// lower half. None points to memory of Go's.
	Args [8]uint64
	// Floats are the bits of its floating-point arguments in their order. A float is in the lower half.
	Floats [2]uint64
	// Result is what the function has returned.
	Result int32
	// Always makes the call even if one before it has failed.
	Always bool
	// Made tells that the function was called.
	Made bool
}

var _ = rt.Function(RawCall{}) // the same layout

// Symbol finds a function for [RawCall] by the function Library of the library's generated package, when what it
// returns is first called: call that when the library is loaded. The address is 0 if the library has no such function,
// and in a program without cgo, which cannot call it.
func Symbol(loaded func() (file, version string, err error), name string) (address func() uintptr) {
	return sync.OnceValue(func() uintptr {
		if loaded == nil {
			return 0
		}
		file, _, err := loaded()
		if err != nil {
			return 0
		}
		return rt.Symbol(file, name)
	})
}

// EnqueueCalls enqueues the work of calls of C functions, with all that [EnqueueRaw] promises for w. Go calls C once for
// all of them, where EnqueueRaw takes two calls of C beside those of its function.
//
// prepare gets the stream's handle, and returns the calls, when nothing else can enqueue work on the stream. They are made
// in their order, up to the first that fails. prepare must not use this package: read addresses before, as [Buffer.Raw]
// returns 0 for memory that is closed meanwhile. What prepare locks stays locked until EnqueueCalls has returned, and is
// for the caller to unlock.
//
// EnqueueCalls returns whether it has made the calls. If it has not, without an error, use EnqueueRaw, which may return
// one: prepare has returned no calls, or one without an Address; or the stream is capturing, something in w.Uses or the
// context cannot be used, or the program is one without cgo. The caller finds errors of the functions in the calls.
//
// Source: cuCtxSetCurrent, cuThreadExchangeStreamCaptureMode, cuStreamIsCapturing.
func EnqueueCalls(w RawWork, prepare func(raw driver.CUstream) []RawCall) (made bool, err error) {
	const op = "EnqueueCalls"
	if prepare == nil {
		return false, noFunction(op)
	}
	s, err := w.Stream.openUnacquired(op)
	if err != nil || !rt.CallsFunctions {
		return false, err
	}
	n, err := w.places(op, 0)
	if err != nil {
		return false, err
	}
	if rt.InCallback() { // prepare may wait for a lock
		return false, &Error{Op: op, Err: ErrInCallback}
	}
	a := admission{op: op, stream: s, flags: enqueues | unacquired, places: n}
	if w.Waits {
		a.flags |= waits
	}
	err = a.admit()
	runtime.KeepAlive(w.Stream) // as it is not acquired
	if err != nil {
		return false, err
	}
	defer func() { a.leave(made) }()
	if a.capture != nil || s.reachesAll(w.Uses, nil) >= 0 {
		return false, nil
	}
	if !w.Waits { // the functions may launch graphs; entered before what prepare locks, as by EnqueueRaw
		slot := executables.Slot(s.number)
		if err := slot.Enter(&executables); err != nil {
			return false, wrap(op, err)
		}
		defer slot.Leave()
	}
	s.reveal()
	calls := prepare(s.raw)
	return callable(calls) && s.call(calls), nil
}

// callable tells whether there are calls, all with an address.
func callable(calls []RawCall) bool {
	for i := range calls {
		if calls[i].Address == 0 {
			return false
		}
	}
	return len(calls) > 0
}

// call makes the calls, unless the stream is capturing or cannot be asked.
func (s *streamCore) call(calls []RawCall) (made bool) {
	s.released() // by a function, perhaps
	c := rt.Calls{Home: rt.Home{CallContext: s.ctx.raw, Context: s.ctx.raw, ID: s.ctx.id}, Stream: s.raw, N: uint32(len(calls))}
	return c.Do((*rt.Function)(unsafe.Pointer(&calls[0]))) == 0
}
