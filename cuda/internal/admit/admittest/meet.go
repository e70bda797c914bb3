//go:build cudabind_lockorder

// Package admittest lets two calls meet in every order of their steps. The calls mark the places between steps by
// admit.Between.
package admittest

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/stretchr/testify/require"
)

// A walker is a goroutine that stops wherever it calls between.
type walker struct {
	id           int64
	resume, stop chan struct{} // stop receives when it has stopped, and is closed when it is over
	moving, over bool
}

// walk prepares to call f on a new goroutine, which stops before it begins.
func walk(f func()) *walker {
	w := &walker{resume: make(chan struct{}), stop: make(chan struct{}, 1)}
	id := make(chan int64)
	go func() {
		defer close(w.stop)
		id <- admit.Goroutine()
		<-w.resume
		f()
	}()
	w.id = <-id
	return w
}

// step lets the walker go on until it stops again, is over, or waits for the other one.
func (w *walker) step() {
	for waits := false; !waits && !w.over; runtime.Gosched() {
		w.goOn()
		waits = w.waits() // asked first: it may stop just then
		if w.stopped() {
			return
		}
	}
}

func (w *walker) goOn() {
	if !w.over && !w.moving {
		w.moving = true
		w.resume <- struct{}{}
	}
}

// stopped returns whether the walker has stopped, or is over.
func (w *walker) stopped() bool {
	select {
	case _, open := <-w.stop:
		w.moving, w.over = false, !open
		return true
	default:
		return false
	}
}

// stacks has room for the stacks of all goroutines.
var stacks = make([]byte, 1<<20)

// waits returns whether the goroutine sleeps, or waits for a lock or a channel.
func (w *walker) waits() bool {
	_, state, _ := bytes.Cut(stacks[:runtime.Stack(stacks, true)], fmt.Appendf(nil, "goroutine %d [", w.id))
	state, _, _ = bytes.Cut(state, []byte("]"))
	state, _, _ = bytes.Cut(state, []byte(","))
	switch string(state) {
	case "running", "runnable", "syscall":
		return false
	}
	return true
}

// A Meeting is two calls that meet.
type Meeting struct {
	A, B  func()
	Never func() bool // what holds after no step
	After func() bool // what holds once both have returned; nil for nothing
}

// steps of each order are chosen. Then both calls go on at once.
const steps = 7

// Meet makes the calls of a new Meeting in every order.
func Meet(t *testing.T, prepare func(t *testing.T) Meeting) {
	for order := range 1 << steps {
		m := prepare(t)
		walkers := [2]*walker{walk(m.A), walk(m.B)}
		stop := func() {
			id := admit.Goroutine()
			for _, w := range walkers {
				if w.id == id {
					w.stop <- struct{}{}
					<-w.resume
				}
			}
		}
		admit.AtStep.Store(&stop)
		what := fmt.Sprintf("in the order %0*b, from the right", steps, order)
		for i := range steps {
			walkers[order>>i&1].step()
			require.False(t, m.Never(), what)
		}
		admit.AtStep.Store(nil)
		for late := time.Now().Add(time.Minute); !walkers[0].over || !walkers[1].over; runtime.Gosched() {
			for _, w := range walkers {
				w.goOn()
				w.stopped()
			}
			require.True(t, time.Now().Before(late), "%s, the calls wait for each other", what)
		}
		if m.After != nil {
			require.True(t, m.After(), what)
		}
	}
}

// A Stay is the time in which a call does something.
type Stay struct{ now atomic.Bool }

// During is what the call does.
func (s *Stay) During() {
	s.now.Store(true)
	admit.Between()
	s.now.Store(false)
}

// Now returns whether the call does it now.
func (s *Stay) Now() bool { return s.now.Load() }

// Both returns whether both calls do it.
func Both(a, b *Stay) func() bool { return func() bool { return a.now.Load() && b.now.Load() } }
