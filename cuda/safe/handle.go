package safe

import (
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A handle is the lifetime of one of CUDA's objects. What users hold (a Stream,
// say) points to a core that embeds the handle, and every call marks it while it
// uses the object. Close forbids further marks; the object is destroyed by Close
// or, where calls are in flight, once the last of them is over. A child marks
// its parent for as long as it lives, so that closing a context before its
// streams only means that it goes with the last of them.
//
// What users hold may be dropped without Close: a cleanup then closes the core,
// which is why the core never points back to it.
type handle struct {
	state  atomic.Int64 // marks, and the sign bit once closed
	gone   atomic.Bool  // destroyed, or being destroyed
	parent *handle
	object destroyer
	origin []byte // the stack of the creation, if leaks are tracked
}

// destroyer gives an object back to CUDA. destroy is called until it returns
// something else than errLater; without wait it must not wait for the GPU.
type destroyer interface {
	destroy(wait bool) error
	kind() string
}

// errLater is returned by a destroyer that cannot do it now.
var errLater = errors.New("later")

// elsewhere is returned by a destroyer that is ready, and that must not wait: the
// driver may, for work that has nothing to do with the object.
type elsewhere struct{ queue *reaping }

func (*elsewhere) Error() string { return "elsewhere" }

// put tells that a destroyer has put it off.
func put(err error) bool {
	_, other := err.(*elsewhere)
	return other || err == errLater
}

const closedBit = math.MinInt64

// open makes the handle live. It fails if the parent is closed and nobody has
// marked it.
func (h *handle) open(object destroyer, parent *handle) error {
	if parent != nil && !parent.keep() {
		return ErrClosed
	}
	h.object, h.parent = object, parent
	if trackLeaks.Load() {
		h.origin = debug.Stack()
	}
	return nil
}

// mark keeps the object until unmark. It fails if the object is closed.
func (h *handle) mark() bool {
	if h.state.Add(1) >= 0 {
		return true
	}
	h.unmark()
	return false
}

// keep is mark also for a closed object, as long as somebody has marked it.
func (h *handle) keep() bool {
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

// hold is mark for somebody who has marked a child, which keeps the object even
// if it is closed.
func (h *handle) hold() { h.state.Add(1) }

// unmark ends a mark. Where it was the last one of a closed object, the reaper
// destroys that: the caller has other things to do, and nobody to tell an error.
func (h *handle) unmark() {
	if h.state.Add(-1) == closedBit && !h.gone.Load() {
		reaper.add(h.reap)
	}
}

func (h *handle) closed() bool { return h.state.Load() < 0 }

// close forbids further marks and destroys the object if there is none now.
func (h *handle) close() error {
	if h.state.Or(closedBit) != 0 {
		return nil
	}
	if rt.InCallback() {
		reaper.add(h.reap) // nothing is destroyed on the driver's thread
		return nil
	}
	err := h.finish(true)
	if err == errLater {
		reaper.add(h.reap)
		return nil
	}
	return err
}

// finish destroys the object, and then its parent if that waited for it alone.
func (h *handle) finish(wait bool) error {
	if !h.gone.CompareAndSwap(false, true) {
		return nil
	}
	err := h.object.destroy(wait)
	if put(err) {
		h.gone.Store(false)
		return err
	}
	if p := h.parent; p != nil && p.state.Add(-1) == closedBit {
		if up := p.finish(wait); put(up) {
			reaper.add(p.reap) // h itself is gone
		} else {
			err = errors.Join(err, up)
		}
	}
	return err
}

// reap finishes what nobody waits for.
func (h *handle) reap() (again bool) {
	err := h.finish(false)
	if by, ok := err.(*elsewhere); ok {
		by.queue.add(func() bool {
			if err := h.finish(true); err == errLater {
				reaper.add(h.reap)
			} else if err != nil {
				reportLater(err)
			}
			return false
		})
		return false
	}
	if err == errLater {
		return true
	}
	if err != nil {
		report(err)
	}
	return false
}

// cleanup closes the handle when owner, which users hold, is dropped without
// Close.
func cleanup[T any](owner *T, h *handle) runtime.Cleanup {
	return runtime.AddCleanup(owner, (*handle).dropped, h)
}

// dropped runs where cleanups run, and must not wait for anything.
func (h *handle) dropped() {
	old := h.state.Or(closedBit)
	if old < 0 {
		return
	}
	if h.origin != nil {
		reportLater(&LeakError{Kind: h.object.kind(), Stack: string(h.origin)})
	}
	if old == 0 {
		reaper.add(h.reap)
	}
}
