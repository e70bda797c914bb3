package safe

import (
	"context"
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// lockWaiters are the goroutines that wait for a queue's lock with a context that may
// end. One goroutine waits for the lock in their place and hands it to the first of them,
// so that a canceled wait leaves no lock to take.
type lockWaiters struct {
	mu      sync.Mutex
	turns   []chan struct{}
	serving bool
}

// lockContext locks the queue, or returns the cause if ctx ends first. The holder may be
// in a call that blocks indefinitely.
func (q *queue) lockContext(ctx context.Context, op string) error {
	if q.mu.TryLock() {
		return nil
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	if ctx.Done() == nil {
		q.mu.Lock()
		return nil
	}
	turn := q.join()
	select {
	case <-turn:
		q.mu.TakeOver()
		return nil
	case <-ctx.Done():
		if !q.waiting.remove(turn) {
			<-turn
			q.mu.TakeOver()
			q.mu.Unlock()
		}
		return &Error{Op: op, Err: context.Cause(ctx)}
	}
}

// join adds a waiter. Its channel receives a value when it owns the lock.
func (q *queue) join() chan struct{} {
	w := &q.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	turn := make(chan struct{}, 1)
	w.turns = append(w.turns, turn)
	if !w.serving {
		w.serving = true
		go q.serve()
	}
	return turn
}

// remove removes a waiter. It returns false if the waiter already owns the lock.
func (w *lockWaiters) remove(turn chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.turns, turn)
	if i < 0 {
		return false
	}
	w.turns = slices.Delete(w.turns, i, i+1)
	return true
}

// serve hands the lock to one waiter after another until there are none.
func (q *queue) serve() {
	for more := true; more; {
		q.mu.Lock()
		var turn chan struct{}
		if turn, more = q.waiting.next(); turn == nil {
			q.mu.Unlock()
			continue
		}
		q.mu.HandOver()
		turn <- struct{}{}
	}
}

// next removes and returns the first waiter, or nil, and whether more follow.
func (w *lockWaiters) next() (turn chan struct{}, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.turns) > 0 {
		turn, w.turns = w.turns[0], w.turns[1:]
	}
	w.serving = len(w.turns) > 0
	return turn, w.serving
}
