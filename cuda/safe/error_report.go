package safe

import "github.com/cudabind/cudabind/cuda/internal/lifetime"

// LeakError reports an object that was dropped without Close, or a [Capture] without End.
// The garbage collector found it, and the object was then closed.
type LeakError struct {
	Kind  string // of the object, such as "Stream"
	Stack string // of the call that made it
}

func (e *LeakError) Error() string { return (*lifetime.Leak)(e).Error() }

// OnError sets a function that receives errors which no call can return: errors of destroying objects that were dropped
// without Close, or closed during a call, panics of functions that no call waits for (see [PanicError]), and leaks (see
// [TrackLeaks]). f runs on one goroutine at a time and must not block. If f panics, it receives its own panic, once.
// nil, the default, discards the errors.
func OnError(f func(error)) {
	if f == nil {
		lifetime.OnError(nil)
		return
	}
	lifetime.OnError(func(err error) {
		if leak, ok := err.(*lifetime.Leak); ok {
			err = (*LeakError)(leak)
		}
		if panicked := caught(func() { f(err) }); panicked != nil {
			_ = caught(func() { f(panicked) }) // there is no other hook to tell of another panic
		}
	})
}

// TrackLeaks makes each object that is created from now on record the stack of its creation. If the object is dropped
// without Close, the function of [OnError] receives a [*LeakError] with the stack. It costs a few microseconds per
// object.
func TrackLeaks(on bool) { lifetime.TrackLeaks(on) }
