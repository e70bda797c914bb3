package admit

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// An Exclusion keeps many calls that may run at once apart from one that must be alone. It counts the many in
// several slots, so that threads seldom share a cache line.
type Exclusion struct {
	shut  atomic.Bool
	turn  Leaf // held by a call that is alone, and by one that must not run beside its like
	slots [16]Slot
}

// A Slot counts some of the calls in flight.
type Slot struct {
	calls atomic.Int32
	_     [60]byte // one cache line each
}

// Slot returns the slot for calls with a number: those with different numbers seldom share one.
func (g *Exclusion) Slot(number uint32) *Slot { return &g.slots[number%uint32(len(g.slots))] }

// Enter admits one of many calls until Leave of the same slot.
func (s *Slot) Enter(g *Exclusion) error {
	for {
		s.calls.Add(1)
		Between()
		if !g.shut.Load() {
			return nil
		}
		s.calls.Add(-1)
		if rt.InCallback() {
			return rt.CodeCallback
		}
		runtime.Gosched()
	}
}

// Leave ends a call.
func (s *Slot) Leave() { s.calls.Add(-1) }

// With calls f as one of the many. Calls with different numbers seldom share a slot.
func (g *Exclusion) With(number uint32, f func() error) error {
	s := g.Slot(number)
	if err := s.Enter(g); err != nil {
		return err
	}
	defer s.Leave()
	return f()
}

// Exclusive calls f alone: once no other call is in flight.
func (g *Exclusion) Exclusive(f func() error) (err error) {
	for !g.TryExclusive(LastWindow, func() { err = f() }) {
		time.Sleep(WindowShare * LastWindow)
	}
	return err
}

// TryExclusive calls f alone, if all other calls return within window. One of them may take
// indefinitely long, and would hold up all that come later.
func (g *Exclusion) TryExclusive(window time.Duration, f func()) bool {
	g.turn.Lock()
	defer g.turn.Unlock()
	return g.aloneInTurn(window, f)
}

// Idle returns whether no call is in flight within window, unless another call has the turn.
func (g *Exclusion) Idle(window time.Duration) bool {
	if !g.turn.TryLock() {
		return false
	}
	defer g.turn.Unlock()
	return g.aloneInTurn(window, func() {})
}

// aloneInTurn calls f alone, if all other calls return within window. The turn is held.
func (g *Exclusion) aloneInTurn(window time.Duration, f func()) bool {
	g.shut.Swap(true) // not Store: emulators of arm64 on x86-64 let the loads below pass it
	defer g.shut.Store(false)
	Between()
	var end time.Time
	for i := 0; i < len(g.slots); {
		switch {
		case g.slots[i].calls.Load() == 0:
			i++
		case end.IsZero():
			end = time.Now().Add(window)
		case time.Now().After(end):
			return false
		default:
			Between()
			runtime.Gosched()
		}
	}
	f()
	return true
}

// Serialize calls f in turn: no other call that has the turn, and none that is alone, runs meanwhile. The many do.
func (g *Exclusion) Serialize(f func() error) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	return f()
}

// Turns makes destructions for which the Reaper would have to wait.
var Turns lifetime.Queue

// TakeTurn takes the turn until EndTurn. Without wait, it returns an error that postpones a destruction if
// another call has the turn: that may take long.
func (g *Exclusion) TakeTurn(wait bool) error {
	if !LockOr(&g.turn, wait) {
		return &lifetime.Elsewhere{Queue: &Turns}
	}
	return nil
}

// EndTurn lets other calls have the turn.
func (g *Exclusion) EndTurn() { g.turn.Unlock() }

// Destroy calls destroy, which must not wait for the turn. With wait, it does so here if
// another call has the turn, with nothing locked: it may take long. destroy is then called in
// turn.
func (g *Exclusion) Destroy(wait bool, destroy func(wait, inTurn bool) error) error {
	err := destroy(wait, false)
	if _, busy := err.(*lifetime.Elsewhere); !busy || !wait {
		return err
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	return destroy(wait, true)
}

// A Destruction needs a moment without the calls of an Exclusion, and is retried until it gets
// one. Each try delays all these calls a little longer than the one before, and the next one
// comes later.
type Destruction struct {
	window time.Duration
	next   time.Time
}

const (
	FirstWindow = 500 * time.Microsecond
	LastWindow  = 20 * time.Millisecond
	WindowShare = 20 // the pause after a try, in windows
)

// Try calls f alone, or returns lifetime.ErrLater or a *lifetime.Elsewhere: the destruction is postponed.
func (d *Destruction) Try(g *Exclusion, wait bool, f func() error) error {
	if !d.next.IsZero() && time.Now().Before(d.next) {
		return lifetime.ErrLater
	}
	if err := g.TakeTurn(wait); err != nil {
		return err
	}
	defer g.turn.Unlock()
	return d.TryInTurn(g, f)
}

// TryInTurn calls f alone, or returns lifetime.ErrLater. The turn is held.
func (d *Destruction) TryInTurn(g *Exclusion, f func() error) (err error) {
	d.window = min(max(2*d.window, FirstWindow), LastWindow)
	if !g.aloneInTurn(d.window, func() { err = f() }) {
		d.next = time.Now().Add(WindowShare * d.window)
		return lifetime.ErrLater
	}
	return err
}
