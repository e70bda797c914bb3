//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Waits for streams and events: order, cancellation, errors, number of threads. Runs on
// any driver.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// noneLeft fails where goroutines stay that were not there before. Those of the garbage
// collector and of releases come and go, so it waits until it sees none.
func noneLeft(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(atOnce); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			require.Failf(t, "goroutines left", "%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestCompletion(t *testing.T) {
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	idle := s.Completion()
	<-idle.Done()
	assert.NoError(t, idle.Err())
	g.shut(t, s)
	f := s.Completion()
	time.Sleep(time.Millisecond)
	assert.False(t, isDone(f.Done()))
	assert.NoError(t, f.Err())
	ctx, cancel := context.WithCancelCause(context.Background())
	mine := errors.New("mine")
	cancel(mine)
	_, err := f.Wait(ctx)
	assert.ErrorIs(t, err, mine)
	assert.ErrorIs(t, s.Wait(ctx), mine)
	g.open()
	_, err = f.Wait(context.Background())
	require.NoError(t, err)

	closed := stream(t, x)
	require.NoError(t, closed.Close())
	<-closed.Completion().Done()
	assert.ErrorIs(t, closed.Completion().Err(), safe.ErrClosed)
}

func TestEnqueue(t *testing.T) {
	x := open(t, 0)
	g, s, b := newGate(t, x), stream(t, x), buffer[float32](t, x, 10)
	h := host[float32](t, x, 10)
	g.shut(t, s)
	f := safe.Enqueue(s, func(s *safe.Stream) ([]float32, error) {
		return h.Data(), errors.Join(b.FillAsync(s, 4), b.CopyToHostAsync(s, h))
	})
	assert.False(t, isDone(f.Done()))
	g.open()
	got, err := f.Wait(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 4, got[9])
	mine := errors.New("mine")
	_, err = safe.Enqueue(s, func(*safe.Stream) (int, error) { return 1, mine }).Wait(context.Background())
	assert.Equal(t, mine, err)
}

// TestWaitOrder: waits of several streams end when their own work completes, even while
// later work runs.
func TestWaitOrder(t *testing.T) {
	x := open(t, 0)
	first, second := newGate(t, x), newGate(t, x)
	a, b := stream(t, x), stream(t, x)
	first.shut(t, a)
	before := a.Completion()
	second.shut(t, a)
	after := a.Completion()
	other := b.Completion()
	<-other.Done()
	assert.False(t, isDone(before.Done()))
	first.open()
	<-before.Done()
	time.Sleep(2 * time.Millisecond)
	assert.False(t, isDone(after.Done()))
	second.open()
	<-after.Done()
}

// TestShortWait: a wait for work that completes soon records no event, but for one in the driver, and the
// stream remembers long waits only until the next short one.
func TestShortWait(t *testing.T) {
	needsSimulated(t)
	startClean(t) // the destruction of what tests before have closed makes such calls, too
	x := open(t, 0)
	for _, c := range []struct {
		name             string
		wait             func(*safe.Stream) error
		queries, records int
	}{
		{"Synchronize", (*safe.Stream).Synchronize, 2, 0},
		{"SynchronizeBlocking", (*safe.Stream).SynchronizeBlocking, 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer simulated.Reset()
			defer safe.SpinFor(time.Minute)()
			s, g := stream(t, x), newGate(t, x)
			short := func() {
				simulated.Fail("cuStreamQuery", 1, uint32(driver.CUDA_ERROR_NOT_READY))
				queries, records := simulated.Calls("cuStreamQuery"), simulated.Calls("cuEventRecord")
				require.NoError(t, c.wait(s))
				assert.Equal(t, records+c.records, simulated.Calls("cuEventRecord"))
				assert.Equal(t, queries+c.queries, simulated.Calls("cuStreamQuery"))
			}
			short()
			g.shut(t, s)
			safe.SpinFor(0)
			time.AfterFunc(time.Millisecond, g.open)
			require.NoError(t, s.Synchronize()) // long: the next wait does not spin
			safe.SpinFor(time.Minute)
			require.NoError(t, c.wait(s))
			short()
		})
	}
}

// TestManyWaiters cancels some of the waits, and leaves no goroutine.
func TestManyWaiters(t *testing.T) {
	x := open(t, 0)
	before := runtime.NumGoroutine()
	g := newGate(t, x)
	streams := make([]*safe.Stream, 16)
	for i := range streams {
		streams[i] = stream(t, x)
		if i < 2 {
			g.shut(t, streams[i])
		}
	}
	events := event(t, x)
	require.NoError(t, streams[0].Record(events))
	ctx, cancel := context.WithCancel(context.Background())
	var all, canceled sync.WaitGroup
	for i := range 2000 {
		s := streams[i%len(streams)]
		switch {
		case i%16 > 1:
			all.Go(func() { assert.NoError(t, s.Synchronize()) })
		case i%3 == 0:
			canceled.Go(func() { assert.ErrorIs(t, s.Wait(ctx), context.Canceled) })
		case i%3 == 1:
			all.Go(func() { assert.NoError(t, events.Synchronize()) })
		default:
			all.Go(func() { assert.NoError(t, s.Synchronize()) })
		}
	}
	time.Sleep(20 * time.Millisecond) // most of them wait now
	cancel()
	canceled.Wait()
	g.open()
	all.Wait()
	noneLeft(t, before)
}

// TestFirstWaiterLeaves: the first of several waits polls for all. The others go on without it.
func TestFirstWaiterLeaves(t *testing.T) {
	x := open(t, 0)
	for _, test := range []struct {
		name     string
		deadline bool
		leave    func(done, cancel func())
		err      error
	}{
		{"its work is done", false, func(done, _ func()) { done() }, nil},
		{"its work is done, with a deadline", true, func(done, _ func()) { done() }, nil},
		{"its context ends", true, func(_, cancel func()) { cancel() }, context.Canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := stream(t, x), stream(t, x)
			unstickA, unstickB := stick(t, x, a), stick(t, x, b)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if !test.deadline {
				ctx = context.Background()
			}
			first, second := make(chan struct{}), make(chan struct{})
			go func() { defer close(first); assert.ErrorIs(t, a.Wait(ctx), test.err) }()
			time.Sleep(2 * time.Millisecond)
			go func() { defer close(second); assert.NoError(t, b.Wait(context.Background())) }()
			time.Sleep(2 * time.Millisecond)
			test.leave(unstickA, cancel)
			soon(t, first, "the first wait goes on")
			assert.False(t, isDone(second))
			unstickB()
			soon(t, second, "the second wait goes on")
			unstickA()
		})
	}
}

// TestDeadlineBesideBlockedQuery: a wait ends with its context also while the driver blocks a query.
func TestDeadlineBesideBlockedQuery(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s := stream(t, x)
	defer safe.SpinFor(0)()
	unstick := stick(t, x, s)
	waited := background(func() { assert.NoError(t, s.Wait(context.Background())) })
	inside(t, "(*Stream).Wait", "(*waiter).wait")
	unstick()
	<-waited // it took long: the next one leaves all queries to the poller
	unstick = stick(t, x, s)
	defer simulated.Reset()
	simulated.Delay("cuEventQuery", hang)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	soon(t, background(func() { assert.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded) }), "it waits for the driver")
	simulated.Reset() // ends the delay
	unstick()
}

func TestShutdown(t *testing.T) {
	x := open(t, 0)
	g, b := newGate(t, x), buffer[float32](t, x, 10)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	require.NoError(t, b.FillAsync(s, 1))
	require.NoError(t, s.Shutdown(context.Background()))
	require.NoError(t, s.Shutdown(context.Background()), "again")
	assert.ErrorIs(t, s.Synchronize(), safe.ErrClosed)

	s, err = safe.NewStream(x)
	require.NoError(t, err)
	g.shut(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err = s.Shutdown(ctx)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "Stream.Shutdown")
	assert.ErrorIs(t, s.Synchronize(), safe.ErrClosed)
	g.open()
}

func TestScope(t *testing.T) {
	x := open(t, 0)
	const n = 1000
	s, b := stream(t, x), buffer[float32](t, x, n)
	fill := kernel(t, x, "fill")
	got := make([]float32, n)
	var kept *safe.Scope
	work := func(c *safe.Scope) error {
		kept = c
		return errors.Join(
			safe.CopyFromSlice(c, b, count(n)),
			fill.Launch(s, perValue(n), safe.Val(uint32(10)), safe.Val(float32(-1)), b.Arg()),
			safe.CopyToSlice(c, got, b))
	}
	require.NoError(t, s.Scope(work))
	assert.EqualValues(t, -1, got[9])
	assert.EqualValues(t, n-1, got[n-1])
	assert.ErrorIs(t, safe.CopyFromSlice(kept, b, got), safe.ErrClosed, "the scope is over")

	spin, e := kernel(t, x, "spin"), event(t, x)
	long := func() error {
		return errors.Join(spin.Launch(s, one, safe.Val(uint64(5_000_000))), s.Record(e))
	}
	over := func(t *testing.T) {
		done, err := e.Query()
		require.NoError(t, err)
		assert.True(t, done, "the scope waited")
	}
	mine := errors.New("mine")
	assert.Equal(t, mine, s.Scope(func(*safe.Scope) error { require.NoError(t, long()); return mine }))
	over(t)
	assert.PanicsWithValue(t, 3, func() { s.Scope(func(*safe.Scope) error { require.NoError(t, long()); panic(3) }) })
	over(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Scope(func(*safe.Scope) error { assert.NoError(t, long()); runtime.Goexit(); return nil })
	}()
	<-ended
	over(t)
	require.NoError(t, s.Scope(func(c *safe.Scope) error {
		assert.ErrorIs(t, safe.CopyFromSlice(c, b, make([]float32, n+1)), safe.ErrRange)
		assert.ErrorIs(t, safe.CopyToSlice(c, got[1:], b), safe.ErrRange)
		return nil
	}))
	assert.ErrorIs(t, (*safe.Stream)(nil).Scope(work), safe.ErrClosed)
}

// TestWaitFails: waits return an error when CUDA is lost.
func TestWaitFails(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		idle, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		e, err := safe.NewEvent(x)
		require.NoError(t, err)
		m, err := safe.LoadFile(x, "testdata/kernels.ptx")
		require.NoError(t, err)
		store, err := m.Kernel("store")
		require.NoError(t, err)
		h, err := safe.NewPinned[uint32](x, 1)
		require.NoError(t, err)
		unstick := stickOn(t, h, s)
		require.NoError(t, store.Launch(s, one, safe.Val(uint64(8)), safe.Val(uint64(1))))
		require.NoError(t, s.Record(e))
		require.NoError(t, idle.WaitEvent(e))
		var all sync.WaitGroup
		const many = 1000
		for i := range many {
			wait := []func() error{s.Synchronize, e.Synchronize, idle.Synchronize}[i%3]
			all.Go(func() {
				err := wait()
				assert.True(t, safe.IsFatal(err), "%v", err)
			})
		}
		// one of them polls
		assert.Eventually(t, func() bool { return parked(t, "(*waiter).wait") >= many-1 }, atOnce, 10*time.Millisecond, "they do not wait")
		unstick()
		all.Wait()
		for _, c := range []closer{s, idle, e, h, m, x} {
			c.Close()
		}
	})
}

// TestSteadyWait: a goroutine waits by itself for work whose end is known, also with a deadline.
func TestSteadyWait(t *testing.T) {
	x := open(t, 0)
	spin, s := kernel(t, x, "spin"), stream(t, x)
	wait := func(ctx context.Context, expected time.Duration) (polled bool) {
		require.NoError(t, spin.Launch(s, one, safe.Val(uint64(200_000))))
		safe.Expect(s, expected)
		before := safe.Rounds()
		require.NoError(t, s.Wait(ctx))
		return safe.Rounds() != before
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		expected time.Duration
		polled   bool
	}{
		{"no deadline", context.Background(), 2 * time.Millisecond, false},
		{"deadline", ctx, 2 * time.Millisecond, false},
		{"in the past", ctx, -time.Second, true},
		{"long", ctx, time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := 0; wait(c.ctx, c.expected) != c.polled; n++ { // the machine may be slow, or the GPU fast
				require.Less(t, n, 1000)
			}
		})
	}
}

// TestSteadyWaitEnds: a wait whose context ends before the work is expected to end returns then, although the driver
// blocks queries: another goroutine asks it.
func TestSteadyWaitEnds(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	for _, c := range []struct {
		name    string
		timeout time.Duration
		cancels bool
		err     error
	}{
		{"canceled before", time.Minute, true, context.Canceled},
		{"deadline sooner", time.Millisecond, false, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			if c.cancels {
				cancel()
			}
			s, g := stream(t, x), newGate(t, x)
			g.shut(t, s)
			safe.Expect(s, 2*time.Millisecond)
			defer simulated.Reset()
			simulated.Delay("cuEventQuery", hang)
			returned := background(func() { assert.ErrorIs(t, s.Wait(ctx), c.err) })
			select {
			case <-returned:
			case <-time.After(hang / 2):
				t.Error("it waits for the query")
			}
			simulated.Reset() // ends the delay
			<-returned
			g.open()
		})
	}
}

// TestStreamsComeAndGo creates and closes streams on many goroutines while others launch.
func TestStreamsComeAndGo(t *testing.T) {
	x := open(t, 0)
	const n, rounds = 64, 50
	fill, steady, b := kernel(t, x, "fill"), stream(t, x), buffer[float32](t, x, n)
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			for range rounds {
				s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: g%2 == 0})
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, fill.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), b.Arg()))
				if g%4 == 0 {
					assert.NoError(t, s.Synchronize())
				}
				assert.NoError(t, s.Close())
			}
		})
		all.Go(func() {
			for range rounds {
				assert.NoError(t, fill.Launch(steady, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), b.Arg()))
			}
			assert.NoError(t, steady.Synchronize())
		})
	}
	all.Wait()
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 1, got[n-1])
}

// TestThreadsAreBounded launches and waits on 10,000 goroutines and 256 streams.
func TestThreadsAreBounded(t *testing.T) {
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	streams := make([]*safe.Stream, 256)
	for i := range streams {
		streams[i] = stream(t, x)
	}
	before, most := threads(t), atomic.Int64{}
	over := make(chan struct{})
	var watch, all sync.WaitGroup
	watch.Go(func() {
		for !isDone(over) {
			most.Store(max(most.Load(), int64(threads(t))))
			time.Sleep(time.Millisecond)
		}
	})
	for i := range 10_000 {
		all.Go(func() {
			s := streams[i%len(streams)]
			assert.NoError(t, k.Launch(s, one))
			assert.NoError(t, s.Synchronize())
		})
	}
	all.Wait()
	close(over)
	watch.Wait()
	t.Logf("%d threads before, %d at most", before, most.Load())
	assert.Less(t, most.Load(), int64(before+runtime.GOMAXPROCS(0)+len(streams)), "a call on each stream at once has one")
}

// TestWaitCycles enqueues and waits repeatedly, and cancels at random.
func TestWaitCycles(t *testing.T) {
	x := open(t, 0)
	goroutines, cycles := 100, 1000
	k := kernel(t, x, "nothing")
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for g := range goroutines {
		s := stream(t, x)
		all.Go(func() {
			for c := range cycles {
				if !assert.NoError(t, k.Launch(s, one)) {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration((g*c)%300)*time.Microsecond)
				if err := s.Wait(ctx); err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				cancel()
			}
		})
	}
	all.Wait()
	noneLeft(t, before)
}

// TestWaitBesideLaterWait: a wait for work ends when that has completed, also if a wait for later work of the
// stream has reached the poller before.
func TestWaitBesideLaterWait(t *testing.T) {
	watch(t)
	x := open(t, 0)
	r, s, b := stream(t, x), stream(t, x), buffer[uint32](t, x, 4)
	first, second, later := newGate(t, x), newGate(t, x), newGate(t, x)
	first.shut(t, r)
	second.shut(t, s)
	require.NoError(t, errors.Join(b.FillAsync(r, 0), b.FillAsync(s, 0)))
	copied := background(func() { assert.NoError(t, b.CopyToHost(make([]uint32, 4))) }) // waits for r first
	inside(t, "CopyToHost", "(*waiter).wait")
	later.shut(t, s)
	end := s.Completion()
	time.Sleep(20 * time.Millisecond)
	first.open()
	time.Sleep(20 * time.Millisecond)
	second.open()
	soon(t, copied, "a copy waits for work that was enqueued after it")
	later.open()
	<-end.Done()
	<-copied
}

// TestFewEvents: a wait needs one event of the driver, though it makes more for later waits.
func TestFewEvents(t *testing.T) {
	needsSimulated(t)
	x, err := safe.NewContext(open(t, 0).Device())
	require.NoError(t, err)
	closing(t, x)
	s := stream(t, x)
	simulated.Fail("cuEventCreate", 2, uint32(driver.CUDA_ERROR_UNKNOWN))
	defer simulated.Reset()
	_, err = s.LaunchHostFunc(func() { time.Sleep(time.Millisecond) })
	require.NoError(t, errors.Join(err, s.Wait(t.Context())))
	assert.Equal(t, "cuEventCreate", simulated.Failed())
}
