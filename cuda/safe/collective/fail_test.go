//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Failures: refused calls, aborts of a communicator, and calls after these.

package collective

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRefused(t *testing.T) {
	w := newWorld(t)
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	c, s, x := w.comms[0], w.streams[0], w.contexts[0]
	b := func(n int) *safe.Buffer[int32] {
		b, err := safe.NewBuffer[int32](x, n)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, b.Close()) })
		return b
	}
	b4, b5, b8, there := b(4), b(5), b(8), filled(t, w, 8, func(int, int) int32 { return 0 })[1]
	floats := filled(t, w, 1, func(int, int) float32 { return 1 })[0]
	gone := b(4)
	require.NoError(t, gone.Close())
	closedStream, err := safe.NewStream(x)
	require.NoError(t, err)
	require.NoError(t, closedStream.Close())
	low, err := b8.Slice(0, 4)
	require.NoError(t, err)
	mid, err := b8.Slice(2, 6)
	require.NoError(t, err)
	high, err := b8.Slice(4, 8)
	require.NoError(t, err)
	before := int32(0)
	if !onGPU {
		before = told.Operations
	}
	for _, test := range []struct {
		name string
		err  error
		want error
		says string
	}{
		{"lengths", AllReduce(c, s, b4, b5, Sum), safe.ErrRange, "collective.AllReduce: out of range: the destination has 4 values, the source 5"},
		{"a factor", AllReduce(c, s, b4, b4, ScaledSum(0.5)), safe.ErrInvalidArgument, "ScaledSum(0.5), but the values are integers that lack the factor"},
		{"a factor of another type", AllReduce(c, s, b4, b4, ScaledSumBy(floats)), safe.ErrInvalidArgument, "the factor has another type than the values"},
		{"another's factor", AllReduce(c, s, b4, b4, ScaledSumBy(there)), safe.ErrContextMismatch, "the factor is on device 1"},
		{"an empty factor", AllReduce(c, s, b4, b4, ScaledSumBy(b(0))), safe.ErrRange, "the buffer of the factor is empty"},
		{"a closed factor", AllReduce(c, s, b4, b4, ScaledSumBy(gone)), safe.ErrClosed, "the factor"},
		{"no factor", AllReduce(c, s, b4, b4, ScaledSumBy[int32](nil)), safe.ErrClosed, "the factor"},
		{"a partial overlap", AllReduce(c, s, mid, low, Sum), safe.ErrOverlap, "16 bytes at"},
		{"no communicator", AllReduce(nil, s, b4, b4, Sum), safe.ErrClosed, ""},
		{"a zero one", AllReduce(&Comm{}, s, b4, b4, Sum), safe.ErrClosed, ""},
		{"no stream", AllReduce(c, nil, b4, b4, Sum), safe.ErrClosed, "the stream"},
		{"a closed stream", AllReduce(c, closedStream, b4, b4, Sum), safe.ErrClosed, "the stream"},
		{"another's stream", AllReduce(c, w.streams[1], b4, b4, Sum), safe.ErrContextMismatch, "the stream is on device 1, the communicator on device 0"},
		{"no destination", AllReduce(c, s, nil, b4, Sum), safe.ErrClosed, "the destination"},
		{"a closed source", AllReduce(c, s, b4, gone, Sum), safe.ErrClosed, "the source"},
		{"another's memory", AllReduce(c, s, b8, there, Sum), safe.ErrContextMismatch, "the source is on device 1"},
		{"a negative root", Broadcast(c, s, b4, -1), safe.ErrRange, "rank -1 of 2"},
		{"a root", Reduce(c, s, b4, b4, Sum, 2), safe.ErrRange, "rank 2 of 2"},
		{"a peer", Send(c, s, b4, 2), safe.ErrRange, "rank 2 of 2"},
		{"a sender", Recv(c, s, b4, 9), safe.ErrRange, "rank 9 of 2"},
		{"no parts", AllToAll(c, s, b5, b5), safe.ErrRange, "5 values have no equal parts for 2 ranks"},
		{"in place", AllToAll(c, s, b4, b4), safe.ErrOverlap, ""},
		{"too short", AllGather(c, s, b5, b4), safe.ErrRange, "the destination has 5 values, but needs 4 for each of 2 ranks"},
		{"the wrong part", AllGather(c, s, b8, high), safe.ErrOverlap, ""},
		{"too long", ReduceScatter(c, s, b4, b5, Sum), safe.ErrRange, "the source has 5 values, but needs 4 for each of 2 ranks"},
		{"no destination at the root", Gather(c, s, nil, b4, 0), safe.ErrClosed, "the destination"},
		{"in place at the root", Gather(c, s, b8, low, 0), safe.ErrOverlap, ""},
		{"no source at the root", Scatter(c, s, b4, nil, 0), safe.ErrClosed, "the source"},
		{"no context", func() error { _, err := Open(soon(t)); return err }(), safe.ErrInvalidArgument, "no context"},
		{"a nil context", func() error { _, err := Open(soon(t), nil); return err }(), safe.ErrClosed, "context 0"},
		{"a device twice", func() error { _, err := Open(soon(t), x, x); return err }(), safe.ErrInvalidArgument, "contexts 0 and 1 are both on device 0"},
		{"no colors", func() error { _, err := w.comms.Split(soon(t), 1); return err }(), safe.ErrInvalidArgument, "1 colors for 2 ranks"},
		{"a rank twice", func() error { _, err := Comms{c, c}.Split(soon(t), 0, 0); return err }(), safe.ErrInvalidArgument, "a communicator is listed twice"},
		{"a color", func() error { _, err := w.comms.Split(soon(t), 0, -2); return err }(), safe.ErrRange, "color -2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.ErrorIs(t, test.err, test.want)
			assert.ErrorContains(t, test.err, test.says)
			var e *safe.Error
			assert.ErrorAs(t, test.err, &e)
		})
	}
	if !onGPU {
		assert.Equal(t, before, told.Operations, "NCCL sees none of them")
	}
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return nil }), "an empty group")
	assert.NoError(t, c.Err())
}

func TestGroupFails(t *testing.T) {
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	wrong := errors.New("wrong")
	var late *Comm
	err := Group(func(g *Calls) error {
		late = w.comms[0].In(g).In(g)
		assert.NoError(t, AllReduce(late, w.streams[0], b[0], b[0], Sum))
		return wrong
	})
	assert.Equal(t, wrong, err)
	assert.ErrorIs(t, AllReduce(late, w.streams[0], b[0], b[0], Sum), safe.ErrInvalidArgument)
	w.wait(t) // nothing was enqueued
	assert.Nil(t, (*Comm)(nil).In(nil))
}

// TestGroupKeeps: a group keeps the communicators of its operations, also if the program drops
// them.
func TestGroupKeeps(t *testing.T) {
	if !onGPU {
		t.Cleanup(func() { released(t) }) // other tests count communicators
	}
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	require.NoError(t, Group(func(g *Calls) error {
		func() {
			comms, err := Open(soon(t), w.contexts...)
			require.NoError(t, err)
			for i, c := range comms {
				require.NoError(t, AllReduce(c.In(g), w.streams[i], b[i], b[i], Sum))
			}
		}()
		for range 3 {
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	}))
	for _, s := range w.streams {
		require.NoError(t, s.Synchronize())
	}
	assert.EqualValues(t, len(w.comms), contents(t, b[0])[3])
}

// warm has NCCL connect the ranks, which it does at the first operation of each kind: until
// the others call it, too.
func (w *world) warm(t *testing.T, b []*safe.Buffer[int32]) {
	t.Helper()
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Max) }))
	to := filled(t, w, b[0].Len(), func(int, int) int32 { return 0 })
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error {
		size := c.Size()
		return errors.Join(Send(c, s, b[i], (i+1)%size), Recv(c, s, to[i], (i+size-1)%size))
	}))
	w.wait(t)
}

// stuck enqueues an all-reduce of rank 0 alone.
func (w *world) stuck(t *testing.T) {
	t.Helper()
	w.stuckAt(t, 0)
}

// stuckAt enqueues an all-reduce of one rank alone.
func (w *world) stuckAt(t *testing.T, rank int) {
	t.Helper()
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	w.warm(t, b)
	require.NoError(t, AllReduce(w.comms[rank], w.streams[rank], b[rank], b[rank], Sum))
}

// aborted checks what comes after an abort because of cause.
func (w *world) aborted(t *testing.T, cause error) {
	t.Helper()
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	for i, c := range w.comms {
		<-c.Done()
		for name, err := range map[string]error{
			"Err":    c.Err(),
			"Wait":   c.Wait(soon(t), w.streams[i]),
			"call":   Broadcast(c, w.streams[i], b[i], 0),
			"group":  Group(func(g *Calls) error { return Broadcast(c.In(g), w.streams[i], b[i], 0) }),
			"Split":  func() error { _, err := c.Split(soon(t), 0, 0); return err }(),
			"closed": c.Shutdown(soon(t)),
		} {
			assert.ErrorIs(t, err, ErrAborted, name)
			assert.ErrorIs(t, err, cause, name)
		}
		assert.Zero(t, c.Raw())
		assert.Contains(t, c.String(), "aborted")
		require.NoError(t, w.streams[i].Synchronize(), "the stream goes on")
	}
}

func TestAbort(t *testing.T) {
	w := newWorld(t)
	w.stuck(t)
	cause := errors.New("enough")
	w.comms[1].Abort(cause)
	w.comms[0].Abort(errors.New("too late"))
	w.aborted(t, cause)
}

func TestAbortWithoutCause(t *testing.T) {
	w := newWorld(t)
	w.comms[0].Abort(nil)
	assert.ErrorContains(t, w.comms[0].Err(), "by the program")
	(*Comm)(nil).Abort(nil)
}

// TestWaitEnds: a rank never comes.
func TestWaitEnds(t *testing.T) {
	w := newWorld(t)
	w.stuck(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("too long")
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	err := w.comms[0].Wait(ctx, w.streams[0])
	assert.ErrorIs(t, err, cause)
	w.aborted(t, cause)
}

// TestAsyncError: NCCL finds a failure outside of any call.
func TestAsyncError(t *testing.T) {
	needsDouble(t)
	w := newWorld(t)
	w.stuck(t)
	tell(t, &told.Async, int32(nccl.NcclRemoteError))
	assert.ErrorIs(t, w.comms[0].Wait(soon(t), w.streams[0]), nccl.NcclRemoteError)
	assert.ErrorContains(t, w.comms[0].Err(), "told by a test")
	w.aborted(t, nccl.NcclRemoteError)
}

func TestOperationFails(t *testing.T) {
	needsDouble(t)
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	tell(t, &told.Fail, int32(nccl.NcclInvalidArgument))
	err := Broadcast(w.comms[0], w.streams[0], b[0], 0)
	assert.ErrorIs(t, err, nccl.NcclInvalidArgument)
	assert.NoError(t, w.comms[0].Err(), "NCCL refused a call, and nothing more")
	told.Fail = int32(nccl.NcclSystemError)
	err = w.each(func(c *Comm, s *safe.Stream, i int) error { return Broadcast(c, s, b[i], 0) })
	assert.ErrorIs(t, err, nccl.NcclSystemError)
	w.aborted(t, nccl.NcclSystemError)
}

// TestExchangesFail: an all-to-all that NCCL refuses leaves the communicator as before.
func TestExchangesFail(t *testing.T) { testMessagesFail(t, false) }

// testMessagesFail has an operation fail, which tells NCCL's reason also if it is a group of messages.
func testMessagesFail(t *testing.T, grouped bool) {
	for name, code := range map[string]nccl.NcclResult_t{"an error": nccl.NcclSystemError, "a refusal": nccl.NcclInvalidArgument} {
		t.Run(name, func(t *testing.T) {
			needsDouble(t)
			w := newWorld(t)
			from, to := filled(t, w, 4, func(int, int) int32 { return 1 }), filled(t, w, 4, func(int, int) int32 { return 1 })
			tell(t, &told.Fail, int32(code))
			err := AllToAll(w.comms[0], w.streams[0], to[0], from[0])
			assert.ErrorIs(t, err, code)
			assert.ErrorContains(t, err, "told by a test")
			if code == nccl.NcclInvalidArgument && !grouped {
				assert.NoError(t, w.comms[0].Err())
				return
			}
			w.aborted(t, code)
		})
	}
}

// TestBusy: everything takes its time.
func TestBusy(t *testing.T) {
	needsDouble(t)
	tell(t, &told.Busy, 3)
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	for range 3 {
		require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Sum) }))
	}
	w.wait(t)
	assert.EqualValues(t, len(w.comms)*len(w.comms)*len(w.comms), contents(t, b[0])[3])
	require.NoError(t, w.comms.Shutdown(soon(t)))
}

// TestFirstOperationAborted: the first operation of a kind waits for ranks that never call it, and an abort ends
// it. Its communicator is released only once the call has returned.
func TestFirstOperationAborted(t *testing.T) {
	for name, first := range map[string]func(c *Comm, s *safe.Stream, b *safe.Buffer[int32]) error{
		"a collective": func(c *Comm, s *safe.Stream, b *safe.Buffer[int32]) error { return Broadcast(c, s, b, 0) },
		"a message":    func(c *Comm, s *safe.Stream, b *safe.Buffer[int32]) error { return Send(c, s, b, 1) },
		"a group": func(c *Comm, s *safe.Stream, b *safe.Buffer[int32]) error {
			return Group(func(g *Calls) error { return errors.Join(Broadcast(c.In(g), s, b, 0), Recv(c.In(g), s, b, 1)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if len(w.comms) < 2 {
				t.Skip("needs two devices")
			}
			b := filled(t, w, 4, func(int, int) int32 { return 1 })
			done := make(chan error)
			go func() { done <- first(w.comms[0], w.streams[0], b[0]) }()
			if onGPU {
				time.Sleep(time.Second)
			}
			for !onGPU && told.get(&told.Waiting) == 0 {
				runtime.Gosched()
			}
			select {
			case err := <-done:
				t.Fatal("it has not waited", err)
			case <-time.After(10 * time.Millisecond):
			}
			cause := errors.New("enough")
			w.comms[1].Abort(cause)
			assert.ErrorIs(t, <-done, cause)
			w.aborted(t, cause)
		})
	}
}

// TestBusyAborted: aborts come at any time of calls.
func TestBusyAborted(t *testing.T) {
	needsDouble(t)
	tell(t, &told.Busy, 1)
	for n := range 30 {
		w := newWorld(t)
		b := filled(t, w, 4, func(int, int) int32 { return 1 })
		cause := errors.New("enough")
		var calls sync.WaitGroup
		for i, c := range w.comms {
			calls.Go(func() {
				var err error
				for err == nil {
					err = AllReduce(c, w.streams[i], b[i], b[i], Max)
				}
				assert.ErrorIs(t, err, cause)
			})
		}
		time.Sleep(time.Duration(n) * 100 * time.Microsecond)
		w.comms[0].Abort(cause)
		calls.Wait()
		w.aborted(t, cause)
	}
}

func TestOpenEnds(t *testing.T) {
	needsDouble(t)
	tell(t, &told.HangsInit, 1)
	contexts := open(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, contexts...)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Eventually(t, func() bool { return told.get(&told.Live) == 0 }, time.Minute, time.Millisecond)
}

func TestOpenFails(t *testing.T) {
	needsDouble(t)
	tell(t, &told.Busy, 10)
	tell(t, &told.Async, int32(nccl.NcclSystemError))
	_, err := Open(soon(t), open(t, 2)...)
	assert.ErrorIs(t, err, nccl.NcclSystemError)
	assert.ErrorContains(t, err, "collective.Open: ")
	assert.ErrorContains(t, err, "told by a test")
	assert.Eventually(t, func() bool { return told.get(&told.Live) == 0 }, time.Minute, time.Millisecond)
}

// TestExecutablesAfterAbort: a graph that holds an aborted communicator must not run.
func TestExecutablesAfterAbort(t *testing.T) {
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	w.warm(t, b)
	e, err := w.streams[0].CaptureExecutable(func() error { return AllReduce(w.comms[0], w.streams[0], b[0], b[0], Sum) })
	require.NoError(t, err)
	defer e.Close()
	cause := errors.New("enough")
	w.comms[0].Abort(cause)
	require.Eventually(t, func() bool { return errors.Is(e.Launch(w.streams[0]), safe.ErrClosed) }, time.Minute, time.Millisecond)
	// NCCL waits for the executable, which must not wait for NCCL. Nor do captures.
	g, err := w.streams[1%len(w.streams)].Capture(func() error { return nil })
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, e.Close())
	for _, c := range w.comms {
		assert.ErrorIs(t, c.Shutdown(soon(t)), cause)
	}
}

// TestAbortInCapture: NCCL must not synchronize streams that are captured.
func TestAbortInCapture(t *testing.T) {
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	w.warm(t, b)
	cause := errors.New("enough")
	_, err := w.streams[0].Capture(func() error {
		if err := AllReduce(w.comms[0], w.streams[0], b[0], b[0], Sum); err != nil {
			return err
		}
		w.comms[0].Abort(cause)
		return AllReduce(w.comms[0], w.streams[0], b[0], b[0], Sum)
	})
	assert.ErrorIs(t, err, cause)
	w.aborted(t, cause)
}

// TestAbortAtOnce: NCCL before 2.22 releases a communicator at once.
func TestAbortAtOnce(t *testing.T) {
	if onOlder(t, "-DBEFORE_2_22") {
		return
	}
	require.False(t, defers())
	TestAbort(t)
	TestFirstOperationAborted(t)
	TestAbortInCapture(t)
	TestExecutablesAfterAbort(t)
	w := newWorld(t)
	aborted := told.get(&told.Aborted)
	g, err := w.streams[0].Capture(func() error {
		w.comms[0].Abort(nil)
		time.Sleep(20 * time.Millisecond)
		assert.Less(t, told.get(&told.Aborted), aborted+int32(len(w.comms)), "not while a stream captures")
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
}

func TestSplit(t *testing.T) {
	w := newWorld(t)
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	same, err := w.comms.Split(soon(t), 7, 7)
	require.NoError(t, err)
	b := filled(t, w, 4, func(rank, _ int) int32 { return int32(rank + 1) })
	whole := w.comms
	w.comms = same
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error {
		assert.Equal(t, i, c.Rank())
		assert.Equal(t, 2, c.Size())
		return AllReduce(c, s, b[i], b[i], Sum)
	}))
	w.wait(t)
	assert.EqualValues(t, 3, contents(t, b[1])[0])

	alone, err := whole.Split(soon(t), 0, NoColor)
	require.NoError(t, err)
	assert.Nil(t, alone[1])
	assert.Equal(t, 1, alone[0].Size())
	require.NoError(t, AllReduce(alone[0], w.streams[0], b[0], b[0], Sum))
	require.NoError(t, alone[0].Wait(soon(t), w.streams[0]))
	require.NoError(t, alone.Shutdown(soon(t)))

	cause := errors.New("enough")
	whole[0].Abort(cause)
	w.aborted(t, cause)
}

// TestCallDuringSplit: a call waits until NCCL has split the communicators of all ranks.
func TestCallDuringSplit(t *testing.T) {
	needsDouble(t)
	w := newWorld(t)
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	w.warm(t, b)
	done := make(chan error)
	w.comms[1].core.mu.Lock() // keeps NCCL from the split of rank 1
	go func() {
		all, err := w.comms.Split(soon(t), 0, 0)
		done <- errors.Join(err, all.Close())
	}()
	time.Sleep(20 * time.Millisecond)
	go func() { done <- AllReduce(w.comms[0], w.streams[0], b[0], b[0], Sum) }()
	time.Sleep(20 * time.Millisecond)
	w.comms[1].core.mu.Unlock()
	require.NoError(t, errors.Join(<-done, <-done))
	require.NoError(t, AllReduce(w.comms[1], w.streams[1], b[1], b[1], Sum))
	w.wait(t)
}

// TestSplitEnds: another rank does not split. The communicator that NCCL makes nevertheless is
// aborted after the one that was to be split.
func TestSplitEnds(t *testing.T) {
	needsDouble(t)
	for range 20 {
		w := newWorld(t)
		if len(w.comms) < 2 {
			t.Skip("needs two devices")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_, err := w.comms[0].Split(ctx, 0, 0)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		w.aborted(t, context.DeadlineExceeded)
		require.Eventually(t, func() bool { return told.get(&told.Live) == 0 }, time.Minute, time.Millisecond)
	}
}

// TestSplitCounts: NCCL releases a communicator whose split has failed with the others of its identifier, too.
func TestSplitCounts(t *testing.T) {
	needsDouble(t)
	released(t) // no call of another test waits in NCCL
	w := newWorld(t)
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c := w.comms[0].core
	child, err := newCore("", c.x, c.session, 0, 0)
	require.NoError(t, err)
	divided := make(chan error, 1)
	go func() { divided <- divide(ctx, []*core{c}, []*core{child}, []int{0}, []int{0}) }()
	require.Eventually(t, func() bool { return told.get(&told.Waiting) > 0 }, time.Minute, time.Millisecond)
	cause := errors.New("enough")
	cancel(cause)
	require.ErrorIs(t, <-divided, cause)
	w.aborted(t, cause)
	<-child.gone
	assert.Same(t, c.local, child.local)
}

// TestSplitAborted: an abort ends a call on a communicator of a split that waits in NCCL for another rank, and its end.
func TestSplitAborted(t *testing.T) {
	enough := errors.New("enough")
	for _, c := range []struct {
		name   string
		blocks func(t *testing.T, w *world, parts Comms)
	}{
		{"call", func(t *testing.T, w *world, parts Comms) {
			b := filled(t, w, 4, func(int, int) int32 { return 1 })
			called := make(chan error, 1)
			go func() { called <- AllReduce(parts[0], w.streams[0], b[0], b[0], Sum) }()
			require.Eventually(t, func() bool { return told.get(&told.Waiting) > 0 }, time.Minute, time.Millisecond)
			parts[0].Abort(enough)
			promptly(t, "the call", func() { assert.ErrorIs(t, <-called, enough) })
		}},
		{"finalization", func(t *testing.T, _ *world, parts Comms) {
			tell(t, &told.HangsFinal, 1)
			require.NoError(t, parts[0].Close())
			require.Eventually(t, func() bool { return told.get(&told.Waiting) > 0 }, time.Minute, time.Millisecond)
			parts[1].Abort(enough)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			needsDouble(t)
			released(t)
			w := newWorld(t)
			if len(w.comms) < 2 {
				t.Skip("needs two devices")
			}
			parts, err := w.comms.Split(soon(t), 0, 0)
			require.NoError(t, err)
			c.blocks(t, w, parts)
			promptly(t, "the end", func() { assert.ErrorIs(t, parts.Shutdown(soon(t)), enough) })
			released(t)
		})
	}
}

// TestSplitOfTwoEnds: a split of ranks of two communicators aborts both if it fails.
func TestSplitOfTwoEnds(t *testing.T) {
	needsDouble(t)
	one, two := newWorld(t), newWorld(t)
	if len(one.comms) < 2 {
		t.Skip("needs two devices")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err := Comms{one.comms[0], two.comms[1]}.Split(ctx, 0, 0)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	one.aborted(t, context.DeadlineExceeded)
	two.aborted(t, context.DeadlineExceeded)
	assert.Eventually(t, func() bool { return told.get(&told.Live) == 0 }, time.Minute, time.Millisecond)
}

func TestMulticast(t *testing.T) {
	needsDouble(t)
	newWorld(t)
	assert.Zero(t, told.get(&told.Multicast), "off unless NCCL_NVLS_ENABLE is set")
}

// TestAllocations: a call on a warm path allocates nothing of its own.
func TestAllocations(t *testing.T) {
	drivertest.NotWithRace(t)
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	c, s, v := w.comms[0], w.streams[0], b[0]
	if c.Size() > 1 {
		alone, err := Open(soon(t), w.contexts[0])
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, alone.Close()) })
		c = alone[0]
	}
	measure := func(f func() error) float64 {
		n := testing.AllocsPerRun(10, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
		require.NoError(t, c.Wait(soon(t), s)) // else later calls may have to wait for room
		return n
	}
	on, nothing := []safe.RawWork{{Stream: s, Uses: []safe.Arg{v.Arg()}}}, func() error { return nil }
	least, n := math.Inf(1), math.Inf(1)
	for range 20 { // as other goroutines allocate, too
		least = min(least, measure(func() error { return safe.EnqueueRaw(nothing, on...) }))
		n = min(n, measure(func() error { return AllReduce(c, s, v, v, Sum) }))
	}
	assert.LessOrEqual(t, n, least)
}
