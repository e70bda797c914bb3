//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Batches on full queues, in host functions and with calls that fail; benchmarks. Runs on any
// driver; tests named Sim need the simulated one.

package safe_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBatchChangedInFlight changes a batch while a submission waits for room: the
// submission keeps the values of its beginning, and nothing else waits.
func TestBatchChangedInFlight(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, other, k := stream(t, x), stream(t, x), kernel(t, x, "store")
		m, also := buffer[uint64](t, x, 1), buffer[uint64](t, x, 1)
		b := newBatch(t, x)
		for range 2 * queued {
			require.NoError(t, b.Launch(k, one, m.Arg(), safe.Val(uint64(1))))
		}
		require.NoError(t, b.Submit(other))
		require.NoError(t, other.Synchronize())
		unstick := stick(t, x, s)
		over := make(chan error, 1)
		go func() { over <- b.Submit(s) }()
		time.Sleep(100 * time.Millisecond)
		assert.Empty(t, over, "the queue is not full")
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range b.Len() {
				assert.NoError(t, b.SetLaunch(i, k, one, also.Arg(), safe.Val(uint64(2))))
			}
			assert.NoError(t, b.Submit(other))
			assert.NoError(t, other.Synchronize())
			g, err := other.Capture(func() error { return k.Launch(other, one, also.Arg(), safe.Val(uint64(2))) })
			assert.NoError(t, errors.Join(err, g.Close()))
		}()
		soon(t, done, "something waits for the submission")
		require.NoError(t, m.Close(), "the submission retains it")
		unstick()
		require.NoError(t, <-over)
		require.NoError(t, s.Synchronize())
		noViolation(t)
	})
}

// TestBatchChangedAgain: a submission that waits for room enqueues what the batch had at its beginning, also if the
// batch is then changed and submitted more than once.
func TestBatchChangedAgain(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, other, e := stream(t, x), stream(t, x), event(t, x)
	m, also, b, got := buffer[uint32](t, x, 1), buffer[uint32](t, x, 1), newBatch(t, x), make([]uint32, 1)
	for range queued {
		require.NoError(t, safe.BatchFill(b, m, 1))
	}
	require.NoError(t, b.Record(e))
	unstick, over := stick(t, x, s), make(chan error, 1)
	go func() { over <- b.Submit(s) }()
	require.Eventually(t, func() bool { return safe.Reserved(s) > 0 }, hang, time.Millisecond, "it does not wait for room")
	for i := range 2 {
		require.NoError(t, errors.Join(safe.SetBatchFill(b, i, also, 2), safe.SetBatchFill(b, queued-1, m, 2)))
		require.NoError(t, errors.Join(b.Submit(other), other.Synchronize()))
	}
	unstick()
	require.NoError(t, errors.Join(<-over, s.Synchronize(), m.CopyToHost(got)))
	assert.EqualValues(t, 1, got[0])
	noViolation(t)
}

// TestBatchPending: operations take as much room in a batch as single calls do.
func TestBatchPending(t *testing.T) {
	x := open(t, 0)
	s, k, e, m := stream(t, x), kernel(t, x, "store"), event(t, x), buffer[uint64](t, x, 4)
	g, err := s.Capture(func() (err error) {
		for range 50 {
			err = errors.Join(err, m.FillAsync(s, 0))
		}
		return err
	})
	require.NoError(t, err)
	closing(t, g)
	exec := executable(t, g)
	stick(t, x, s)
	for _, c := range []struct {
		name   string
		record func(b *safe.Batch) error
		call   func() error
	}{
		{"launch", func(b *safe.Batch) error { return b.Launch(k, one, m.Arg(), safe.Val(uint64(1))) },
			func() error { return k.Launch(s, one, m.Arg(), safe.Val(uint64(1))) }},
		{"fill", func(b *safe.Batch) error { return safe.BatchFill(b, m, 0) }, func() error { return m.FillAsync(s, 0) }},
		{"record", func(b *safe.Batch) error { return b.Record(e) }, func() error { return s.Record(e) }},
		{"wait", func(b *safe.Batch) error { return b.WaitEvent(e) }, func() error { return s.WaitEvent(e) }},
		{"graph launch", func(b *safe.Batch) error { return b.LaunchGraph(exec) }, func() error { return exec.Launch(s) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, before := newBatch(t, x), safe.Pending(s)
			require.NoError(t, errors.Join(c.record(b), c.call()))
			single := safe.Pending(s) - before
			require.NoError(t, b.Submit(s))
			assert.Equal(t, before+2*single, safe.Pending(s))
			noViolation(t)
		})
	}
}

// TestBatchFullQueue: a submission waits for room with nothing locked.
func TestBatchFullQueue(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, other, k, e, m := stream(t, x), stream(t, x), kernel(t, x, "nothing"), event(t, x), buffer[int32](t, x, 1)
		b := newBatch(t, x)
		for range queued {
			require.NoError(t, errors.Join(b.Launch(k, one), b.Record(e), b.WaitEvent(e), safe.BatchFill(b, m, 2)))
		}
		require.NoError(t, b.Submit(other))
		require.NoError(t, other.Synchronize())
		unstick := stick(t, x, s)
		over := make(chan error, 1)
		go func() { over <- b.Submit(s) }()
		require.Eventually(t, func() bool { return safe.Reserved(s) > 0 }, hang, time.Millisecond, "the queue is not full")
		assert.Greater(t, safe.Pending(s), 600, "it enqueues what there is room for")
		assert.Empty(t, over)
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.NoError(t, errors.Join(b.Submit(other), other.Record(e), other.Synchronize(), e.Synchronize()))
			g, err := other.Capture(func() error { return k.Launch(other, one) })
			assert.NoError(t, errors.Join(err, g.Close()))
		}()
		soon(t, done, "something waits for the stream whose queue is full")
		unstick()
		require.NoError(t, <-over)
		require.NoError(t, s.Synchronize())
		noViolation(t)
	})
}

// TestBatchClosedInFlight: a submission that waits for room enqueues all of its operations, whatever is
// closed meanwhile.
func TestBatchClosedInFlight(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, x *safe.Context, b *safe.Batch) (end func() error){
		"record of an event of a capture": func(t *testing.T, x *safe.Context, b *safe.Batch) func() error {
			s, e := stream(t, x), event(t, x)
			g, err := s.Capture(func() error { return s.Record(e) })
			require.NoError(t, err)
			closing(t, g)
			require.NoError(t, b.Record(e))
			return e.Close
		},
		"launch of a graph with memory": func(t *testing.T, x *safe.Context, b *safe.Batch) func() error {
			g, m := allocating[int32](t, stream(t, x), 4)
			closing(t, g)
			exec, err := g.Instantiate()
			require.NoError(t, err)
			require.NoError(t, b.LaunchGraph(exec))
			return func() error { return errors.Join(exec.Close(), m.Close()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			x := open(t, 0)
			s, err := safe.NewStream(x)
			require.NoError(t, err)
			k, b, h := kernel(t, x, "nothing"), newBatch(t, x), host[uint32](t, x, 1)
			for range queued {
				require.NoError(t, b.Launch(k, one))
			}
			end := begin(t, x, b)
			require.NoError(t, b.Launch(k, one))
			unstick, over := stickOn(t, h, s), make(chan error, 1)
			defer unstick()
			go func() { over <- b.Submit(s) }()
			require.Eventually(t, func() bool { return safe.Reserved(s) > 0 }, hang, time.Millisecond, "it does not wait for room")
			require.NoError(t, errors.Join(end(), s.Close()))
			unstick()
			require.NoError(t, <-over)
			noViolation(t)
		})
	}
}

// TestBatchMemoryClosed: memory that the work of a submission uses stays until that has completed.
func TestBatchMemoryClosed(t *testing.T) {
	needsSimulated(t)
	for name, record := range map[string]func(t *testing.T, x *safe.Context, b *safe.Batch, m *safe.Buffer[uint32]) (end func() error){
		"launch of a graph": func(t *testing.T, x *safe.Context, b *safe.Batch, m *safe.Buffer[uint32]) func() error {
			s := stream(t, x)
			g, err := s.Capture(func() error { return m.FillAsync(s, 1) })
			require.NoError(t, err)
			exec, err := g.Instantiate()
			require.NoError(t, errors.Join(err, b.LaunchGraph(exec)))
			return func() error { return errors.Join(exec.Close(), g.Close()) }
		},
		"copy to memory of a graph": func(t *testing.T, x *safe.Context, b *safe.Batch, m *safe.Buffer[uint32]) func() error {
			s := stream(t, x)
			g, to := allocating[uint32](t, s, 4)
			closing(t, g)
			closing(t, to)
			launch(t, executable(t, g), s)
			require.NoError(t, safe.BatchCopy(b, to, m))
			return func() error { return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			startClean(t)
			x := open(t, 0)
			s, other, b := stream(t, x), stream(t, x), newBatch(t, x)
			m, err := safe.NewBufferAsync[uint32](other, 4)
			require.NoError(t, errors.Join(err, other.Synchronize()))
			end, unstick := record(t, x, b, m), stick(t, x, s)
			memory := simulated.Live("async")
			require.NoError(t, errors.Join(b.Submit(s), end(), m.Close()))
			assert.Never(t, func() bool { return simulated.Live("async") < memory }, 20*time.Millisecond, time.Millisecond)
			unstick()
			require.NoError(t, s.Synchronize())
			noViolation(t)
		})
	}
}

// TestBatchInHostFunc: a submission in a host function is refused.
func TestBatchInHostFunc(t *testing.T) {
	x := open(t, 0)
	s, other, b := stream(t, x), stream(t, x), newBatch(t, x)
	require.NoError(t, b.Launch(kernel(t, x, "nothing"), one))
	told := make(chan error, 1)
	in := newBatch(t, x)
	require.NoError(t, in.LaunchHostFunc(func() { told <- b.Submit(other) }))
	require.NoError(t, in.Submit(s))
	assert.ErrorIs(t, <-told, safe.ErrInCallback)
	require.NoError(t, s.Synchronize())
}

// TestBatchBesideExclusion: a submission waits for a change of access or for the destruction of an executable. In a host
// function, it does not, and enqueues nothing.
func TestBatchBesideExclusion(t *testing.T) {
	x, y := open(t, 0), second(t)
	s, other, m, far := stream(t, x), stream(t, x), buffer[int32](t, x, 1), buffer[int32](t, y, 1)
	g, err := s.Capture(func() error { return m.FillAsync(s, 0) })
	require.NoError(t, err)
	closing(t, g)
	exec := executable(t, g)
	for _, c := range []struct {
		name   string
		record func(b *safe.Batch) error
		beside func(f func())
	}{
		{"a copy between devices", func(b *safe.Batch) error { return errors.Join(safe.BatchCopy(b, m, far), safe.BatchFill(b, m, 1)) }, safe.WithoutPeerCopies},
		{"a graph launch", func(b *safe.Batch) error { return b.LaunchGraph(exec) }, safe.WithoutExecutables},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, begin, before := newBatch(t, x), make(chan struct{}), safe.Pending(other)
			require.NoError(t, c.record(b))
			f, err := s.LaunchHostFunc(func() {
				<-begin
				assert.ErrorIs(t, b.Submit(other), safe.ErrInCallback)
			})
			require.NoError(t, err)
			c.beside(func() {
				close(begin)
				soon(t, f.Done(), "the host function waits")
			})
			assert.Equal(t, before, safe.Pending(other))
			after := make(chan struct{})
			c.beside(func() {
				go func() {
					defer close(after)
					assert.NoError(t, errors.Join(b.Submit(other), other.Synchronize()))
				}()
				assert.Never(t, func() bool { return isDone(after) }, 20*time.Millisecond, time.Millisecond, "it does not wait")
			})
			soon(t, after, "something is locked")
		})
	}
}

// TestBatchHostFuncReset: a host function runs even if its batch is reset.
func TestBatchHostFuncReset(t *testing.T) {
	x := open(t, 0)
	s, g, b := stream(t, x), newGate(t, x), newBatch(t, x)
	var calls atomic.Int32
	require.NoError(t, b.LaunchHostFunc(func() { calls.Add(1) }))
	g.shut(t, s)
	require.NoError(t, b.Submit(s))
	b.Reset()
	drop()
	g.open()
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 1, calls.Load())
}

// TestSimBatchFails has each call of a batch fail: what was before it ran, and the error
// names it.
func TestSimBatchFails(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s, k := stream(t, x), kernel(t, x, "store")
	const n = 300 // more than one chunk
	out, got := buffer[uint64](t, x, n), make([]uint64, n)
	b := newBatch(t, x)
	for i := range n {
		at, err := out.Slice(i, i+1)
		require.NoError(t, err)
		require.NoError(t, b.Launch(k, one, at.Arg(), safe.Val(uint64(1))))
	}
	for _, fails := range []int{1, 2, 17, 240, 241, 300} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			require.NoError(t, out.Fill(0))
			simulated.Fail("cuLaunchKernel", fails, uint32(driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES))
			err := b.Submit(s)
			simulated.Reset()
			assert.ErrorIs(t, err, driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
			assert.ErrorContains(t, err, fmt.Sprintf("operation %d, a launch: kernel store", fails-1))
			require.NoError(t, out.CopyToHost(got))
			for i, v := range got {
				require.Equal(t, i < fails-1, v == 1, "operation %d", i)
			}
		})
	}
	stuck := stream(t, x)
	unstick := stick(t, x, stuck)
	before := safe.Pending(stuck)
	simulated.Fail("cuLaunchKernel", 17, uint32(driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES))
	require.Error(t, b.Submit(stuck))
	simulated.Reset()
	assert.Equal(t, before+16, safe.Pending(stuck), "what is not enqueued takes no room")
	unstick()
	require.NoError(t, b.Submit(s))
	require.NoError(t, errors.Join(s.Synchronize(), stuck.Synchronize()))
}

// TestSimBatchRecordFails: an event counts as recorded once a submission has recorded it.
func TestSimBatchRecordFails(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s, b, e, never := stream(t, x), newBatch(t, x), event(t, x), event(t, x)
	require.NoError(t, errors.Join(b.Launch(kernel(t, x, "nothing"), one), b.Record(e)))
	simulated.Fail("cuLaunchKernel", 1, uint32(driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES))
	require.Error(t, b.Submit(s))
	simulated.Reset()
	_, err := e.Since(never)
	assert.ErrorContains(t, err, "the end event was never recorded")
	require.NoError(t, errors.Join(b.Submit(s), s.Synchronize()))
	_, err = e.Since(never)
	assert.ErrorContains(t, err, "the start event was never recorded")
	assert.NotContains(t, err.Error(), "the end event")
}

// BenchmarkBatch measures launches of three arguments, singly and in batches.
func BenchmarkBatch(b *testing.B) {
	x := open(b, 0)
	s, k, m := stream(b, x), kernel(b, x, "three"), buffer[uint64](b, x, 4)
	launch := func(to *safe.Batch) error {
		return to.Launch(k, one, m.Arg(), safe.Val(uint32(1)), safe.Val(float32(2)))
	}
	b.Run("single", func(b *testing.B) {
		for b.Loop() {
			if k.Launch(s, one, m.Arg(), safe.Val(uint32(1)), safe.Val(float32(2))) != nil {
				b.Fatal("fails")
			}
		}
	})
	for _, n := range []int{1, 10, 100, 1000} {
		to, err := safe.NewBatch(x)
		require.NoError(b, err)
		fill := func() {
			to.Reset()
			for range n {
				if err := launch(to); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, c := range []struct {
			name string
			do   func()
		}{{"record", fill}, {"record and submit", func() { fill(); to.Submit(s) }}, {"replay", func() { to.Submit(s) }}} {
			fill()
			b.Run(fmt.Sprintf("%s %d", c.name, n), func(b *testing.B) {
				for b.Loop() {
					c.do()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/launch")
			})
			require.NoError(b, s.Synchronize())
		}
	}
}

// TestBatchSubmitBesideReset tests that Reset does not affect submissions in progress.
func TestBatchSubmitBesideReset(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	b, err := safe.NewBatch(x)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			b.Reset()
			assert.NoError(t, b.LaunchHostFunc(func() {}))
		}
	}()
	for n := 0; ctx.Err() == nil; n++ {
		if err := b.Submit(s); err != nil {
			t.Errorf("submission %d: %v", n, err)
			break
		}
	}
	cancel()
	<-done
	b.Reset()
	require.NoError(t, s.Synchronize())
}

// TestRefusedTakesNoRoom: calls that are refused count for no pending work, so that a stuck stream is not
// taken for full.
func TestRefusedTakesNoRoom(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, k, open := stream(t, x), kernel(t, x, "store"), buffer[uint64](t, x, 4)
	closed, err := safe.NewBuffer[uint64](x, 4)
	require.NoError(t, err)
	h, err := safe.NewPinned[uint32](x, 1)
	require.NoError(t, err)
	ops := make([]safe.MemOp, 255)
	for i := range ops {
		ops[i] = safe.NewWriteOp(h.At(0), uint32(1))
	}
	g := newGraph(t, x)
	_, _, err = safe.AddAlloc[uint32](g, 100)
	require.NoError(t, err)
	allocated := executable(t, g)
	launch(t, allocated, s)
	later := newGraph(t, x)
	absent, _, err := safe.AddAlloc[uint64](later, 4)
	require.NoError(t, err)
	early := newBatch(t, x)
	require.NoError(t, errors.Join(safe.BatchFill(early, absent, 0), closed.Close(), h.Close()))
	stick(t, x, s)
	other := map[string]error{
		"GraphExec.Launch": driver.CUDA_ERROR_INVALID_VALUE, // its memory is allocated
		"FillAsync early":  safe.ErrNotAllocated,
		"Batch.Submit":     safe.ErrNotAllocated,
	}
	for name, call := range map[string]func() error{
		"GraphExec.Launch": func() error { return allocated.Launch(s) },
		"MemOps":           func() error { return s.MemOps(ops) },
		"FillAsync of 0":   func() error { return closed.FillAsync(s, 0) },
		"FillAsync early":  func() error { return absent.FillAsync(s, 0) },
		"Batch.Submit":     func() error { return early.Submit(s) },
		"CopyFromAsync":    func() error { return open.CopyFromAsync(s, closed) },
		"Launch":           func() error { return k.Launch(s, one, closed.Arg(), safe.Val(uint64(1))) },
		"EnqueueRaw":       func() error { return s.EnqueueRaw(func(driver.CUstream) error { return nil }, closed.Arg()) },
		"several at once": func() error {
			return safe.EnqueueRaw(func() error { return nil }, safe.RawWork{Stream: s, Uses: []safe.Arg{closed.Arg()}}, safe.RawWork{Stream: stream(t, x)})
		},
	} {
		before := safe.Pending(s)
		for range 20 {
			assert.ErrorIs(t, call(), cmp.Or(other[name], safe.ErrClosed), name)
		}
		assert.Equal(t, before, safe.Pending(s), name)
	}
}
