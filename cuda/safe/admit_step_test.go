//go:build cudabind_lockorder && (((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64))

// Two calls meet, in every order of their steps. Runs on any driver; most rows need none.

package safe

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/stretchr/testify/assert"
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
		id <- goroutine()
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

// A meeting is two calls that meet.
type meeting struct {
	a, b  func()
	never func() bool // what holds after no step
	after func() bool // what holds once both have returned; nil for nothing
}

// steps of each order are chosen. Then both calls go on at once.
const steps = 7

// meet makes the calls of a new meeting in every order.
func meet(t *testing.T, prepare func(t *testing.T) meeting) {
	for order := range 1 << steps {
		m := prepare(t)
		walkers := [2]*walker{walk(m.a), walk(m.b)}
		stop := func() {
			id := goroutine()
			for _, w := range walkers {
				if w.id == id {
					w.stop <- struct{}{}
					<-w.resume
				}
			}
		}
		atStep.Store(&stop)
		what := fmt.Sprintf("in the order %0*b, from the right", steps, order)
		for i := range steps {
			walkers[order>>i&1].step()
			require.False(t, m.never(), what)
		}
		atStep.Store(nil)
		for late := time.Now().Add(time.Minute); !walkers[0].over || !walkers[1].over; runtime.Gosched() {
			for _, w := range walkers {
				w.goOn()
				w.stopped()
			}
			require.True(t, time.Now().Before(late), "%s, the calls wait for each other", what)
		}
		if m.after != nil {
			require.True(t, m.after(), what)
		}
	}
}

// A stay is the time in which a call does something.
type stay struct{ now atomic.Bool }

// during is what the call does.
func (s *stay) during() {
	s.now.Store(true)
	between()
	s.now.Store(false)
}

// both returns whether both calls do it.
func both(a, b *stay) func() bool { return func() bool { return a.now.Load() && b.now.Load() } }

// A noted is an object whose destruction notes that it is destroyed, once it may be.
type noted struct {
	mortal
	may       func(wait bool) bool
	destroyed atomic.Bool
}

func (o *noted) Destroy(wait bool) error {
	if !o.may(wait) {
		return lifetime.ErrLater
	}
	o.destroyed.Store(true)
	return nil
}

// meetings are the calls whose order of steps matters.
var meetings = map[string]func(t *testing.T) meeting{
	"the use of a block, and its release": func(t *testing.T) meeting {
		s, b := nowhere(), &block{}
		o := &noted{may: func(wait bool) bool { return b.last.over(b.known(), wait) }}
		require.NoError(t, b.Open(o, nil))
		s.capture.Store(&capturing{}) // its work is pending
		var used atomic.Bool
		return meeting{
			a: func() {
				s.mu.Lock()
				used.Store(b.use(s))
				s.mu.Unlock()
			},
			b:     func() { assert.NoError(t, b.Close()) },
			never: func() bool { return used.Load() && o.destroyed.Load() },
			after: endCapture(s),
		}
	},
	"a launch of an executable, and its release": func(t *testing.T) meeting {
		s, e := nowhere(), &execCore{}
		o := &noted{may: func(bool) bool { return e.last.over(&e.launches, false) }}
		require.NoError(t, e.Open(o, nil))
		s.capture.Store(&capturing{})
		var used atomic.Bool
		return meeting{
			a: func() {
				s.mu.Lock()
				e.mu.Lock()
				used.Store(e.use(s))
				e.mu.Unlock()
				s.mu.Unlock()
			},
			b:     func() { assert.NoError(t, e.Close()) },
			never: func() bool { return used.Load() && o.destroyed.Load() },
			after: endCapture(s),
		}
	},
	"a short call, and a capture": func(*testing.T) meeting {
		var g gate
		var call, capture stay
		return meeting{
			a: func() {
				if g.enter() {
					call.during()
					g.leave()
				}
			},
			b: func() {
				g.close()
				capture.during()
				g.open()
			},
			never: both(&call, &capture),
		}
	},
	"a call with an event, and a captured record": func(*testing.T) meeting {
		var g gate
		var call, capture stay
		return meeting{
			a: func() {
				if g.enter() {
					call.during()
					g.leave()
				}
			},
			b: func() {
				if g.closeSoon() {
					capture.during()
				}
				g.open()
			},
			never: both(&call, &capture),
		}
	},
	"a long call, and a claim": func(t *testing.T) meeting {
		s := nowhere()
		var call, capture stay
		return meeting{
			a: func() {
				if g := &s.ctx.shared.whole; enterLong(g) == nil {
					call.during()
					g.leaveLong()
				}
			},
			b: func() {
				gates, err := s.claim("", &capturing{ctx: context.Background()})
				assert.NoError(t, err)
				capture.during()
				s.disclaim(gates)
			},
			never: both(&call, &capture),
			after: func() bool {
				g := &s.ctx.shared.whole
				return g.captures.Load() == 0 && g.wanted.Load() == 0 && g.long.Load() == 0
			},
		}
	},
	"a launch, and a destruction": func(t *testing.T) meeting {
		var g callGate
		var call, alone stay
		return meeting{
			a: func() {
				assert.NoError(t, g.with(3, func() error { call.during(); return nil }))
			},
			b:     func() { assert.True(t, g.alone(time.Minute, alone.during)) },
			never: both(&call, &alone),
		}
	},
	"a quick call with an event, and its release": func(t *testing.T) meeting {
		e := &Event{core: &eventCore{recording: &recording{}, ctx: nowhere().ctx}}
		o := &noted{may: func(wait bool) bool { return patiently(wait, e.core.unused) }}
		require.NoError(t, e.core.Open(o, nil))
		var call stay
		return meeting{
			a: func() {
				if v := e.quick(); v != nil {
					call.during()
					v.gate.leave()
				}
			},
			b:     func() { assert.NoError(t, e.core.Close()) },
			never: func() bool { return call.now.Load() && o.destroyed.Load() },
		}
	},
	"a wait for an event, and a captured record": func(t *testing.T) meeting {
		e := &eventCore{recording: &recording{}}
		var wait, record stay
		return meeting{
			a: func() {
				if e.beginWait() {
					wait.during()
					e.waiting.Add(-1)
				}
			},
			b: func() {
				assert.NoError(t, e.exclude("", nil, func() error {
					if e.unawaited() {
						record.during()
					}
					return nil
				}))
			},
			never: both(&wait, &record),
		}
	},
	"a call that has to wait, and one that leaves": func(*testing.T) meeting {
		l := &limiter{patience: time.Hour}
		for l.try() {
		}
		turn := make(chan struct{})
		close(turn)
		return meeting{
			a: func() {
				if !l.try() {
					turn = l.join()
				}
			},
			b:     l.leave,
			never: func() bool { return l.inside.Load() > l.limit() },
			after: func() bool {
				select {
				case <-turn:
					return l.inside.Load() == l.limit()
				default:
					return false
				}
			},
		}
	},
	"a call that must not wait, and one that leaves": func(*testing.T) meeting {
		l := &limiter{patience: time.Hour}
		for l.try() {
		}
		l.join()
		return meeting{
			a:     func() { l.try() },
			b:     l.leave,
			never: func() bool { return l.inside.Load() > l.limit() },
			after: func() bool { return l.inside.Load() == l.limit() }, // one of the two that wanted to enter has
		}
	},
	"a wait that is given up, and the poller": func(*testing.T) meeting {
		p, w, l := &polling{running: true}, &waiter{end: func() {}}, &waitQueues{}
		l.add(w)
		var seen uint32
		return meeting{
			a:     func() { p.abandon(w) },
			b:     func() { seen, _ = p.update(l) },
			never: func() bool { return false },
			after: func() bool { return len(l.entries) == 0 || p.alarm.Seen() != seen },
		}
	},
	"the first launch of an executable, and Revoke": func(t *testing.T) meeting {
		b := &block{resource: &resource{release: func() {}}, ctx: nowhere().ctx}
		require.NoError(t, b.Open(b, nil))
		e := &execCore{kept: new(graphRoom).init()}
		require.True(t, e.kept.captured.retain(&b.Handle, b.Acquire))
		revocations.Add(1) // or there is nothing to look for
		return meeting{
			a:     func() { _ = e.unrevoked("") },
			b:     (&Resource{newMemory(b)}).Revoke,
			never: func() bool { return false },
			after: func() bool {
				err := e.unrevoked("")
				e.kept.release()
				return assert.ErrorIs(t, err, ErrClosed)
			},
		}
	},
	"a host function that is lost, and the report of an earlier loss": func(t *testing.T) meeting {
		x, err := Open(0)
		require.NoError(t, err)
		losing.Store(true)
		c := &closure{future: newFuture[struct{}](), ctx: x.core}
		const code = driver.CUDA_ERROR_UNKNOWN
		return meeting{
			a: func() {
				c.keep()
				noticeLoss(code)
			},
			b:     func() { failAll(code) },
			never: func() bool { return false },
			after: func() bool {
				lifetime.Drain(time.Minute)
				return c.future.Err() != nil && x.Close() == nil
			},
		}
	},
}

// endCapture lets an object be destroyed that s uses.
func endCapture(s *streamCore) func() bool {
	return func() bool {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		return true
	}
}

// TestStepsMeet makes each two calls in every order of their steps. A real race seldom meets the one that matters.
func TestStepsMeet(t *testing.T) {
	defer func(d int64) { closePatience.Store(d) }(closePatience.Swap(int64(time.Millisecond)))
	for name, prepare := range meetings {
		t.Run(name, func(t *testing.T) { meet(t, prepare) })
	}
}
