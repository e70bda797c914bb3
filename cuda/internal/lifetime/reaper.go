package lifetime

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Reaper destroys objects that were dropped without Close, and those that were closed
// while calls used them. Its goroutine runs only while it has something to do, so that a
// program that has closed everything is left with none.
var Reaper Queue

// A Queue runs functions one after another. Functions that may wait for the GPU belong
// in a Queue of their own, where they delay nothing else.
type Queue struct {
	mu      sync.Mutex // a leaf: guards queue and running
	queue   []func() (again bool)
	running bool
	hurry   atomic.Bool
}

// active counts the Queues that run.
var active atomic.Int32

// Idle tells whether no Queue has anything to do.
func Idle() bool { return active.Load() == 0 }

// Retry is the pause before a function is called again.
const Retry = time.Millisecond

// Add queues f. It is called again after a pause if it returns true.
func (q *Queue) Add(f func() (again bool)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, f)
	if !q.running {
		q.running = true
		active.Add(1)
		go q.run()
	}
}

func (q *Queue) run() {
	var later []func() bool
	var took time.Duration
	for {
		batch := q.take(len(later) == 0)
		if batch == nil && later == nil {
			return
		}
		if len(batch) == 0 {
			q.pause(min(max(Retry, 4*took), 50*Retry)) // leave the processor to the program
		}
		start := time.Now()
		batch, later = append(batch, later...), nil
		for _, f := range batch {
			if f() {
				later = append(later, f)
			}
		}
		took = time.Since(start)
	}
}

// Hurry ends the pause before functions are called again.
func (q *Queue) Hurry() { q.hurry.Store(true) }

func (q *Queue) pause(d time.Duration) {
	for q.hurry.Store(false); d > 0 && !q.hurry.Load(); d -= Retry {
		time.Sleep(min(d, Retry))
	}
}

// take empties the queue. With last, an empty queue stops running.
func (q *Queue) take(last bool) []func() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.queue
	q.queue = nil
	if len(batch) == 0 && last {
		q.running = false
		active.Add(-1)
	}
	return batch
}

// Collect makes the garbage collector find objects that were dropped without Close, and destroys them.
// It takes about two seconds at most. Call it with nothing locked.
func Collect() {
	found := make(chan struct{})
	runtime.AddCleanup(new(*int), func(found chan struct{}) { close(found) }, found)
	runtime.GC()
	select {
	case <-found: // cleanups run concurrently: this one tells that others run too
	case <-time.After(time.Second):
	}
	time.Sleep(Retry)
	Drain(time.Second)
}

// Drain waits until every Queue is idle, at most for limit.
func Drain(limit time.Duration) {
	for end := time.Now().Add(limit); !Idle() && time.Now().Before(end); {
		time.Sleep(Retry)
	}
}
