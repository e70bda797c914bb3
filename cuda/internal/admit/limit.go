package admit

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Patience is how long a queue waits before calls are let in out of turn.
const Patience = 10 * time.Millisecond

// A Limiter admits a limited number of calls at once: GOMAXPROCS/2, at least 2.
type Limiter struct {
	Patience time.Duration
	Slowly   bool // raise the limit by a constant, not by doubling

	inside  atomic.Int32
	extra   atomic.Int32 // admitted beyond the limit
	waiting atomic.Int32
	left    atomic.Uint32 // number of calls that have left while others waited

	mu     Leaf // guards queue and raised
	queue  []chan struct{}
	raised time.Time
}

// Limit is how many calls may be inside while all return within Patience.
func (b *Limiter) Limit() int32 { return max(2, Processors.Load()/2) }

// Processors is a recent value of GOMAXPROCS, which takes a lock to read.
var Processors atomic.Int32

func init() { AskProcessors() }

// AskProcessors asks for GOMAXPROCS.
func AskProcessors() { Processors.Store(int32(runtime.GOMAXPROCS(0))) }

// Enter waits until there is room, and enters until Leave.
func (b *Limiter) Enter() {
	if !b.Try() {
		b.QueueUp()
	}
}

// Try enters if there is room.
func (b *Limiter) Try() bool { return b.enterBelow(b.Limit()) }

// enterBelow enters if fewer calls are inside than limit. It never counts a call that does not enter: one that leaves
// at that moment would find no room for those that wait.
func (b *Limiter) enterBelow(limit int32) bool {
	for n := b.inside.Load(); n < limit; n = b.inside.Load() {
		Between()
		if b.inside.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// QueueUp waits for its turn to enter. If no call leaves for as long as Patience, more are let in.
func (b *Limiter) QueueUp() {
	AskProcessors()
	turn := b.join()
	timer := time.NewTimer(b.Patience)
	defer timer.Stop()
	for left := b.left.Load(); ; left = b.left.Load() {
		select {
		case <-turn:
			return
		case <-timer.C:
			if b.left.Load() == left {
				b.raise()
			}
			timer.Reset(b.Patience)
		}
	}
}

// join adds a call to the queue. The channel is closed when it has entered.
func (b *Limiter) join() (turn chan struct{}) {
	turn = make(chan struct{})
	b.waiting.Add(1)
	b.mu.Lock()
	b.queue = append(b.queue, turn)
	b.mu.Unlock()
	Between()
	b.next() // a call may have left just now
	return turn
}

// raise raises the limit, and by more the next time.
func (b *Limiter) raise() {
	b.mu.Lock()
	if now := time.Now(); now.Sub(b.raised) >= b.Patience {
		b.raised = now
		more := b.extra.Load()
		if b.Slowly {
			more = 0
		}
		b.extra.Add(max(b.Limit(), more))
	}
	b.mu.Unlock()
	b.next()
}

// Leave makes room for the next call.
func (b *Limiter) Leave() {
	b.inside.Add(-1)
	Between()
	if b.waiting.Load() > 0 {
		b.left.Add(1)
		b.extra.Store(0)
		b.next()
	}
}

// next admits calls from the head of the queue while there is room.
func (b *Limiter) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) > 0 && b.enterBelow(b.Limit()+b.extra.Load()) {
		b.waiting.Add(-1)
		close(b.queue[0])
		b.queue = b.queue[1:]
	}
	if len(b.queue) == 0 {
		b.extra.Store(0)
	}
}
