// Admission and releases, on streams of no driver.

package safe

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nowhere returns a stream of no driver.
func nowhere() *streamCore {
	return &streamCore{queue: newQueue(), nonBlocking: true, ctx: &contextCore{shared: &contextState{}}}
}

// A mortal is an object whose destruction does nothing.
type mortal struct{}

func (mortal) Kind() string       { return "object of a test" }
func (mortal) Destroy(bool) error { return nil }

// TestOpenClosed: a call that has not acquired its stream is refused if the stream was closed before the call
// has its lock.
func TestOpenClosed(t *testing.T) {
	s := nowhere()
	require.NoError(t, s.Open(mortal{}, nil))
	a := admission{op: "op", stream: s, flags: enqueues | unacquired, places: 1}
	require.NoError(t, a.admit())
	a.leave(true)
	require.NoError(t, s.Close())
	assert.ErrorIs(t, a.admit(), ErrClosed)
	assert.True(t, s.mu.TryLock(), "it keeps the lock")
	s.mu.Unlock()
}

// TestLegacyWaitsUnlocked: work on a legacy stream waits with nothing locked for captures that wait to begin.
func TestLegacyWaitsUnlocked(t *testing.T) {
	work := func(s *streamCore) *admission { return &admission{op: "op", stream: s, flags: enqueues, places: 1} }
	for name, enter := range map[string]func(legacy, other *streamCore) (entered bool, err error){
		"one stream": func(legacy, _ *streamCore) (bool, error) {
			legacy.mu.Lock()
			return work(legacy).enter()
		},
		"several streams": func(legacy, other *streamCore) (bool, error) {
			streams := inOrder([]*streamCore{other, legacy})
			return work(streams[0]).enterAll(streams, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			legacy, other := nowhere(), nowhere()
			legacy.raw = driver.CU_STREAM_LEGACY
			gates := []*admit.Gate{&legacy.ctx.shared.legacy}
			require.True(t, admit.Want(gates))
			over := make(chan bool, 1)
			go func() {
				entered, err := enter(legacy, other)
				over <- !entered && err == nil
			}()
			select {
			case again := <-over:
				assert.True(t, again)
			case <-time.After(time.Minute):
				require.Fail(t, "it waits with the stream locked")
			}
			for _, s := range []*streamCore{legacy, other} {
				require.True(t, s.mu.TryLock(), "it keeps a lock")
				s.mu.Unlock()
			}

			admit.Unwant(gates)
			require.True(t, admit.Want(gates), "a long call is in flight")
			admit.Unwant(gates)
			streams := inOrder([]*streamCore{legacy, other})
			a := work(streams[0])
			require.NoError(t, a.admitAll(streams))
			a.leaveAll(streams, true)
		})
	}
}

// TestCaptureTakesBusyStream: a capture that has waited for long calls begins although other calls have its stream
// locked nearly all the time: it does not let more long calls in first.
func TestCaptureTakesBusyStream(t *testing.T) {
	s := nowhere()
	g := &s.ctx.shared.whole
	var stop atomic.Bool
	var long atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for !stop.Load() {
			s.mu.Lock()
			time.Sleep(100 * time.Microsecond)
			s.mu.Unlock()
		}
	})
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				if admit.EnterLong(g) != nil {
					continue // the capture has begun
				}
				long.Add(1)
				for !stop.Load() {
					another, err := admit.TryLong(g)
					if !another {
						assert.NoError(t, err, "a capture begins beside a long call")
						break // one wants to begin
					}
					g.LeaveLong()
					runtime.Gosched()
				}
				g.LeaveLong()
			}
		})
	}
	require.Eventually(t, func() bool { return long.Load() > 0 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan error)
	go func() {
		gates, err := s.claim("op", &capturing{ctx: ctx})
		if err == nil {
			s.disclaim(gates)
		}
		begun <- err
	}()
	const most = 200
	for over := false; !over; {
		select {
		case err := <-begun:
			assert.NoError(t, err)
			over = true
		default:
			if long.Load() > most {
				cancel()
			}
			runtime.Gosched()
		}
	}
	cancel()
	stop.Store(true)
	all.Wait()
	t.Logf("%d long calls came first", long.Load())
}

// TestLockHandedOver: a wait for a lock that is canceled when the lock was already handed to it unlocks it.
func TestLockHandedOver(t *testing.T) {
	for range 10 {
		q := newQueue()
		ctx, cancel := context.WithCancel(t.Context())
		q.mu.Lock()
		over := make(chan error)
		go func() { over <- q.lockContext(ctx, "op") }()
		w := &q.waiting
		require.Eventually(t, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.turns) == 1
		}, time.Minute, 100*time.Microsecond)
		w.mu.Lock() // serve and the waiter wait for it, in this order
		q.mu.Unlock()
		require.Eventually(t, func() bool {
			free := q.mu.TryLock()
			if free {
				q.mu.Unlock()
			}
			return !free
		}, time.Minute, 100*time.Microsecond)
		cancel()
		time.Sleep(time.Millisecond)
		w.mu.Unlock()
		if <-over == nil {
			q.mu.Unlock()
		}
		soon, end := context.WithTimeout(t.Context(), time.Minute)
		require.NoError(t, q.lockContext(soon, "op"), "nobody unlocks it")
		q.mu.Unlock()
		end()
	}
}

// TestInstantiateFlags: each option is a flag of CUDA.
func TestInstantiateFlags(t *testing.T) {
	for flag, o := range map[driver.CUgraphInstantiate_flags]InstantiateOptions{
		0: {},
		driver.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: {AutoFreeOnLaunch: true},
		driver.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH:       {DeviceLaunch: true},
		driver.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY:   {UseNodePriority: true},
	} {
		assert.Equal(t, flag, o.flags())
	}
}

// TestUsersStay: an object forgets only users that are closed and idle.
func TestUsersStay(t *testing.T) {
	var u streamUses
	var users []*streamCore
	for range 2 * len(u.users) {
		s := nowhere()
		s.mu.Lock()
		u.note(s)
		s.mu.Unlock()
		users = append(users, s)
	}
	assert.ElementsMatch(t, users, u.streams())
	users[1].over = true
	last := nowhere()
	u.note(last)
	users[1] = last
	assert.ElementsMatch(t, users, u.streams())
}

// TestGraphPlaces: a launch takes a place for itself and for each node that is no kernel, up to a limit, which a graph
// with graphs inside of it takes: these may have any number of nodes.
func TestGraphPlaces(t *testing.T) {
	for want, i := range map[int]rt.Instantiation{
		1:              {Nodes: 1000, Kernels: 1000},
		4:              {Nodes: 5, Kernels: 2},
		mostOfCall - 1: {Nodes: mostOfCall - 2},
		mostOfCall:     {Nodes: 1, Kernels: 0, Graphs: 1},
	} {
		assert.Equal(t, want, graphPlaces(&i), "%+v", i)
	}
	assert.Equal(t, mostOfCall, graphPlaces(&rt.Instantiation{Nodes: 5000}))
}
