//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// A stream that is stuck, has a full queue or many waiters delays only its own work and
// blocks few threads. Tests whose failure hangs run in processes of their own. Needs any
// driver with WaitValue.

package safe_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queued is more launches than a queue holds.
const queued = 1500

// TestWaitsOnFullQueue: waits for a stuck stream end with their context, however many
// there are.
func TestWaitsOnFullQueue(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		const many = 3000
		x := open(t, 0)
		s := stream(t, x)
		unstick := stick(t, x, s)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		before := threads(t)
		done := make(chan error, many)
		waiting(t, many, 150, func() { done <- s.Wait(ctx) })
		cancel()
		late := time.After(atOnce)
		for n := range many {
			select {
			case err := <-done:
				require.ErrorIs(t, err, context.Canceled)
			case <-late:
				unstick()
				require.Fail(t, "waits do not end with their context", "%d of %d, on %d threads", many-n, many, threads(t)-before)
			}
		}
		assert.Less(t, threads(t)-before, many/10, "on a busy machine, calls on their way to the wait have some")
		unstick()
	})
}

// waiting calls f on many goroutines, and waits until they wait without threads, but for one that polls. It begins as many
// at once as batch says: those may have threads on their way to the wait, if the driver takes long.
func waiting(t *testing.T, many, batch int, f func()) {
	t.Helper()
	for n := 0; n < many; {
		for range batch {
			go f()
		}
		n += batch
		require.Eventually(t, func() bool { return parked(t, "(*waiter).wait") >= n-1 }, hang, time.Millisecond, "waits hold threads")
	}
}

// TestWaitsOneByOne: so do thousands of waits in sequence.
func TestWaitsOneByOne(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s := stream(t, x)
		unstick := stick(t, x, s)
		over := make(chan struct{})
		var n atomic.Int64
		go func() {
			defer close(over)
			for ; n.Load() < 3000; n.Add(1) {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
				s.Wait(ctx)
				cancel()
			}
		}()
		soon(t, over, "a wait does not end with its context")
		t.Logf("%d waits", n.Load())
		unstick()
		<-over
	})
}

// TestManyWaitForOne: 10,000 goroutines that wait for one stream hold no threads.
func TestManyWaitForOne(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		const many = 10_000
		x := open(t, 0)
		s := stream(t, x)
		unstick := stick(t, x, s)
		before := threads(t)
		done := make(chan error, many)
		waiting(t, many, 500, func() { done <- s.Synchronize() })
		most := threads(t) - before // Go keeps those that it has begun
		unstick()
		for range many {
			require.NoError(t, <-done)
		}
		t.Logf("%d threads more", most)
		assert.Less(t, most, many/10, "on a busy machine, calls on their way to the wait have some")
	})
}

// parked counts the goroutines that wait for other goroutines in a function.
func parked(t *testing.T, function string) (n int) {
	t.Helper()
	var profile bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	of := 0
	for line := range strings.Lines(profile.String()) {
		count, _, first := strings.Cut(line, " @ ") // of goroutines, and then a line for each function
		switch {
		case first:
			var err error
			of, err = strconv.Atoi(count)
			require.NoError(t, err)
		case strings.Contains(line, function+"+"):
			n += of
		}
		if !first {
			of = 0 // only the function that the goroutines are in counts
		}
	}
	return n
}

// TestThreadsOfCopies: goroutines in synchronous copies that wait for a stuck stream hold
// few threads.
func TestThreadsOfCopies(t *testing.T) {
	copying := func(t *testing.T, many int, f func(before int)) {
		watch(t)
		x := open(t, 0)
		s, b := stream(t, x), buffer[uint32](t, x, 16)
		require.NoError(t, b.CopyToHost(make([]uint32, 16)))
		unstick := stick(t, x, s)
		require.NoError(t, b.FillAsync(s, 0))
		before, done := threads(t), make(chan error, many)
		waiting(t, many, 50, func() { done <- b.CopyToHost(make([]uint32, 16)) })
		f(before)
		unstick()
		for range many {
			require.NoError(t, <-done)
		}
	}
	t.Run("counted", func(t *testing.T) {
		drivertest.InChild(t, func(t *testing.T) {
			copying(t, 400, func(before int) { assert.Less(t, threads(t)-before, 150) })
		})
	})
	t.Run("limited", func(t *testing.T) { // Go aborts a program with more threads
		drivertest.InChild(t, func(t *testing.T) {
			defer debug.SetMaxThreads(debug.SetMaxThreads(300))
			copying(t, 400, func(int) {})
		})
	})
}

// TestReaperBesideFullQueue: unrelated objects are destroyed while a launch waits for
// room in a queue.
func TestReaperBesideFullQueue(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, k := stream(t, x), kernel(t, x, "nothing")
		require.NoError(t, k.Launch(s, one))
		g, err := safe.NewGraph(x)
		require.NoError(t, err)
		released := make(chan struct{})
		require.NoError(t, g.OnRelease(func() { close(released) }))
		unstick := stick(t, x, s)
		b, err := safe.NewBuffer[uint32](x, 16)
		require.NoError(t, err)
		require.NoError(t, b.FillAsync(s, 0))
		over := fillQueue(t, s, k, queued)
		b = nil // dropped
		_ = b
		drop()
		require.NoError(t, g.Close())
		soon(t, released, "the function of OnRelease is not called while a launch waits for room on a stream")
		unstick()
		<-over
	})
}

// TestBeginBesideSynchronize: a capture that cannot begin during SynchronizeBlocking
// delays no other call, and no call reports that the stream is capturing.
func TestBeginBesideSynchronize(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, k := stream(t, x), kernel(t, x, "nothing")
		require.NoError(t, k.Launch(s, one))
		unstick := stick(t, x, s)
		synchronized, begun := make(chan error, 1), make(chan error, 1)
		go func() { synchronized <- s.SynchronizeBlocking() }()
		inside(t, "driver.CuEventSynchronize")
		go func() {
			g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed}, func() error { time.Sleep(10 * time.Millisecond); return nil })
			begun <- errors.Join(err, g.Close())
		}()
		time.Sleep(100 * time.Millisecond)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for range 20 {
				status, err := s.CaptureStatus()
				assert.NoError(t, err)
				_, err = s.Query()
				if after, _ := s.CaptureStatus(); status == driver.CU_STREAM_CAPTURE_STATUS_NONE && after == status && !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, k.Launch(s, one))
				time.Sleep(5 * time.Millisecond)
			}
		}()
		soon(t, answered, "a launch waits for a capture that cannot begin")
		unstick()
		assert.NoError(t, <-synchronized)
		assert.NoError(t, except(<-begun, safe.ErrCapturing), "or a named error")
		<-answered
	})
}

// TestReleaseBehindStuck: memory is freed once its work has completed, even if memory
// closed earlier still waits for a stuck stream.
func TestReleaseBehindStuck(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s1, s2, s3, s4, e := stream(t, x), stream(t, x), stream(t, x), stream(t, x), event(t, x)
		_, total, err := x.MemoryInfo()
		require.NoError(t, err)
		unstick := stick(t, x, s1)
		stuck, err := safe.NewBufferAsync[byte](s1, 1<<20)
		require.NoError(t, err)
		require.NoError(t, errors.Join(s1.Record(e), s2.WaitEvent(e), stuck.FillAsync(s2, 0), stuck.Close()))
		for n := range 16 { // each takes an eighth of all memory
			b, err := safe.NewBufferAsync[byte](s3, int(total/8))
			require.NoError(t, err, "buffer %d, on streams that have nothing to do", n)
			require.NoError(t, errors.Join(s3.Record(e), s4.WaitEvent(e)))
			part, err := b.Slice(0, 1000)
			require.NoError(t, err)
			require.NoError(t, part.FillAsync(s4, 0))
			require.NoError(t, errors.Join(s3.Synchronize(), s4.Synchronize(), b.Close()))
		}
		unstick()
	})
}

// TestClosedBesideStuck: streams closed after a stuck one leave nothing allocated.
func TestClosedBesideStuck(t *testing.T) {
	needsSimulated(t)
	watch(t)
	x := open(t, 0)
	stuck, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	k, b := kernel(t, x, "spin"), buffer[uint32](t, x, 16)
	t.Cleanup(stickOn(t, host[uint32](t, x, 1), stuck))
	require.NoError(t, errors.Join(b.FillAsync(stuck, 0), stuck.Close()))
	for range 500 {
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		c, err := safe.NewBufferAsync[uint32](s, 16)
		require.NoError(t, err)
		require.NoError(t, errors.Join(k.Launch(s, one, safe.Val(uint64(100_000))), c.Close(), s.Close()))
		time.Sleep(200 * time.Microsecond) // longer than its work takes
	}
	assert.Eventually(t, func() bool { return simulated.Live("stream") <= 36 }, hang, time.Millisecond, "the stuck one, few of the layer's own, and 32 spare ones")
	assert.Eventually(t, func() bool { return simulated.Live("event") < 100 }, hang, time.Millisecond, "of 500 streams that are closed and whose work is over")
}

// TestOnReleaseMayWait: a function of OnRelease may release a stream, which waits for
// calls in flight but not for the function's own goroutine.
func TestOnReleaseMayWait(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, away := stream(t, x), stream(t, x)
		g, err := safe.NewGraph(x)
		require.NoError(t, err)
		inside, returned := make(chan struct{}), make(chan struct{})
		go s.Scope(func(*safe.Scope) error { <-inside; return nil })
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, g.OnRelease(func() {
			defer close(returned)
			time.AfterFunc(100*time.Millisecond, func() { close(inside) })
			lent, err := s.Borrow()
			assert.NoError(t, err)
			time.AfterFunc(50*time.Millisecond, func() { lent.Close() })
			begun := make(chan struct{})
			go func() {
				assert.NoError(t, away.EnqueueRaw(func(driver.CUstream) error { close(begun); time.Sleep(50 * time.Millisecond); return nil }))
			}()
			<-begun
			if raw := away.Release(); assert.NotZero(t, raw) {
				assert.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
			}
		}))
		require.NoError(t, g.Close())
		soon(t, returned, "Stream.Release in a function of OnRelease never returns")
	})
}

// TestBlockingWaitBesideStuckStream: SynchronizeBlocking waits for its stream alone, also after a wait for another one
// that was given up while its event was pending.
func TestBlockingWaitBesideStuckStream(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		stuck, idle := stream(t, x), stream(t, x)
		unstick := stick(t, x, stuck)
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			require.ErrorIs(t, stuck.Wait(ctx), context.DeadlineExceeded)
			cancel()
			safe.SweepWaits()
			soon(t, background(func() { assert.NoError(t, idle.SynchronizeBlocking()) }), "it waits for the stuck stream")
		}
		unstick()
	})
}
