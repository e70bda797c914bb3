// Package lifetime decides when objects of CUDA are destroyed: never while a call uses
// them, always once they are closed or dropped and unused.
package lifetime

import (
	"errors"
	"math"
	"runtime/debug"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A Handle is the lifetime of one object of CUDA. Users hold a value such as a Stream,
// which points to a core that embeds the Handle. A call acquires the Handle while it
// uses the object, or keeps Destroy from it by a lock. Close refuses further calls; the
// object is destroyed by Close or, if calls are in flight, after the last of them. A child
// retains its parent as long as it lives, so that closing a context before its streams
// destroys it after the last stream.
//
// Users may drop their value without Close: a Cleanup then closes the core, which is why
// the core never points back to the value.
type Handle struct {
	state  atomic.Int64 // references, and the sign bit once closed
	gone   atomic.Bool  // destroyed, or being destroyed
	parent *Handle
	family *family // of the outermost parent
	member
	object Object
	origin []byte // the stack of Open, if leaks are tracked
}

// An Object can be destroyed.
type Object interface {
	// Destroy destroys the object. It is called again if it returns ErrLater or Elsewhere.
	// Unless wait is set, it must not wait for the GPU.
	Destroy(wait bool) error
	Kind() string
}

var (
	// ErrClosed is returned for an object that was closed, or never opened.
	ErrClosed = errors.New("already closed, or never opened")
	// ErrLater is returned by an Object that cannot be destroyed yet.
	ErrLater = errors.New("later")
)

// Elsewhere is returned by an Object that can be destroyed only by a call that may wait
// for unrelated work. The Queue then makes that call.
type Elsewhere struct{ Queue *Queue }

func (*Elsewhere) Error() string { return "elsewhere" }

// Postponed tells whether err postpones the destruction.
func Postponed(err error) bool {
	_, elsewhere := err.(*Elsewhere)
	return elsewhere || err == ErrLater
}

const closedBit = math.MinInt64

// Open makes the Handle live. It returns ErrClosed if parent is closed and unused.
func (h *Handle) Open(object Object, parent *Handle) error {
	if parent != nil && !parent.TryRetain() {
		return ErrClosed
	}
	h.object, h.parent = object, parent
	if parent == nil {
		h.family = &family{}
	} else {
		h.family = parent.family
	}
	if trackLeaks.Load() {
		h.origin = debug.Stack()
	}
	return nil
}

// Acquire adds a reference, until Release. It fails if the object is closed.
func (h *Handle) Acquire() bool {
	for {
		s := h.state.Load()
		if s < 0 { // adding to it for a moment would let TryRetain succeed
			return false
		}
		if h.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// TryRetain adds a reference if the object is open, or closed and still in use.
func (h *Handle) TryRetain() bool {
	for {
		s := h.state.Load()
		if s == closedBit {
			return false
		}
		if h.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// Retain adds a reference. The caller has one already, to the object or to a child.
func (h *Handle) Retain() { h.state.Add(1) }

// Release drops a reference. If it was the last one of a closed object, the Reaper
// destroys the object: the caller could neither wait nor return an error.
func (h *Handle) Release() {
	if h.state.Add(-1) == closedBit && !h.gone.Load() {
		Reaper.Add(h.reap)
	}
}

// Object is the object of Open.
func (h *Handle) Object() Object { return h.object }

// Untracked keeps a leak of the object from being reported.
func (h *Handle) Untracked() { h.origin = nil }

// InUse tells whether the object is open and has a reference.
func (h *Handle) InUse() bool { return h.state.Load() > 0 }

// Over tells whether the object was closed and is unused.
func (h *Handle) Over() bool { return h.state.Load() == closedBit }

// Closed tells whether the object was closed.
func (h *Handle) Closed() bool { return h.state.Load() < 0 }

// Close refuses further calls, and destroys the object if it is unused.
func (h *Handle) Close() error {
	if h.state.Or(closedBit) != 0 {
		return nil
	}
	if rt.InCallback() {
		Reaper.Add(h.reap) // nothing is destroyed on the driver's thread
		return nil
	}
	err := h.finish(true)
	if err == ErrLater {
		Reaper.Add(h.reap)
		return nil
	}
	return err
}

// finish destroys the object, and then its parent if that was closed and is unused.
func (h *Handle) finish(wait bool) error {
	if !h.gone.CompareAndSwap(false, true) {
		return nil
	}
	err := h.object.Destroy(wait)
	if Postponed(err) {
		h.gone.Store(false)
		return err
	}
	h.family.remove(h)
	if p := h.parent; p != nil && p.state.Add(-1) == closedBit {
		if up := p.finish(wait); Postponed(up) {
			Reaper.Add(p.reap) // h itself is destroyed
		} else {
			err = errors.Join(err, up)
		}
	}
	return err
}

// reap destroys the object on the Reaper, which calls it again if it is postponed.
func (h *Handle) reap() (again bool) {
	err := h.finish(false)
	if by, ok := err.(*Elsewhere); ok {
		by.Queue.Add(func() bool {
			if err := h.finish(true); err == ErrLater {
				Reaper.Add(afterPause(h.reap))
			} else if err != nil {
				Report(err)
			}
			return false
		})
		return false
	}
	if err == ErrLater {
		return true
	}
	if err != nil {
		Report(err)
	}
	return false
}

// afterPause returns a function for a Queue, which calls f only after a pause: else two Queues could
// pass it back and forth without one.
func afterPause(f func() (again bool)) func() (again bool) {
	first := true
	return func() bool {
		if first {
			first = false
			return true
		}
		return f()
	}
}

// dropped runs on the garbage collector's goroutine and must not wait.
func (h *Handle) dropped() {
	old := h.state.Or(closedBit)
	if old < 0 {
		return
	}
	if h.origin != nil {
		Report(&Leak{Kind: h.object.Kind(), Stack: string(h.origin)})
	}
	if old == 0 {
		Reaper.Add(h.reap)
	}
}

// CloseLater closes the object without a wait: the Reaper destroys it.
func (h *Handle) CloseLater() {
	if h.state.Or(closedBit) == 0 {
		Reaper.Add(h.reap)
	}
}
