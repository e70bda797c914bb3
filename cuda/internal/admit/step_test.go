//go:build cudabind_lockorder

// Two or three calls meet, in every order of their steps.

package admit_test

import (
	"context"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/admit/admittest"
	"github.com/stretchr/testify/assert"
)

// TestStepsMeet makes calls in every order of their steps. A real race seldom meets the one that matters.
func TestStepsMeet(t *testing.T) {
	for name, prepare := range meetings {
		t.Run(name, func(t *testing.T) { admittest.Meet(t, prepare) })
	}
}

// meetings are the calls whose order of steps matters.
var meetings = map[string]func(t *testing.T) admittest.Meeting{
	"a short call, and a capture": func(*testing.T) admittest.Meeting {
		var g admit.Gate
		var call, capture admittest.Stay
		return admittest.Meeting{
			A: func() {
				if g.Enter() {
					call.During()
					g.Leave()
				}
			},
			B: func() {
				g.Close()
				capture.During()
				g.Open()
			},
			Never: admittest.Both(&call, &capture),
		}
	},
	"a call with an event, and a captured record": func(*testing.T) admittest.Meeting {
		var g admit.Gate
		var call, capture admittest.Stay
		return admittest.Meeting{
			A: func() {
				if g.Enter() {
					call.During()
					g.Leave()
				}
			},
			B: func() {
				if g.CloseSoon() {
					capture.During()
				}
				g.Open()
			},
			Never: admittest.Both(&call, &capture),
		}
	},
	"a launch, and a destruction": func(t *testing.T) admittest.Meeting {
		var g admit.Exclusion
		var call, alone admittest.Stay
		return admittest.Meeting{
			A: func() {
				assert.NoError(t, g.With(3, func() error { call.During(); return nil }))
			},
			B:     func() { assert.True(t, g.TryExclusive(time.Minute, alone.During)) },
			Never: admittest.Both(&call, &alone),
		}
	},
	"a call that has to wait, and one that leaves": func(*testing.T) admittest.Meeting {
		l := &admit.Limiter{Patience: time.Hour}
		for l.Try() {
		}
		turn := make(chan struct{})
		close(turn)
		return admittest.Meeting{
			A: func() {
				if !l.Try() {
					turn = l.Join()
				}
			},
			B:     l.Leave,
			Never: func() bool { return l.Inside() > l.Limit() },
			After: func() bool {
				select {
				case <-turn:
					return l.Inside() == l.Limit()
				default:
					return false
				}
			},
		}
	},
	"a call that must not wait, and one that leaves": func(*testing.T) admittest.Meeting {
		l := &admit.Limiter{Patience: time.Hour}
		for l.Try() {
		}
		l.Join()
		return admittest.Meeting{
			A:     func() { l.Try() },
			B:     l.Leave,
			Never: func() bool { return l.Inside() > l.Limit() },
			After: func() bool { return l.Inside() == l.Limit() }, // one of the two that wanted to enter has
		}
	},
	"a long call, and a capture that waits for it": func(t *testing.T) admittest.Meeting {
		var g admit.Gate
		gates := []*admit.Gate{&g}
		var call, capture admittest.Stay
		return admittest.Meeting{
			A: func() {
				if admit.EnterLong(&g) == nil {
					call.During()
					g.LeaveLong()
				}
			},
			B: func() {
				if !admit.Want(gates) {
					assert.NoError(t, admit.Settle(context.Background(), gates))
				}
				g.Close()
				admit.Unwant(gates)
				capture.During()
				g.Open()
			},
			Never: admittest.Both(&call, &capture),
		}
	},
	"calls in turn, and alone": func(t *testing.T) admittest.Meeting {
		var g admit.Exclusion
		var turn, alone admittest.Stay
		return admittest.Meeting{
			A: func() {
				assert.NoError(t, g.Serialize(func() error { turn.During(); return nil }))
			},
			B: func() {
				assert.NoError(t, g.Exclusive(func() error { alone.During(); return nil }))
			},
			Never: admittest.Both(&turn, &alone),
		}
	},
	"two short calls, and a capture": func(*testing.T) admittest.Meeting {
		var g admit.Gate
		var one, other, capture admittest.Stay
		call := func(s *admittest.Stay) func() {
			return func() {
				if g.Enter() {
					s.During()
					g.Leave()
				}
			}
		}
		return admittest.Meeting{
			A: call(&one),
			B: func() {
				g.Close()
				capture.During()
				g.Open()
			},
			C:     call(&other),
			Never: func() bool { return capture.Now() && (one.Now() || other.Now()) },
		}
	},
	"two launches, and a destruction": func(t *testing.T) admittest.Meeting {
		var g admit.Exclusion
		var one, other, alone admittest.Stay
		return admittest.Meeting{
			A:     func() { assert.NoError(t, g.With(3, func() error { one.During(); return nil })) },
			B:     func() { assert.True(t, g.TryExclusive(time.Minute, alone.During)) },
			C:     func() { assert.NoError(t, g.With(4, func() error { other.During(); return nil })) },
			Never: func() bool { return alone.Now() && (one.Now() || other.Now()) },
		}
	},
	"calls in turn, alone, and a launch": func(t *testing.T) admittest.Meeting {
		var g admit.Exclusion
		var turn, alone, call admittest.Stay
		return admittest.Meeting{
			A:     func() { assert.NoError(t, g.Serialize(func() error { turn.During(); return nil })) },
			B:     func() { assert.NoError(t, g.Exclusive(func() error { alone.During(); return nil })) },
			C:     func() { assert.NoError(t, g.With(3, func() error { call.During(); return nil })) },
			Never: func() bool { return alone.Now() && (turn.Now() || call.Now()) },
		}
	},
	"a call that has to wait, and two that leave": func(*testing.T) admittest.Meeting {
		l := &admit.Limiter{Patience: time.Hour}
		for l.Try() {
		}
		turn := make(chan struct{})
		close(turn)
		return admittest.Meeting{
			A: func() {
				if !l.Try() {
					turn = l.Join()
				}
			},
			B:     l.Leave,
			C:     l.Leave,
			Never: func() bool { return l.Inside() > l.Limit() },
			After: func() bool {
				select {
				case <-turn:
					return l.Inside() == l.Limit()-1
				default:
					return false
				}
			},
		}
	},
}
