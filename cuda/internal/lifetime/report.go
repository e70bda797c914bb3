package lifetime

import "sync/atomic"

var (
	handler    atomic.Pointer[func(error)]
	trackLeaks atomic.Bool
)

// A Leak is an object that was dropped without Close.
type Leak struct {
	Kind  string // of the object, such as "Stream"
	Stack string // of the call that made it
}

func (l *Leak) Error() string {
	return "cuda: a " + l.Kind + " was dropped while it was open; it was made here:\n" + l.Stack
}

// OnError sets the function that receives errors which no call can return.
func OnError(f func(error)) {
	if f == nil {
		handler.Store(nil)
		return
	}
	handler.Store(&f)
}

// TrackLeaks has Open record the stack for objects made from now on.
func TrackLeaks(on bool) { trackLeaks.Store(on) }

// reports pass errors on, one after another. The Reaper goes on meanwhile: the function of OnError
// may wait for it, or lock Paused.
var reports Queue

// Report passes err to the function of OnError, without waiting for it.
func Report(err error) {
	reports.Add(func() bool {
		if f := handler.Load(); f != nil {
			Apart(func() { (*f)(err) })
		}
		return false
	})
}

// Apart calls a function of the program that may end its goroutine.
func Apart(f func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	<-over
}
