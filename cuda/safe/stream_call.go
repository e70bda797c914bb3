package safe

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// RawCall is a call of a C function that enqueues work, or prepares it: see [EnqueueCalls].
type RawCall struct {
	// Address of the function, from [Symbol] or dlsym. The function must return an int, 0 for success, and must not
	// call Go.
	Address uintptr
	// Args are the integer and pointer arguments in order; the function may have fewer. A C int is in the lower half.
	// No pointer may point to Go memory.
	Args [8]uint64
	// Floats are the bits of the floating-point arguments in order. A float is in the lower half.
	Floats [2]uint64
	// Result is what the function returned.
	Result int32
	// Always makes the call even if an earlier one has failed.
	Always bool
	// Made tells whether the function was called.
	Made bool
}

var _ = rt.Function(RawCall{}) // the same layout

// Symbol looks up a C function for [RawCall]. loaded is the function Library of the library's generated package. The
// look-up happens when address is first called, so call it once the library is loaded. address returns 0 if the library
// has no such function, and always in a program without cgo, which cannot call it.
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

// EnqueueCalls enqueues work by calls of C functions, and promises for w what [EnqueueRaw] does. It makes all of them
// in one crossing from Go into C. EnqueueRaw needs two crossings besides those of its function.
//
// prepare gets the stream's handle and returns the calls. From then on nothing else can enqueue work on the stream
// until they are made: in order, up to the first that fails. prepare must not use this package. So read addresses
// before: [Buffer.Raw] returns 0 for memory that is closed in the meantime. Locks that prepare takes stay locked until
// EnqueueCalls has returned. The caller unlocks them.
//
// made tells whether the calls were made; their errors are in their Results. If made is false and err is nil, use
// EnqueueRaw, which may return an error. This happens if prepare returned no calls, or one without an Address; if the
// stream is capturing; if something in w.Uses or the context cannot be used; and always in a program without cgo.
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
	return a.calls(&w, prepare)
}

// calls makes the calls that prepare returns, and ends the admission. It has few returns: else the deferred calls would
// take longer.
func (a *admission) calls(w *RawWork, prepare func(raw driver.CUstream) []RawCall) (made bool, err error) {
	defer func() { a.leave(made) }()
	s := a.stream
	if a.capture != nil || s.reachesAll(w.Uses, nil) >= 0 {
		return false, nil
	}
	if !w.Waits { // the functions may launch graphs; entered before what prepare locks, as by EnqueueRaw
		slot := executables.Slot(s.number)
		if err := slot.Enter(&executables); err != nil {
			return false, wrap(a.op, err)
		}
		defer slot.Leave()
	}
	s.reveal()
	return s.call(prepare(s.raw)), nil
}

// call makes the calls, unless there are none, one has no address, or the stream is capturing or cannot be asked.
func (s *streamCore) call(calls []RawCall) (made bool) {
	for i := range calls {
		if calls[i].Address == 0 {
			return false
		}
	}
	if len(calls) == 0 {
		return false
	}
	s.released() // by a function, perhaps
	c := rt.Calls{Home: rt.Home{CallContext: s.ctx.raw, Context: s.ctx.raw, ID: s.ctx.id}, Stream: s.raw, N: uint32(len(calls))}
	return c.Do((*rt.Function)(unsafe.Pointer(&calls[0]))) == 0
}
