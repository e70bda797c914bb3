package safe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// executables admits calls that launch or change executables of any graph. It excludes
// them while an executable is destroyed or a primary context released: the driver crashes
// if a launch, even of another graph, is in flight then.
var executables callGate

// peerCopies admits copies between devices. It excludes them while a device gets or loses
// access to memory of another: a copy that the driver is just starting would access memory
// that is not mapped there. Copies that the driver has started are not affected.
var peerCopies callGate

// hostWaits admits calls in which the host waits for work. The driver then goes through
// memory pools to free what was released, so no pool is destroyed meanwhile.
var hostWaits callGate

// A callGate counts the calls in flight in several stripes, as many threads make them at
// once.
type callGate struct {
	shut    atomic.Bool
	turn    sync.Mutex // held by alone and inTurn
	stripes [16]stripe
}

type stripe struct {
	calls atomic.Int32
	_     [60]byte // one cache line each
}

func (g *callGate) stripe(s *streamCore) *stripe { return g.at(s.number) }

func (g *callGate) at(number uint32) *stripe { return &g.stripes[number%uint32(len(g.stripes))] }

// enter admits a call until leave of the same stripe.
func (s *stripe) enter(g *callGate) error {
	for {
		s.calls.Add(1)
		between()
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

func (s *stripe) leave() { s.calls.Add(-1) }

// with admits f. Calls with different numbers seldom share a stripe.
func (g *callGate) with(number uint32, f func() error) error {
	s := g.at(number)
	if err := s.enter(g); err != nil {
		return err
	}
	defer s.leave()
	return f()
}

// whenAlone calls f once no other call is in flight.
func (g *callGate) whenAlone(f func() error) (err error) {
	for !g.alone(lastWindow, func() { err = f() }) {
		time.Sleep(windowShare * lastWindow)
	}
	return err
}

// alone calls f with no other call in flight, if they all return within window. A launch
// may wait indefinitely for room in its stream's queue.
func (g *callGate) alone(window time.Duration, f func()) bool {
	g.turn.Lock()
	defer g.turn.Unlock()
	return g.aloneInTurn(window, f)
}

// idle returns whether no call is in flight within window, unless another call has the turn.
func (g *callGate) idle(window time.Duration) bool {
	if !g.turn.TryLock() {
		return false
	}
	defer g.turn.Unlock()
	return g.aloneInTurn(window, func() {})
}

// aloneInTurn is alone with turn held.
func (g *callGate) aloneInTurn(window time.Duration, f func()) bool {
	g.shut.Store(true)
	defer g.shut.Store(false)
	between()
	var end time.Time
	for i := 0; i < len(g.stripes); {
		switch {
		case g.stripes[i].calls.Load() == 0:
			i++
		case end.IsZero():
			end = time.Now().Add(window)
		case time.Now().After(end):
			return false
		default:
			between()
			runtime.Gosched()
		}
	}
	f()
	return true
}

// inTurn calls f, which destroys a graph or a stream, or copies or instantiates a graph. No
// other such call is in flight and no executable is destroyed meanwhile, which would corrupt
// the driver's heap: copies and executables share parts of the graph that they come from.
func (g *callGate) inTurn(f func() error) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	return f()
}

// turns makes destructions for which the Reaper would have to wait.
var turns lifetime.Queue

// take locks turn. Without wait, it postpones a destruction if another call has the turn: an
// instantiation may load kernels, which waits for all that run.
func (g *callGate) take(wait bool) error {
	if !lockOr(&g.turn, wait) {
		return &lifetime.Elsewhere{Queue: &turns}
	}
	return nil
}

// destroys calls destroy, which must not wait for the turn. With wait, it does so here if
// another call has the turn, with nothing locked: it may take long. destroy is then called in
// turn.
func (g *callGate) destroys(wait bool, destroy func(wait, inTurn bool) error) error {
	err := destroy(wait, false)
	if _, busy := err.(*lifetime.Elsewhere); !busy || !wait {
		return err
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	return destroy(wait, true)
}

// A destruction needs a moment without the calls of a gate, and is retried until it gets
// one. Each try delays all these calls a little longer than the one before, and the next one
// comes later.
type destruction struct {
	window time.Duration
	next   time.Time
}

const (
	firstWindow = 500 * time.Microsecond
	lastWindow  = 20 * time.Millisecond
	windowShare = 20 // the pause after a try, in windows
)

// try calls f, or postpones the destruction.
func (d *destruction) try(g *callGate, wait bool, f func() error) error {
	if !d.next.IsZero() && time.Now().Before(d.next) {
		return lifetime.ErrLater
	}
	if err := g.take(wait); err != nil {
		return err
	}
	defer g.turn.Unlock()
	return d.tryInTurn(g, f)
}

// tryInTurn is try with the gate's turn held.
func (d *destruction) tryInTurn(g *callGate, f func() error) (err error) {
	d.window = min(max(2*d.window, firstWindow), lastWindow)
	if !g.aloneInTurn(d.window, func() { err = f() }) {
		d.next = time.Now().Add(windowShare * d.window)
		return lifetime.ErrLater
	}
	return err
}
