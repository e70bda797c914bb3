package lifetime

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A Cleanup is part of the value that users hold: it closes a Handle when the garbage collector
// finds that value dropped without Close. The zero Cleanup watches nothing. A copy watches the same.
type Cleanup struct {
	watch  atomic.Pointer[watch]
	handle *Handle // that it closes
}

// A watch is reachable from one Cleanup and its copies alone, so all are dropped together. It has a cleanup of Go's
// and is reused: to add one of those and to remove it takes as long as several calls of CUDA.
type watch struct{ target *target }

// A target is what a watch closes. It is never reachable from there.
type target struct{ handle atomic.Pointer[Handle] }

var watches = sync.Pool{New: func() any {
	w := &watch{target: &target{}}
	runtime.AddCleanup(w, (*target).dropped, w.target)
	return w
}}

// Watch begins to watch. CloseFamily closes h, too.
func (c *Cleanup) Watch(h *Handle) {
	h.join()
	w := watches.Get().(*watch)
	w.target.handle.Store(h)
	c.handle = h
	c.watch.Store(w)
}

// Stop ends it.
func (c *Cleanup) Stop() {
	w := c.watch.Swap(nil)
	if w != nil && w.target.handle.CompareAndSwap(c.handle, nil) { // else a copy has stopped, and w may serve another
		watches.Put(w)
	}
}

func (t *target) dropped() {
	if h := t.handle.Load(); h != nil {
		h.dropped()
	}
}

// CloseWith is a Cleanup for one of several Handles that belong to the same value.
func CloseWith[T any](owner *T, h *Handle) runtime.Cleanup {
	h.join()
	return runtime.AddCleanup(owner, (*Handle).dropped, h)
}

// join adds the Handle to its family, if it has a parent.
func (h *Handle) join() {
	if h.parent != nil {
		h.family.add(h)
	}
}
