package safe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Many goroutines inside launches at once would each hold a thread, as a launch
// blocks while the driver's queue is full, and more than some make none of them
// faster. Where nobody has come out for patience, more are let in, so that nothing
// can wait for ever: a host function may wait for a goroutine that launches.
const patience = 10 * time.Millisecond

var enqueuing = limiter{patience: patience}

// A bound lets so many in at once, GOMAXPROCS/2 or 2.
type limiter struct {
	patience time.Duration
	slowly   bool // so many more at a time, not twice as many

	inside  atomic.Int32
	extra   atomic.Int32 // that may be inside beyond the limit
	waiting atomic.Int32
	left    atomic.Uint32 // how often somebody came out

	mu     sync.Mutex
	queue  []chan struct{}
	raised time.Time
}

func (b *limiter) limit() int32 { return max(2, processors.Load()/2) }

// processors is GOMAXPROCS, which takes a lock to ask, as it was lately.
var processors atomic.Int32

func init() { askProcessors() }

func askProcessors() { processors.Store(int32(runtime.GOMAXPROCS(0))) }

func (b *limiter) enter() {
	if !b.try() {
		b.queueUp()
	}
}

// try enters if there is a place.
func (b *limiter) try() bool {
	if b.inside.Add(1) <= b.limit() {
		return true
	}
	b.inside.Add(-1)
	return false
}

// queueUp enters when there is a place.
func (b *limiter) queueUp() {
	askProcessors()
	turn := make(chan struct{})
	b.waiting.Add(1)
	b.mu.Lock()
	b.queue = append(b.queue, turn)
	b.mu.Unlock()
	b.next() // a place may have become free just now
	timer := time.NewTimer(b.patience)
	defer timer.Stop()
	for left := b.left.Load(); ; left = b.left.Load() {
		select {
		case <-turn:
			return
		case <-timer.C:
			if b.left.Load() == left {
				b.raise()
			}
			timer.Reset(b.patience)
		}
	}
}

// raise lets more in, and more yet the next time.
func (b *limiter) raise() {
	b.mu.Lock()
	if now := time.Now(); now.Sub(b.raised) >= b.patience {
		b.raised = now
		more := b.extra.Load()
		if b.slowly {
			more = 0
		}
		b.extra.Add(max(b.limit(), more))
	}
	b.mu.Unlock()
	b.next()
}

func (b *limiter) leave() {
	b.left.Add(1)
	b.inside.Add(-1)
	if b.waiting.Load() > 0 {
		b.extra.Store(0)
		b.next()
	}
}

// next lets the first of the queue in, as far as there are places.
func (b *limiter) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) > 0 && b.inside.Load() < b.limit()+b.extra.Load() {
		b.inside.Add(1)
		b.waiting.Add(-1)
		close(b.queue[0])
		b.queue = b.queue[1:]
	}
	if len(b.queue) == 0 {
		b.extra.Store(0)
	}
}
