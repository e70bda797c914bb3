package safe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// executables admits calls that launch or change executables, of any graph, and
// keeps them out while an executable is destroyed or a primary context released: the
// driver crashes where a launch of another graph is in flight then.
var executables execGate

// An execGate counts the calls in flight in several places, as they are made by many
// threads at once.
type execGate struct {
	shut    atomic.Bool
	turn    sync.Mutex // of those that destroy executables, graphs and streams
	stripes [16]stripe
}

type stripe struct {
	calls atomic.Int32
	_     [60]byte // a cache line for each
}

func (g *execGate) stripe(s *streamCore) *stripe { return &g.stripes[s.stripe%uint32(len(g.stripes))] }

// enter admits a call until leave of the stripe.
func (s *stripe) enter(g *execGate) error {
	for {
		s.calls.Add(1)
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

// alone calls f with no other call in flight, if those that are return within the
// window. A launch may wait for room in its stream's queue without end.
func (g *execGate) alone(window time.Duration, f func()) bool {
	g.turn.Lock()
	defer g.turn.Unlock()
	g.shut.Store(true)
	defer g.shut.Store(false)
	for i, end := 0, time.Now().Add(window); i < len(g.stripes); {
		switch {
		case g.stripes[i].calls.Load() == 0:
			i++
		case time.Now().After(end):
			return false
		default:
			runtime.Gosched()
		}
	}
	f()
	return true
}

// destroying calls f, which destroys a graph or a stream, while no other one is
// destroyed, nor an executable: the driver's heap does not survive that.
func (g *execGate) destroying(f func() error) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	return f()
}

// A destruction is tried again and again with no launch in flight. Each try holds up
// all launches of graphs a little longer, and the next one comes the later.
type destruction struct {
	window time.Duration
	next   time.Time
}

const (
	firstWindow = 500 * time.Microsecond
	lastWindow  = 20 * time.Millisecond
	windowShare = 20 // so much longer is the time until the next
)

// try calls f, or returns errLater.
func (d *destruction) try(f func() error) (err error) {
	now := time.Now()
	if now.Before(d.next) {
		return lifetime.ErrLater
	}
	d.window = min(max(2*d.window, firstWindow), lastWindow)
	if !executables.alone(d.window, func() { err = f() }) {
		d.next = now.Add(windowShare * d.window)
		return lifetime.ErrLater
	}
	return err
}
