//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// A full queue, and many streams beside a stuck one. Tests whose failure hangs run in
// processes of their own. Needs any driver with WaitValue.

package safe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFullQueueHoldsUpItsOwn: while a launch waits for room, other streams work, and
// calls on the stuck stream return or end with their context.
func TestFullQueueHoldsUpItsOwn(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, other, third, k, e := stream(t, x), stream(t, x), stream(t, x), kernel(t, x, "nothing"), event(t, x)
		require.NoError(t, k.Launch(other, one))
		unstick := stick(t, x, s)
		over := fillQueue(t, s, k, queued)
		begun := make(chan error, 1)
		go func() { // the driver may block it for as long
			g, err := third.Capture(func() error { return k.Launch(third, one) })
			begun <- errors.Join(err, g.Close())
		}()
		time.Sleep(20 * time.Millisecond)
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.NoError(t, errors.Join(k.Launch(other, one), other.Record(e), other.Synchronize(), e.Synchronize()))
			_, err := other.Query()
			assert.NoError(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
		}()
		soon(t, done, "something waits for the stream whose queue is full")
		unstick()
		<-over
		<-done
		assert.NoError(t, <-begun)
	})
}

// TestGraphsOnStuckStream: a launch of a graph takes one place in the queue, however many
// kernels it has.
func TestGraphsOnStuckStream(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, e := stream(t, x), executable(t, chain(t, x, 300))
		require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
		unstick := stick(t, x, s)
		launched := make(chan struct{})
		go func() {
			defer close(launched)
			for range 100 {
				assert.NoError(t, e.Launch(s))
			}
		}()
		soon(t, launched, "a launch waits for room")
		unstick()
		<-launched
		assert.NoError(t, s.Synchronize())
	})
}

// TestWorkOnFullQueue: other streams also work while calls that take room in other ways than
// launches wait for it.
func TestWorkOnFullQueue(t *testing.T) {
	for _, c := range []struct {
		name string
		work func(t *testing.T, x *safe.Context, s *safe.Stream) func() error
	}{
		{"Record", func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
			e := event(t, x)
			return func() error { return s.Record(e) }
		}},
		{"Record of events captured before", func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
			e, third := event(t, x), stream(t, x)
			return func() error {
				g, err := third.Capture(func() error { return third.Record(e) })
				return errors.Join(err, g.Close(), s.Record(e))
			}
		}},
		{"PrefetchAsync", func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
			if ok, _ := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS); ok == 0 {
				t.Skip("the device has no concurrent managed access")
			}
			b, err := safe.NewManagedBuffer[uint32](x, 16)
			require.NoError(t, err)
			closing(t, b)
			return func() error { return b.PrefetchAsync(s, safe.DeviceLocation(x.Device())) }
		}},
		{"CopyAll", func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
			copies := copyOps(t, x, 64)
			return func() error { return s.CopyAll(copies) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				s, other, k, e := stream(t, x), stream(t, x), kernel(t, x, "nothing"), event(t, x)
				work := c.work(t, x, s)
				require.NoError(t, errors.Join(work(), k.Launch(other, one), other.Synchronize(), s.Synchronize()))
				unstick := stick(t, x, s)
				var made atomic.Int64
				over := make(chan error, 1)
				go func() {
					for range queued {
						if err := work(); err != nil {
							over <- err
							return
						}
						made.Add(1)
					}
					over <- nil
				}()
				assert.Less(t, untilBlocked(&made), int64(queued), "the queue is not full")
				done := make(chan struct{})
				go func() {
					defer close(done)
					assert.NoError(t, errors.Join(k.Launch(other, one), other.Record(e), other.Synchronize()))
					done, err := s.Query()
					assert.NoError(t, err)
					assert.False(t, done)
					g, err := other.Capture(func() error { return k.Launch(other, one) })
					assert.NoError(t, errors.Join(err, g.Close()))
				}()
				soon(t, done, "something waits for the stream whose queue is full")
				unstick()
				assert.NoError(t, <-over)
			})
		})
	}
}

// TestNewStreamsBesideStuck: streams that are closed while they work make room for new
// ones, though the driver creates few beside stuck work.
func TestNewStreamsBesideStuck(t *testing.T) {
	for _, test := range []struct {
		name string
		busy time.Duration // what else the reaper does in each round
		work uint64        // nanoseconds of a kernel
	}{
		{"idle reaper", 0, 20_000},
		{"busy reaper", 30 * time.Millisecond, 5_000_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				stuck, warm, k, b := stream(t, x), stream(t, x), kernel(t, x, "spin"), buffer[uint32](t, x, 16)
				work := func(s *safe.Stream) error {
					own, err := safe.NewBufferAsync[uint32](s, 16)
					return errors.Join(err, k.Launch(s, one, safe.Val(test.work)), own.Close())
				}
				require.NoError(t, errors.Join(work(warm), warm.Synchronize()))
				unstick := stick(t, x, stuck)
				require.NoError(t, b.FillAsync(stuck, 0))
				made := make(chan struct{})
				lifetime.Reaper.Add(func() (again bool) {
					time.Sleep(test.busy)
					select {
					case <-made:
						return false
					default:
						return true
					}
				})
				go func() {
					defer close(made)
					for range 300 {
						s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
						if !assert.NoError(t, err) || !assert.NoError(t, errors.Join(work(s), s.Close())) {
							return
						}
					}
				}()
				soon(t, made, "NewStream waits for a stuck stream")
				unstick()
			})
		})
	}
}

// TestNewStreamsComeAndGo: a program whose streams come and go while others stay open, and the
// reaper has something to do, waits a few times at most.
func TestNewStreamsComeAndGo(t *testing.T) {
	watch(t)
	x := open(t, 0)
	for range 23 {
		stream(t, x)
	}
	over := make(chan struct{})
	defer close(over)
	lifetime.Reaper.Add(func() (again bool) {
		select {
		case <-over:
			return false
		default:
			return true
		}
	})
	start := time.Now()
	for range 600 { // each wait takes a tenth of a second
		a, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		b, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, errors.Join(err, a.Close(), b.Close()))
	}
	assert.Less(t, time.Since(start), atOnce, "it waits each time")
}

// TestSpareStreams tests that a closed stream serves again, unless the program knows it.
func TestSpareStreams(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	nonBlocking := safe.StreamOptions{NonBlocking: true}
	alive := func() int { return simulated.Live("stream") }
	for _, test := range []struct {
		name   string
		with   func(s *safe.Stream) error
		o      safe.StreamOptions
		reused bool
	}{
		{"unknown", func(*safe.Stream) error { return nil }, nonBlocking, true},
		{"handle", func(s *safe.Stream) error { s.Raw(); return nil }, nonBlocking, false},
		{"ID", func(s *safe.Stream) error { _, err := s.ID(); return err }, nonBlocking, false},
		{"attribute", func(s *safe.Stream) error { return setPolicy(s, driver.CU_SYNC_POLICY_YIELD) }, nonBlocking, false},
		{"attached memory", func(s *safe.Stream) error {
			return managed[byte](t, x, 1).AttachAsync(s, driver.CU_MEM_ATTACH_SINGLE)
		}, nonBlocking, false},
		{"handle of a borrowed one", func(s *safe.Stream) error {
			b, err := s.Borrow()
			b.Raw()
			return errors.Join(err, b.Close())
		}, nonBlocking, false},
		{"another kind", func(*safe.Stream) error { return nil }, safe.StreamOptions{}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := safe.NewStreamWith(x, test.o)
			require.NoError(t, err)
			made := alive()
			err = test.with(s)
			require.NoError(t, s.Close())
			if errors.Is(err, safe.ErrNotSupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			if !test.reused {
				assert.Eventually(t, func() bool { return alive() == made-1 }, hang, time.Millisecond)
				return
			}
			again, err := safe.NewStreamWith(x, test.o)
			require.NoError(t, err)
			defer again.Close()
			assert.Equal(t, made, alive())
		})
	}
}

// TestFewSpareStreams tests that a context keeps few of the streams that are closed.
func TestFewSpareStreams(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	all := make([]*safe.Stream, 50)
	for i := range all {
		all[i] = stream(t, x)
	}
	for _, s := range all {
		require.NoError(t, s.Close())
	}
	settle(t)
	assert.LessOrEqual(t, simulated.Live("stream"), 35, "and a few of package safe's own")
}

// TestCrowd tests that a stream no longer counts for NewStream once the context has it no more, or keeps it.
func TestCrowd(t *testing.T) {
	x := open(t, 0)
	for name, end := range map[string]func(s *safe.Stream) error{
		"kept":      (*safe.Stream).Close,
		"destroyed": func(s *safe.Stream) error { s.Raw(); return s.Close() },
		"released": func(s *safe.Stream) error {
			raw := s.Release()
			return x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := safe.Crowd(x)
			s, err := safe.NewStream(x)
			require.NoError(t, err)
			require.Equal(t, before+1, safe.Crowd(x))
			require.NoError(t, end(s))
			assert.Equal(t, before, safe.Crowd(x))
		})
	}
}

// TestPendingOfBorrowed tests that work still counts that was enqueued on a borrowed Stream which is closed.
func TestPendingOfBorrowed(t *testing.T) {
	x := open(t, 0)
	s, k := stream(t, x), kernel(t, x, "nothing")
	stick(t, x, s)
	before := safe.Pending(s)
	b, err := s.Borrow()
	require.NoError(t, err)
	require.NoError(t, k.Launch(b, one))
	require.NoError(t, b.Close())
	assert.Equal(t, before+1, safe.Pending(s))
}

// TestCloseBesideBlockedCall: closing a stream does not wait for a call that blocks in the
// driver, whose queue the program has filled by raw calls.
func TestCloseBesideBlockedCall(t *testing.T) {
	for name, call := range map[string]func(s *safe.Stream, k *safe.Kernel, e *safe.Event) error{
		"Launch": func(s *safe.Stream, k *safe.Kernel, _ *safe.Event) error { return k.Launch(s, one) },
		"Record": func(s *safe.Stream, _ *safe.Kernel, e *safe.Event) error { return s.Record(e) },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				closeBesideBlocked(t, call)
			})
		})
	}
}

func closeBesideBlocked(t *testing.T, call func(*safe.Stream, *safe.Kernel, *safe.Event) error) {
	x := open(t, 0)
	first, s, k, e := stream(t, x), stream(t, x), kernel(t, x, "nothing"), event(t, x)
	g := newGate(t, x)
	g.shut(t, first)
	var launched atomic.Int64
	over := make(chan error, 1)
	go func() { over <- launchRaw(x, first, k, queued, &launched) }()
	require.Eventually(t, func() bool { return launched.Load() > 960 }, hang, time.Millisecond) // nearly all of the queue
	room := int(untilBlocked(&launched))
	g.open()
	require.NoError(t, <-over)
	require.NoError(t, first.Synchronize())

	h := newGate(t, x)
	h.shut(t, s)
	require.NoError(t, launchRaw(x, s, k, room, &launched))
	returned, closed := make(chan error, 1), make(chan error, 1)
	go func() { returned <- call(s, k, e) }()
	enqueuing(t, s)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		assert.NoError(t, err)
	case <-time.After(atOnce):
		assert.Fail(t, "Close waits for the call")
	}
	h.open()
	assert.NoError(t, <-returned)
}

// launchRaw makes n raw launches and counts them.
func launchRaw(x *safe.Context, s *safe.Stream, k *safe.Kernel, n int, launched *atomic.Int64) error {
	raw, function := s.Raw(), k.Raw()
	return x.WithCurrent(func() error {
		for range n {
			if err := driver.CuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, raw, nil, nil); err != nil {
				return err
			}
			launched.Add(1)
		}
		return nil
	})
}

// TestLegacyBacklog tests that closing one of several Streams for a stream forgets no pending work of the
// others.
func TestLegacyBacklog(t *testing.T) {
	needsSimulated(t) // where an allocation shows that a launch blocks
	watch(t)
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	first, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, first)
	second, err := safe.LegacyStream(x)
	require.NoError(t, err)
	unstick := stick(t, x, first)
	for range 900 {
		require.NoError(t, k.Launch(first, one))
	}
	require.NoError(t, second.Close())
	launched := make(chan struct{})
	go func() {
		defer close(launched)
		for range 300 {
			assert.NoError(t, k.Launch(first, one))
		}
	}()
	time.Sleep(300 * time.Millisecond)
	queried := make(chan struct{})
	go func() { defer close(queried); plainBuffer[uint32](t, x, 4) }()
	select {
	case <-queried:
	case <-time.After(atOnce):
		t.Error("an allocation waits for a full queue")
	}
	unstick()
	<-launched
	<-queried
}

// copyOps returns n copies of one value each.
func copyOps(t *testing.T, x *safe.Context, n int) []safe.CopyOp {
	t.Helper()
	from, to := buffer[uint32](t, x, n), buffer[uint32](t, x, n)
	copies := make([]safe.CopyOp, n)
	for i := range copies {
		a, err := to.Slice(i, i+1)
		require.NoError(t, err)
		b, err := from.Slice(i, i+1)
		require.NoError(t, err)
		copies[i] = safe.NewCopyOp[uint32](a, b)
	}
	return copies
}

// TestMuchWorkOnStuckStream tests that a call which enqueues more than the queue of its stream
// takes holds up no other stream.
func TestMuchWorkOnStuckStream(t *testing.T) {
	for _, c := range []struct {
		name string
		work func(t *testing.T, x *safe.Context, s *safe.Stream) func() error
	}{
		{"CopyAll", func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
			copies := copyOps(t, x, queued)
			return func() error { return s.CopyAll(copies) }
		}},
		{"PrefetchAll", func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
			if ok, _ := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS); ok == 0 {
				t.Skip("the device has no concurrent managed access")
			}
			b, err := safe.NewManagedBuffer[byte](x, 200)
			require.NoError(t, err)
			closing(t, b)
			ops := make([]safe.PrefetchOp, b.Len())
			for i := range ops {
				part, err := b.Slice(i, i+1)
				require.NoError(t, err)
				ops[i] = safe.NewPrefetchOp(part, safe.DeviceLocation(x.Device()))
			}
			return func() error { return s.PrefetchAll(ops) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				stuck, s, other, k, e := stream(t, x), stream(t, x), stream(t, x), kernel(t, x, "nothing"), event(t, x)
				work := c.work(t, x, s)
				require.NoError(t, errors.Join(k.Launch(other, one), other.Synchronize()))
				unstick := stick(t, x, stuck)
				require.NoError(t, errors.Join(stuck.Record(e), s.WaitEvent(e))) // takes no place in the queue
				over := make(chan error, 1)
				go func() { over <- work() }()
				time.Sleep(100 * time.Millisecond)
				done := make(chan struct{})
				go func() {
					defer close(done)
					g, err := other.Capture(func() error { return k.Launch(other, one) })
					assert.NoError(t, errors.Join(err, g.Close()))
				}()
				soon(t, done, "a capture waits for the stuck stream")
				unstick()
				assert.NoError(t, <-over)
			})
		})
	}
}
