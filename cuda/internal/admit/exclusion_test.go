package admit_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEnterAsOneIsAlone: one of many calls enters at the moment at which another one begins to be alone. Where an
// emulated processor lets a load pass an earlier store, they met.
func TestEnterAsOneIsAlone(t *testing.T) {
	const rounds = 20000
	var round [2]struct {
		now atomic.Int32
		_   [60]byte
	}
	together := func(me, other, i int) { // both go on at once
		round[me].now.Store(int32(i))
		for spins := 1; round[other].now.Load() < int32(i); spins++ {
			if spins%10000 == 0 {
				runtime.Gosched()
			}
		}
	}
	gates := make([]admit.Exclusion, rounds) // no cache has them
	var inside, met atomic.Int32
	var both sync.WaitGroup
	both.Go(func() {
		for i := range rounds {
			together(0, 1, i+1)
			gates[i].TryExclusive(0, func() {
				for range 100 {
					met.Add(inside.Load())
				}
			})
		}
	})
	both.Go(func() {
		for i := range rounds {
			together(1, 0, i+1)
			_ = gates[i].With(0, func() error {
				inside.Add(1)
				for range 100 {
					inside.Load()
				}
				inside.Add(-1)
				return nil
			})
		}
	})
	both.Wait()
	require.Zero(t, met.Load(), "calls beside one that is alone")
}

// TestDestroyInTurn: a destruction for which another call has the turn waits for that only if it may.
func TestDestroyInTurn(t *testing.T) {
	var g admit.Exclusion
	destroy := func(_, inTurn bool) error {
		if inTurn {
			return nil
		}
		return &lifetime.Elsewhere{}
	}
	require.NoError(t, g.TakeTurn(true))
	assert.True(t, lifetime.Postponed(g.Destroy(false, destroy)))
	over := make(chan error, 1)
	go func() { over <- g.Destroy(true, destroy) }()
	g.EndTurn()
	assert.NoError(t, <-over)
}
