//go:build cudabind_lockorder

// Package admittest lets two or three calls meet in every order of their steps. The calls mark the places between steps by
// admit.Between.
package admittest

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
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

// step lets the walker go on until it stops again, is over, or waits for another one.
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

// A Meeting is calls that meet.
type Meeting struct {
	A, B  func()
	C     func()      // nil: two calls meet
	Never func() bool // what holds after no step
	After func() bool // what holds once all have returned; nil for nothing
}

// steps of each order are chosen. Then all calls go on at once.
const steps = 7

// Meet makes the calls of a new Meeting in every order.
func Meet(t *testing.T, prepare func(t *testing.T) Meeting) {
	for order, last := 0, false; !last; order++ {
		m := prepare(t)
		calls := []func(){m.A, m.B, m.C}
		if m.C == nil {
			calls = calls[:2]
		}
		var walkers []*walker
		for _, call := range calls {
			walkers = append(walkers, walk(call))
		}
		turns := orderOf(order, len(calls))
		last = !slices.ContainsFunc(turns[:], func(turn int) bool { return turn < len(calls)-1 })
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
		what := fmt.Sprintf("in the order %v", turns)
		for _, turn := range turns {
			walkers[turn].step()
			require.False(t, m.Never(), what)
		}
		admit.AtStep.Store(nil)
		for late := time.Now().Add(time.Minute); slices.ContainsFunc(walkers, func(w *walker) bool { return !w.over }); runtime.Gosched() {
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

// orderOf is the nth order of the steps of so many calls.
func orderOf(n, calls int) (turns [steps]int) {
	for i := range turns {
		turns[i] = n % calls
		n /= calls
	}
	return turns
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
