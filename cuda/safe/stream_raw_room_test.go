//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Raw calls on several streams that wait for room in their queues. Runs on any driver.

package safe_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onBoth makes n calls of EnqueueRaw over two streams, each on a goroutine of its own. over receives their
// errors.
func onBoth(a, b *safe.Stream, n int) (over chan error) {
	over = make(chan error, n)
	for range n {
		go func() {
			over <- safe.EnqueueRaw(func() error { return nil }, safe.RawWork{Stream: a}, safe.RawWork{Stream: b})
		}()
	}
	return over
}

// idleStreams returns two streams on which the kernel has run. A call on both waits for room in the first one first.
func idleStreams(t *testing.T, x *safe.Context, k *safe.Kernel) (a, b *safe.Stream) {
	t.Helper()
	a, b = safe.InOrder(stream(t, x), stream(t, x))
	require.NoError(t, errors.Join(k.Launch(a, one), k.Launch(b, one), a.Synchronize(), b.Synchronize()))
	return a, b
}

// TestRawPlaces: a call counts as much of the queue as it says, as 30 if it says nothing, and as 240 at most.
func TestRawPlaces(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, other := idleStreams(t, x, kernel(t, x, "nothing"))
	stick(t, x, s)
	again, err := s.Borrow()
	require.NoError(t, err)
	closing(t, again)
	nothing := func() error { return nil }
	for name, c := range map[string]struct {
		on   []safe.RawWork
		want int
	}{
		"not known":            {[]safe.RawWork{{Stream: s}}, 30},
		"few":                  {[]safe.RawWork{{Stream: s, Places: 2}}, 2},
		"many":                 {[]safe.RawWork{{Stream: s, Places: 1000}}, 240},
		"of one stream, twice": {[]safe.RawWork{{Stream: s, Places: 3}, {Stream: other, Places: 4}, {Stream: again, Places: 2}}, 9},
		"of two streams":       {[]safe.RawWork{{Stream: other, Places: 2}, {Stream: s, Places: 5}}, 5},
		"one not known":        {[]safe.RawWork{{Stream: other}, {Stream: s, Places: 5}}, 30},
		"the other known":      {[]safe.RawWork{{Stream: other, Places: 40}, {Stream: s}}, 40},
	} {
		before := safe.Pending(s)
		require.NoError(t, safe.EnqueueRaw(nothing, c.on...), name)
		assert.Equal(t, c.want, safe.Pending(s)-before, name)
	}
	before := safe.Pending(s)
	err = safe.EnqueueRaw(nothing, safe.RawWork{Stream: other}, safe.RawWork{Stream: s, Places: -1})
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorContains(t, err, "stream 1: Places is -1")
	assert.Equal(t, before, safe.Pending(s))
}

// TestRoomOfLargeCall: a call that takes much of the queue waits until there is room for all of it.
func TestRoomOfLargeCall(t *testing.T) {
	watch(t)
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	s, _ := idleStreams(t, x, k)
	unstick := stick(t, x, s)
	for safe.Pending(s) < 860 {
		require.NoError(t, k.Launch(s, one))
	}
	over := make(chan error, 1)
	go func() { over <- safe.EnqueueRaw(func() error { return nil }, safe.RawWork{Stream: s, Places: 240}) }()
	assert.Eventually(t, func() bool { return safe.Reserved(s) == 240 }, atOnce, time.Millisecond, "the call does not wait")
	unstick()
	require.NoError(t, errors.Join(<-over, s.Synchronize()))
}

// TestRoomInParts: there is room again once the oldest part of the work has completed, while the rest is stuck.
func TestRoomInParts(t *testing.T) {
	watch(t)
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	s, _ := idleStreams(t, x, k)
	for range 300 {
		require.NoError(t, k.Launch(s, one))
	}
	unstick, over := stick(t, x, s), make(chan struct{})
	go func() {
		defer close(over)
		for range 800 {
			assert.NoError(t, k.Launch(s, one))
		}
	}()
	soon(t, over, "the launches wait for stuck work")
	unstick()
	<-over
	require.NoError(t, s.Synchronize())
}

// TestRawRoomAtDifferentTimes: a call on two streams needs room in both, but not in both at once.
func TestRawRoomAtDifferentTimes(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		k := kernel(t, x, "nothing")
		s, other := idleStreams(t, x, k)
		unstick, unstickOther := stick(t, x, s), stick(t, x, other)
		filled := fillQueue(t, s, k, queued)
		filledOther := fillQueue(t, other, k, queued)
		over := onBoth(s, other, 1)
		unstick()
		<-filled
		require.NoError(t, s.Synchronize())
		require.Eventually(t, func() bool { return safe.Reserved(s) == 30 }, atOnce, time.Millisecond, "no room is kept for the call")
		unstick = stick(t, x, s)
		filled = fillQueue(t, s, k, queued)
		unstickOther()
		select {
		case err := <-over:
			assert.NoError(t, err)
		case <-time.After(atOnce):
			t.Error("the call waits for room in both streams at once")
		}
		unstick()
		<-filled
		<-filledOther
		require.NoError(t, errors.Join(s.Synchronize(), other.Synchronize()))
		assert.Zero(t, safe.Reserved(s)+safe.Reserved(other))
		noViolation(t)
	})
}

// TestRawRoomBesideStuckStream: calls that wait for room in a stuck stream leave most of another one to its
// own work.
func TestRawRoomBesideStuckStream(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		k := kernel(t, x, "nothing")
		s, stuck := idleStreams(t, x, k)
		unstickOther := stick(t, x, stuck)
		filledOther := fillQueue(t, stuck, k, queued)
		const calls = 40
		over := onBoth(s, stuck, calls)
		require.Eventually(t, func() bool { return safe.Reserved(s) >= 240 }, atOnce, time.Millisecond)
		unstick := stick(t, x, s)
		filled := fillQueue(t, s, k, queued)
		assert.Equal(t, 720, safe.Pending(s))
		unstick()
		soon(t, filled, "launches on a stream wait for another one that is stuck")
		unstickOther()
		<-filledOther
		for range calls {
			assert.NoError(t, <-over)
		}
		assert.Zero(t, safe.Reserved(s)+safe.Reserved(stuck))
		noViolation(t)
	})
}

// TestRawRoomAmongLaunches: a call on two streams gets its turn among goroutines that keep both full.
func TestRawRoomAmongLaunches(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		k := kernel(t, x, "spin")
		s, other := idleStreams(t, x, kernel(t, x, "nothing"))
		var launches atomic.Int64
		var c racers
		for _, s := range []*safe.Stream{s, other} {
			c.add(3, func() error {
				launches.Add(1)
				return k.Launch(s, one, safe.Val(uint64(500_000)))
			})
		}
		for launches.Load() < 2*queued { // both are full
			time.Sleep(time.Millisecond)
		}
		const turns, most = 5, 10 * queued
		for range turns {
			before, over := launches.Load(), onBoth(s, other, 1)
			for len(over) == 0 && launches.Load() < before+most {
				time.Sleep(time.Millisecond)
			}
			t.Logf("%d launches came first", launches.Load()-before)
			if !assert.Less(t, launches.Load()-before, int64(most), "the call gets no turn") {
				break
			}
			require.NoError(t, <-over)
		}
		require.NoError(t, c.end())
		noViolation(t)
	})
}
