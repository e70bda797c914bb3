//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// The end of communicators, and what other ranks see of it.

package collective

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// promptly fails the test if f takes as long as only what waits for another rank does.
func promptly(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.Fail(t, what+" waits")
	}
}

func TestClose(t *testing.T) {
	released(t)
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	c := w.comms[0]
	assert.Equal(t, 0, c.Rank())
	assert.Equal(t, len(w.comms), c.Size())
	assert.Equal(t, w.contexts[0].Device(), c.Device())
	assert.NotZero(t, c.Raw())
	assert.NoError(t, c.Err())
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	assert.ErrorIs(t, AllReduce(c, w.streams[0], b[0], b[0], Sum), safe.ErrClosed)
	assert.ErrorIs(t, c.Wait(soon(t), w.streams[0]), safe.ErrClosed)
	require.NoError(t, w.comms.Shutdown(soon(t)))
	ended, cancel := context.WithCancel(soon(t))
	cancel()
	for range 10 {
		require.NoError(t, w.comms.Shutdown(ended), "it was released before")
	}
	<-c.Done()
	assert.ErrorIs(t, c.Err(), safe.ErrClosed)
	assert.Contains(t, c.String(), "(closed)")
	if !onGPU {
		assert.Zero(t, told.get(&told.Live))
	}
	for _, c := range []*Comm{nil, {}} {
		<-c.Done()
		assert.ErrorIs(t, c.Err(), safe.ErrClosed)
		assert.NoError(t, errors.Join(c.Close(), c.Shutdown(soon(t))))
		assert.Zero(t, c.Rank()+c.Size()+int(c.Raw())+c.Device().Ordinal())
		assert.Equal(t, "Comm (never opened)", c.String())
	}
}

// TestDropped: communicators that the program forgets are released, and reported if asked.
func TestDropped(t *testing.T) {
	leaks := make(chan error, 100)
	safe.TrackLeaks(true)
	safe.OnError(func(err error) { leaks <- err })
	t.Cleanup(func() { safe.TrackLeaks(false); safe.OnError(nil) })
	contexts := open(t, 2)
	func() {
		_, err := Open(soon(t), contexts...)
		require.NoError(t, err)
	}()
	assert.Eventually(t, func() bool { runtime.GC(); return len(leaks) >= len(contexts) }, time.Minute, 10*time.Millisecond)
	assert.ErrorContains(t, <-leaks, "a Comm was dropped while it was open")
	if !onGPU {
		assert.Eventually(t, func() bool { return told.get(&told.Live) == 0 }, time.Minute, time.Millisecond)
	}
}

// released waits until NCCL has released all communicators of the process.
func released(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		runtime.GC() // which finds those that a test has dropped
		return told.get(&told.Live) == 0
	}, time.Minute, time.Millisecond)
}

// TestCloseHoldsUpNothing: a rank that closes its communicator waits for the others in NCCL, but captures and
// executables go on.
func TestCloseHoldsUpNothing(t *testing.T) {
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	w.warm(t, b)
	require.NoError(t, w.comms[0].Close())
	time.Sleep(50 * time.Millisecond) // it is in NCCL
	promptly(t, "a capture", func() {
		e, err := w.streams[0].CaptureExecutable(func() error { return b[0].FillAsync(w.streams[0], 7) })
		assert.NoError(t, errors.Join(err, e.Launch(w.streams[0]), w.streams[0].Synchronize(), e.Close()))
	})
	assert.EqualValues(t, 7, contents(t, b[0])[3])
	require.NoError(t, w.comms[1].Shutdown(soon(t)))
	require.NoError(t, w.comms[0].Shutdown(soon(t)))
}

// TestSplitAfterLeave: a split is refused once another process has left in order.
func TestSplitAfterLeave(t *testing.T) {
	w := newWorld(t)
	w.comms[0].core.session.goes(1)
	promptly(t, "the split", func() {
		_, err := w.comms.Split(context.Background(), 0, 0)
		var left *PeerError
		assert.ErrorAs(t, err, &left)
	})
}

// unwatched keeps watchAll from checking a communicator, so that a test does it itself.
func unwatched(c *Comm) *core {
	unwatch(c.core)
	next := &core{session: &session{peers: &watched{checked: make(chan struct{})}}}
	next.mu.Lock() // so that its check is one of a call
	next.ends.Store(true)
	watch(next)
	<-next.session.peers.(*watched).checked // by the next round of watchAll, which has forgotten c
	unwatch(next)
	return c.core
}

// watched tells that watchAll checks the communicator of a session.
type watched struct {
	witness
	once    sync.Once
	checked chan struct{}
}

func (w *watched) deserted() <-chan struct{} {
	w.once.Do(func() { close(w.checked) })
	return nil
}

// TestCallAfterLeave: a call that is in NCCL long after another rank has left ends with that rank's error.
func TestCallAfterLeave(t *testing.T) {
	w := newWorld(t)
	c := unwatched(w.comms[0])
	c.mu.Lock()
	c.session.goes(1)
	c.check()
	assert.NoError(t, c.err(), "it may soon return")
	c.stuck.since = c.stuck.since.Add(-2 * desertion)
	c.check()
	c.mu.Unlock()
	var left *PeerError
	assert.ErrorAs(t, c.err(), &left)
}

// TestClosedCallAfterLeave: so does one on a communicator that the program closes meanwhile, though a third rank has not left.
func TestClosedCallAfterLeave(t *testing.T) {
	w := newWorld(t)
	c := unwatched(w.comms[0])
	c.session.peers = new(witness)
	require.True(t, c.Acquire())
	c.mu.Lock()
	c.session.goes(1)
	require.NoError(t, w.comms[0].Close())
	c.check()
	assert.NoError(t, c.err(), "it may soon return")
	c.stuck.since = c.stuck.since.Add(-2 * desertion)
	c.check()
	c.mu.Unlock()
	c.Release() // so the communicator may be closed
	var left *PeerError
	assert.ErrorAs(t, c.err(), &left)
}

// TestReleaseAfterCall: the end of a communicator has its own time, also right after a call that has waited for a rank.
func TestReleaseAfterCall(t *testing.T) {
	needsDouble(t)
	released(t) // those of other tests do not hang
	comms, err := Open(soon(t), open(t, 1)...)
	require.NoError(t, err)
	c := unwatched(comms[0])
	c.session.peers = new(deserter)
	c.mu.Lock() // as a call does
	c.session.goes(1)
	c.check()
	c.stuck.since = c.stuck.since.Add(-2 * desertion)
	c.mu.Unlock()
	tell(t, &told.HangsFinal, 1)
	waiting := told.get(&told.Waiting)
	require.NoError(t, comms.Close())
	require.Eventually(t, func() bool { return told.get(&told.Waiting) > waiting }, time.Minute, time.Millisecond)
	c.check()
	assert.NoError(t, c.err(), "it may soon return")
	c.session.fail(errors.New("enough")) // which ends it
	released(t)
}

// A follower stands for other processes that end in order when this one does.
type follower struct {
	witness
	left chan struct{}
}

func (f *follower) leave()                    { close(f.left) }
func (f *follower) deserted() <-chan struct{} { return f.left }

// TestReleaseTogether: the other processes learn that this one ends in order also if NCCL gets through with none of
// several communicators, as one of the processes is stopped. Else all would wait for all.
func TestReleaseTogether(t *testing.T) {
	needsDouble(t)
	released(t) // those of other tests do not hang
	comms, err := Open(soon(t), open(t, 1)...)
	require.NoError(t, err)
	peers := &follower{left: make(chan struct{})}
	comms[0].core.session.peers = peers
	parts, err := comms.Split(soon(t), 0)
	require.NoError(t, err)
	tell(t, &told.HangsDestroy, 1)
	require.NoError(t, errors.Join(comms.Close(), parts.Close()))
	select {
	case <-peers.left:
	case <-time.After(time.Minute):
		assert.Fail(t, "they have learned nothing")
	}
	told.HangsDestroy = 0
	require.NoError(t, errors.Join(comms.Shutdown(soon(t)), parts.Shutdown(soon(t))))
	released(t)
}

// TestSplitBesideCall: a split ends with its context also while it waits for another call on the communicator.
func TestSplitBesideCall(t *testing.T) {
	w := newWorld(t)
	c := w.comms[0].core
	c.mu.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	split := make(chan error)
	go func() { _, err := w.comms.Split(ctx, 0, 0); split <- err }()
	promptly(t, "the communicator", func() { <-c.life.Done() })
	c.mu.Unlock()
	assert.ErrorIs(t, <-split, context.DeadlineExceeded)
}

// TestGroupInCaptureInPart: a group with streams inside and outside of a capture is refused, and the communicator works
// on.
func TestGroupInCaptureInPart(t *testing.T) {
	w := newWorld(t)
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	w.warm(t, b)
	sum := func() error {
		return w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Sum) })
	}
	_, err := w.streams[0].CaptureWith(soon(t), safe.CaptureOptions{Mode: safe.CaptureRelaxed}, sum)
	assert.ErrorIs(t, err, safe.ErrCapturing)
	assert.ErrorContains(t, err, "1 of 2 streams of the group are in one: all must be, or none")
	require.NoError(t, sum())
	w.wait(t)
}

func TestShutdownEnds(t *testing.T) {
	for name, hangs := range map[string]*int32{"finalization": &told.HangsFinal, "destruction": &told.HangsDestroy} {
		t.Run(name, func(t *testing.T) {
			needsDouble(t)
			released(t)
			w := newWorld(t)
			tell(t, hangs, 1)
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, w.comms.Shutdown(ctx), context.DeadlineExceeded)
			promptly(t, "a second Shutdown", func() {
				err := w.comms.Shutdown(context.Background())
				assert.ErrorIs(t, err, ErrAborted)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
			*hangs = 0
			released(t)
		})
	}
}

// A deserter stands for other processes that have all ended in order.
type deserter struct{ witness }

func (*deserter) deserted() <-chan struct{} {
	over := make(chan struct{})
	close(over)
	return over
}

// TestReleaseAfterLeave: NCCL does not get through with the end of a communicator long after all other ranks have
// closed theirs, as one of their processes is stopped.
func TestReleaseAfterLeave(t *testing.T) {
	for name, hangs := range map[string]*int32{"finalization": &told.HangsFinal, "destruction": &told.HangsDestroy} {
		t.Run(name, func(t *testing.T) {
			needsDouble(t)
			released(t) // those of other tests do not hang
			tell(t, hangs, 1)
			comms, err := Open(soon(t), open(t, 1)...)
			require.NoError(t, err)
			c := unwatched(comms[0])
			c.session.peers = new(deserter)
			reported := make(chan error, 1)
			safe.OnError(func(err error) { reported <- err })
			defer safe.OnError(nil)
			waiting := told.get(&told.Waiting)
			require.NoError(t, comms.Close())
			require.Eventually(t, func() bool { return told.get(&told.Waiting) > waiting }, time.Minute, time.Millisecond)
			c.check()
			assert.NoError(t, c.err(), "it may soon return")
			c.stuck.since = c.stuck.since.Add(-2 * desertion)
			c.check()
			promptly(t, "the end", func() { err = comms.Shutdown(context.Background()) })
			assert.ErrorIs(t, err, ErrAborted)
			assert.ErrorIs(t, err, errDeserted)
			assert.ErrorIs(t, <-reported, ErrAborted)
			<-comms[0].Done()
			assert.Equal(t, hangs == &told.HangsFinal, c.idle(), "NCCL still destroys it, but was aborted in the finalization")
			*hangs = 0
			released(t)
			assert.Equal(t, waiting, told.get(&told.Waiting))
		})
	}
}

// TestGroupOnOlderDriver: before CUDA 13.0, a call on a stream needs the stream's context.
func TestGroupOnOlderDriver(t *testing.T) {
	if onOlderDriver(t, "12.4") {
		return
	}
	TestGroupInCaptureInPart(t)
}
