package safe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Many goroutines inside launches at once would each hold a thread, as a launch
// blocks while the driver's queue is full, and more than some make none of them
// faster. Whoever has waited for patience goes in all the same, so that nothing
// can wait for ever: a host function may wait for a goroutine that launches.
const patience = 10 * time.Millisecond

var enqueuing bound

// A bound lets so many in at once, GOMAXPROCS/2 or 2.
type bound struct {
	inside  atomic.Int32
	waiting atomic.Int32
	mu      sync.Mutex
	queue   []chan struct{}
}

func (b *bound) limit() int32 { return int32(max(2, runtime.GOMAXPROCS(0)/2)) }

func (b *bound) enter() {
	if b.inside.Add(1) <= b.limit() {
		return
	}
	b.inside.Add(-1)
	turn := make(chan struct{})
	b.waiting.Add(1)
	b.mu.Lock()
	b.queue = append(b.queue, turn)
	b.mu.Unlock()
	b.next() // a place may have become free just now
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-turn:
	case <-timer.C:
		b.giveUp(turn)
	}
}

// giveUp goes in without a turn, unless that has come meanwhile.
func (b *bound) giveUp(turn chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, t := range b.queue {
		if t == turn {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.waiting.Add(-1)
			b.inside.Add(1)
			return
		}
	}
}

func (b *bound) leave() {
	b.inside.Add(-1)
	if b.waiting.Load() > 0 {
		b.next()
	}
}

// next lets the first of the queue in, if there is a place.
func (b *bound) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 && b.inside.Load() < b.limit() {
		b.inside.Add(1)
		b.waiting.Add(-1)
		close(b.queue[0])
		b.queue = b.queue[1:]
	}
}
