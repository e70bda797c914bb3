//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Pending work beside captures that end, and calls beside work that blocks in the driver. Runs
// on any driver.

package safe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// joined begins a capture on s that side takes part in. Any goroutine may end it.
func joined(t *testing.T, x *safe.Context, s, side *safe.Stream) *safe.Capture {
	t.Helper()
	fork, join := event(t, x), event(t, x)
	c, err := s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	require.NoError(t, errors.Join(s.Record(fork), side.WaitEvent(fork), side.Record(join), s.WaitEvent(join)))
	return c
}

func end(c *safe.Capture) error {
	g, err := c.End()
	return errors.Join(err, g.Close())
}

// enqueuing waits until a call on s is in flight, and perhaps waits for another lock.
func enqueuing(t *testing.T, s *safe.Stream) {
	t.Helper()
	require.Eventually(t, func() bool { return safe.Locked(s) }, atOnce, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
}

// TestCaptureEndsBesideWork: work is counted on a stream that has joined a capture if the
// capture ends just before the work is enqueued.
func TestCaptureEndsBesideWork(t *testing.T) {
	for _, c := range []struct {
		name    string
		call    string
		pending int
		work    func(t *testing.T, x *safe.Context, side *safe.Stream) func() error
	}{
		{"Launch", "(*Kernel).Launch", 1, func(t *testing.T, x *safe.Context, side *safe.Stream) func() error {
			k := kernel(t, x, "nothing")
			return func() error { return k.Launch(side, one) }
		}},
		{"Batch", "(*Batch).Submit", 51, func(t *testing.T, x *safe.Context, side *safe.Stream) func() error {
			e, m, b, third := event(t, x), buffer[uint32](t, x, 1), newBatch(t, x), stream(t, x)
			g, err := third.Capture(func() error { return third.Record(e) }) // so that e takes a single call
			require.NoError(t, errors.Join(err, g.Close(), b.Record(e)))
			for range 50 {
				require.NoError(t, safe.BatchFill(b, m, 1))
			}
			return func() error { return b.Submit(side) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			watch(t)
			x := open(t, 0)
			s, side := stream(t, x), stream(t, x)
			work := c.work(t, x, side)
			capture := joined(t, x, s, side)
			unlock := safe.LockCapture(capture)
			ended, worked := make(chan error, 1), make(chan error, 1)
			go func() { ended <- end(capture) }()
			inside(t, "(*capturing).finish", "runtime_SemacquireMutex") // it gets the lock first
			go func() { worked <- work() }()
			inside(t, c.call, "runtime_SemacquireMutex")
			unlock()
			require.NoError(t, errors.Join(<-ended, <-worked))
			assert.Equal(t, c.pending, safe.Pending(side))
			require.NoError(t, side.Synchronize())
			noViolation(t)
		})
	}
}

// TestCaptureEndsBesideFullQueue: work on several streams, one of which has no room, is not
// taken from the count of a stream whose capture ends meanwhile.
func TestCaptureEndsBesideFullQueue(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, k := stream(t, x), kernel(t, x, "nothing")
	side, full := safe.InOrder(stream(t, x), stream(t, x)) // EnqueueRaw gets side before it waits for full
	unstick := nearlyFull(t, x, full, k)
	capture := joined(t, x, s, side)
	unlock := safe.LockStream(full)
	worked := make(chan error, 1)
	go func() {
		worked <- safe.EnqueueRaw(func() error { return nil }, safe.RawWork{Stream: side}, safe.RawWork{Stream: full})
	}()
	enqueuing(t, side)
	require.NoError(t, end(capture))
	unlock()
	time.Sleep(10 * time.Millisecond)
	unstick()
	require.NoError(t, <-worked)
	assert.Equal(t, 30, safe.Pending(side))
	noViolation(t)
}

// TestFullQueueBesideCapture: work on several streams that waits for room on one of them locks no capture of another one,
// and takes no room there.
func TestFullQueueBesideCapture(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, k := stream(t, x), kernel(t, x, "nothing")
	side, full := safe.InOrder(stream(t, x), stream(t, x))
	unstick := nearlyFull(t, x, full, k)
	capture, before := joined(t, x, s, side), safe.Pending(side)
	worked, done := make(chan error, 1), make(chan struct{})
	go func() {
		worked <- safe.EnqueueRaw(func() error { return nil }, safe.RawWork{Stream: side}, safe.RawWork{Stream: full})
	}()
	require.Eventually(t, func() bool { return safe.Reserved(full) > 0 }, atOnce, time.Millisecond, "it does not wait for room")
	go func() {
		defer close(done)
		assert.NoError(t, k.Launch(s, one))
	}()
	soon(t, done, "the capture is locked")
	unstick()
	require.NoError(t, <-worked)
	assert.Equal(t, before, safe.Pending(side))
	assert.Zero(t, safe.Reserved(side))
	assert.Zero(t, safe.Reserved(full))
	require.NoError(t, end(capture))
	noViolation(t)
}

// nearlyFull sticks a stream and leaves room for few calls.
func nearlyFull(t *testing.T, x *safe.Context, s *safe.Stream, k *safe.Kernel) (unstick func()) {
	t.Helper()
	require.NoError(t, errors.Join(k.Launch(s, one), s.Synchronize()))
	unstick = stick(t, x, s)
	for safe.Pending(s) < 950 {
		require.NoError(t, k.Launch(s, one))
	}
	return unstick
}

// TestFullQueueInHostFunc: in a host function, work on several streams does not wait for room.
func TestFullQueueInHostFunc(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, side, full := stream(t, x), stream(t, x), stream(t, x)
	nearlyFull(t, x, full, kernel(t, x, "nothing"))
	before := safe.Pending(side)
	f, err := s.LaunchHostFunc(func() {
		err := safe.EnqueueRaw(func() error { return nil }, safe.RawWork{Stream: side}, safe.RawWork{Stream: full})
		assert.ErrorIs(t, err, safe.ErrInCallback)
	})
	require.NoError(t, err)
	soon(t, f.Done(), "the host function waits")
	assert.Equal(t, before, safe.Pending(side))
}

// TestRoomAmongSmallWork: work that needs much room gets it on a stream that another goroutine keeps nearly full
// of work that needs little.
func TestRoomAmongSmallWork(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, k, m := stream(t, x), kernel(t, x, "spin"), buffer[uint32](t, x, 1)
	g, err := s.Capture(func() (err error) {
		for range 300 {
			err = errors.Join(err, m.FillAsync(s, 0))
		}
		return err
	})
	require.NoError(t, err)
	closing(t, g)
	e := executable(t, g)
	marks := make([]*safe.Event, 800)
	for i := range marks {
		marks[i], err = safe.NewEventWith(x, safe.EventOptions{DisableTiming: true})
		require.NoError(t, err)
		closing(t, marks[i])
	}
	var launches atomic.Int64
	var c racers
	c.add(1, func() error {
		mark := marks[int(launches.Load())%len(marks)] // of the launch that is so many earlier
		launches.Add(1)
		return errors.Join(mark.Synchronize(), k.Launch(s, one, safe.Val(uint64(100_000))), s.Record(mark))
	})
	for launches.Load() < queued {
		time.Sleep(time.Millisecond)
	}
	const most = 20 * queued
	over := make(chan error, 1)
	go func() { over <- e.Launch(s) }()
	require.Eventually(t, func() bool { return len(over) > 0 || onStacks("(*GraphExec).Launch", "await") > 0 }, hang, time.Millisecond)
	before := launches.Load()
	for len(over) == 0 && launches.Load() < before+most {
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d launches came first", launches.Load()-before)
	assert.Less(t, launches.Load()-before, int64(most), "the graph gets no room")
	require.NoError(t, errors.Join(c.end(), <-over))
	noViolation(t)
}

// TestBesideBlockedRecord: calls beside a record that blocks in the driver, because others have
// filled the queue, do not wait for it.
func TestBesideBlockedRecord(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, s *safe.Stream, e *safe.Event){
		"Query": func(t *testing.T, s *safe.Stream, e *safe.Event) {
			done, err := s.Query()
			assert.NoError(t, err)
			assert.False(t, done)
		},
		"Event.Close": func(t *testing.T, s *safe.Stream, e *safe.Event) { assert.NoError(t, e.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				s, e, m := stream(t, x), event(t, x), plainBuffer[uint32](t, x, 1)
				require.NoError(t, errors.Join(m.FillAsync(s, 0), s.Record(e), s.Synchronize()))
				unstick := stick(t, x, s)
				uncounted(t, s, m, 1000)
				var made atomic.Int64
				over := make(chan error, 1)
				go func() {
					var err error
					for n := 0; n < 100 && err == nil; n++ {
						err = s.Record(e)
						made.Add(1)
					}
					over <- err
				}()
				require.Less(t, untilBlocked(&made), int64(100), "the queue is not full")
				done := make(chan struct{})
				go func() {
					defer close(done)
					call(t, s, e)
				}()
				soon(t, done, "the call waits for the record")
				unstick()
				<-done
				assert.NoError(t, except(<-over, safe.ErrClosed))
			})
		})
	}
}
