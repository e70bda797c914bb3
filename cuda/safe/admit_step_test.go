//go:build cudabind_lockorder && (((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64))

// Two calls meet, in every order of their steps. Runs on any driver; most rows need none.

package safe

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/admit/admittest"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
var meetings = map[string]func(t *testing.T) admittest.Meeting{
	"the use of a block, and its release": func(t *testing.T) admittest.Meeting {
		s, b := nowhere(), &block{}
		o := &noted{may: func(wait bool) bool { return b.last.over(b.known(), wait) }}
		require.NoError(t, b.Open(o, nil))
		s.capture.Store(&capturing{}) // its work is pending
		var used atomic.Bool
		return admittest.Meeting{
			A: func() {
				s.mu.Lock()
				used.Store(b.use(s))
				s.mu.Unlock()
			},
			B:     func() { assert.NoError(t, b.Close()) },
			Never: func() bool { return used.Load() && o.destroyed.Load() },
			After: endCapture(s),
		}
	},
	"a launch of an executable, and its release": func(t *testing.T) admittest.Meeting {
		s, e := nowhere(), &execCore{}
		o := &noted{may: func(bool) bool { return e.last.over(&e.launches, false) }}
		require.NoError(t, e.Open(o, nil))
		s.capture.Store(&capturing{})
		var used atomic.Bool
		return admittest.Meeting{
			A: func() {
				s.mu.Lock()
				e.mu.Lock()
				used.Store(e.use(s))
				e.mu.Unlock()
				s.mu.Unlock()
			},
			B:     func() { assert.NoError(t, e.Close()) },
			Never: func() bool { return used.Load() && o.destroyed.Load() },
			After: endCapture(s),
		}
	},
	"a long call, and a claim": func(t *testing.T) admittest.Meeting {
		s := nowhere()
		var call, capture admittest.Stay
		return admittest.Meeting{
			A: func() {
				if g := &s.ctx.shared.whole; admit.EnterLong(g) == nil {
					call.During()
					g.LeaveLong()
				}
			},
			B: func() {
				gates, err := s.claim("", &capturing{ctx: context.Background()})
				assert.NoError(t, err)
				capture.During()
				s.disclaim(gates)
			},
			Never: admittest.Both(&call, &capture),
			After: func() bool {
				g := []*admit.Gate{&s.ctx.shared.whole}
				entered, _ := admit.TryLong(g...) // no capture is open, nor wants to begin
				if entered {
					g[0].LeaveLong()
				}
				return entered && admit.Want(g) // no long call is in flight
			},
		}
	},
	"a quick call with an event, and its release": func(t *testing.T) admittest.Meeting {
		e := &Event{core: &eventCore{recording: &recording{}, ctx: nowhere().ctx}}
		o := &noted{may: func(wait bool) bool { return patiently(wait, e.core.unused) }}
		require.NoError(t, e.core.Open(o, nil))
		var call admittest.Stay
		return admittest.Meeting{
			A: func() {
				if v := e.quick(); v != nil {
					call.During()
					v.gate.Leave()
				}
			},
			B:     func() { assert.NoError(t, e.core.Close()) },
			Never: func() bool { return call.Now() && o.destroyed.Load() },
		}
	},
	"a wait for an event, and a captured record": func(t *testing.T) admittest.Meeting {
		e := &eventCore{recording: &recording{}}
		var wait, record admittest.Stay
		return admittest.Meeting{
			A: func() {
				if e.beginWait() {
					wait.During()
					e.waiting.Add(-1)
				}
			},
			B: func() {
				assert.NoError(t, e.exclude("", nil, func() error {
					if e.unawaited() {
						record.During()
					}
					return nil
				}))
			},
			Never: admittest.Both(&wait, &record),
		}
	},
	"a wait that is given up, and the poller": func(*testing.T) admittest.Meeting {
		p, w, l := &polling{running: true}, &waiter{end: func() {}}, &waitQueues{}
		l.add(w)
		var seen uint32
		return admittest.Meeting{
			A:     func() { p.abandon(w) },
			B:     func() { seen, _ = p.update(l) },
			Never: func() bool { return false },
			After: func() bool { return len(l.entries) == 0 || p.alarm.Seen() != seen },
		}
	},
	"the first launch of an executable, and Revoke": func(t *testing.T) admittest.Meeting {
		b := &block{resource: &resource{release: func() {}}, ctx: nowhere().ctx}
		require.NoError(t, b.Open(b, nil))
		e := &execCore{kept: new(graphRoom).init()}
		require.True(t, e.kept.captured.retain(&b.Handle, b.Acquire))
		revocations.Add(1) // or there is nothing to look for
		return admittest.Meeting{
			A:     func() { _ = e.unrevoked("") },
			B:     (&Resource{newMemory(b)}).Revoke,
			Never: func() bool { return false },
			After: func() bool {
				err := e.unrevoked("")
				e.kept.release()
				return assert.ErrorIs(t, err, ErrClosed)
			},
		}
	},
	"a call on two streams, and the end of their capture": func(t *testing.T) admittest.Meeting {
		streams := inOrder([]*streamCore{nowhere(), nowhere()})
		c := &capturing{origin: nowhere(), graph: newGraphCore(nil), joined: streams}
		for _, s := range streams {
			require.NoError(t, s.Open(mortal{}, nil))
			require.True(t, s.Acquire())
			s.capture.Store(c)
		}
		return admittest.Meeting{
			A: func() {
				a := admission{stream: streams[0], flags: enqueues, places: rawPlaces}
				if entered, _ := a.enterAll(streams, nil); entered {
					admit.Between()
					a.leaveAll(streams, false)
				}
			},
			B: func() {
				c.graph.mu.Lock()
				c.over = true
				c.release()
				c.graph.mu.Unlock()
			},
			Never: func() bool { return false },
			After: func() bool { return streams[0].pending == 0 && streams[1].pending == 0 },
		}
	},
	"a host function that is lost, and the report of an earlier loss": func(t *testing.T) admittest.Meeting {
		x, err := Open(0)
		require.NoError(t, err)
		losing.Store(true)
		c := &closure{future: newFuture[struct{}](), ctx: x.core}
		const code = driver.CUDA_ERROR_UNKNOWN
		return admittest.Meeting{
			A: func() {
				c.keep()
				noticeLoss(code)
			},
			B:     func() { failAll(code) },
			Never: func() bool { return false },
			After: func() bool {
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
		t.Run(name, func(t *testing.T) { admittest.Meet(t, prepare) })
	}
}
