package safe

import (
	"sync"
	"sync/atomic"
	"time"
)

// reaper destroys what was dropped without Close, and what was closed while
// calls were in flight. Its goroutine runs only while there is something to do,
// so that a program that has closed everything has no goroutine of ours left.
var reaper reaping

// A reaping does one thing after another. What may wait for the GPU belongs into one
// of its own, so that it holds up nothing else.
type reaping struct {
	mu      sync.Mutex
	queue   []func() (again bool)
	running bool
}

// reapings is how many are running.
var reapings atomic.Int32

// retry is how often something that could not be done is tried again.
const retry = time.Millisecond

// add has the reaper call do, again after a while if do says so.
func (r *reaping) add(do func() (again bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, do)
	if !r.running {
		r.running = true
		reapings.Add(1)
		go r.run()
	}
}

func (r *reaping) run() {
	var later []func() bool
	var took time.Duration
	for {
		r.mu.Lock()
		batch := r.queue
		r.queue = nil
		if len(batch) == 0 && len(later) == 0 {
			r.running = false
			reapings.Add(-1)
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if len(batch) == 0 {
			time.Sleep(min(max(retry, 4*took), 50*retry)) // most of a processor is the program's
		}
		start := time.Now()
		batch = append(batch, later...)
		later = later[:0:0]
		for _, do := range batch {
			background.RLock()
			again := do()
			background.RUnlock()
			if again {
				later = append(later, do)
			}
		}
		took = time.Since(start)
	}
}

// drain waits until there is nothing to destroy, but not for long.
func drain(limit time.Duration) {
	for end := time.Now().Add(limit); reapings.Load() > 0 && time.Now().Before(end); {
		time.Sleep(retry)
	}
}

var (
	handler    atomic.Pointer[func(error)]
	trackLeaks atomic.Bool
)

// LeakError says that an object was dropped without Close. It was closed when
// the garbage collector found it.
type LeakError struct {
	Kind  string // what it was, such as "Stream"
	Stack string // where it was made
}

func (e *LeakError) Error() string {
	return "cuda: a " + e.Kind + " was dropped without Close; it was made here:\n" + e.Stack
}

// OnError has f called with errors that no call returns: those of
// destroying what was dropped without Close or closed during a call, and leaks
// (see [TrackLeaks]). f is called from one goroutine at a time and must not block; nil, the
// default, means that nobody wants to know.
func OnError(f func(error)) {
	if f == nil {
		handler.Store(nil)
		return
	}
	handler.Store(&f)
}

// TrackLeaks has every object that is made from now on remember where. One that
// is dropped without Close is then reported to the function given to
// [OnError] as a [*LeakError]. It costs some microseconds an object.
func TrackLeaks(on bool) { trackLeaks.Store(on) }

func report(err error) {
	if f := handler.Load(); f != nil {
		(*f)(err)
	}
}

// reportLater reports from the reaper's goroutine.
func reportLater(err error) {
	reaper.add(func() bool {
		report(err)
		return false
	})
}
