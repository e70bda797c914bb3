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

// reports are errors that the Reaper has yet to pass on. Only the Reaper uses them.
var reports []error

// report passes err to the function of OnError, once the Reaper's present function has returned:
// that of OnError may lock Paused. Only the Reaper may call it.
func report(err error) { reports = append(reports, err) }

// tell passes on what was reported.
func tell() {
	all := reports
	reports = nil
	for _, err := range all {
		if f := handler.Load(); f != nil {
			Apart(func() { (*f)(err) })
		}
	}
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

// ReportLater reports from the Reaper.
func ReportLater(err error) {
	Reaper.Add(func() bool {
		report(err)
		return false
	})
}
