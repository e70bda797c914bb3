package safe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A launch blocks its thread while the driver's queue is full, so that many goroutines in
// launches would each hold a thread; beyond a few, more do not make launches faster. If
// none has returned within patience, more are admitted, because otherwise there could be
// a deadlock: a host function may wait for a goroutine that launches.
//
// A stream has one such call at a time. So with few streams there is nothing to count.
var enqueuing = limiter{patience: patience}

const patience = 10 * time.Millisecond

// enterLimit enters enqueuing, if there are enough streams to reach its limit. mu is held until
// leaveLimit.
func (q *queue) enterLimit() {
	if q.limited = listed.Load() > enqueuing.limit(); q.limited {
		enqueuing.enter()
	}
}

func (q *queue) leaveLimit() {
	if q.limited {
		enqueuing.leave()
	}
}

// A limiter admits a limited number of calls at once: GOMAXPROCS/2, at least 2.
type limiter struct {
	patience time.Duration
	slowly   bool // raise the limit by a constant, not by doubling

	inside  atomic.Int32
	extra   atomic.Int32 // admitted beyond the limit
	waiting atomic.Int32
	left    atomic.Uint32 // number of calls that have left while others waited

	mu     sync.Mutex
	queue  []chan struct{}
	raised time.Time
}

func (b *limiter) limit() int32 { return max(2, processors.Load()/2) }

// processors is a recent value of GOMAXPROCS, which takes a lock to read.
var processors atomic.Int32

func init() { askProcessors() }

func askProcessors() { processors.Store(int32(runtime.GOMAXPROCS(0))) }

func (b *limiter) enter() {
	if !b.try() {
		b.queueUp()
	}
}

// try enters if there is room.
func (b *limiter) try() bool { return b.enterBelow(b.limit()) }

// enterBelow enters if fewer calls are inside than limit. It never counts a call that does not enter: one that leaves
// at that moment would find no room for those that wait.
func (b *limiter) enterBelow(limit int32) bool {
	for n := b.inside.Load(); n < limit; n = b.inside.Load() {
		between()
		if b.inside.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// queueUp waits for its turn to enter.
func (b *limiter) queueUp() {
	askProcessors()
	turn := b.join()
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

// join adds a call to the queue. The channel is closed when it has entered.
func (b *limiter) join() (turn chan struct{}) {
	turn = make(chan struct{})
	b.waiting.Add(1)
	b.mu.Lock()
	b.queue = append(b.queue, turn)
	b.mu.Unlock()
	between()
	b.next() // a call may have left just now
	return turn
}

// raise raises the limit, and by more the next time.
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
	b.inside.Add(-1)
	between()
	if b.waiting.Load() > 0 {
		b.left.Add(1)
		b.extra.Store(0)
		b.next()
	}
}

// next admits calls from the head of the queue while there is room.
func (b *limiter) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) > 0 && b.enterBelow(b.limit()+b.extra.Load()) {
		b.waiting.Add(-1)
		close(b.queue[0])
		b.queue = b.queue[1:]
	}
	if len(b.queue) == 0 {
		b.extra.Store(0)
	}
}
