//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"context"
	"errors"
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

// TestCallAfterLeave: a call that is in NCCL long after another rank has left ends with that rank's error.
func TestCallAfterLeave(t *testing.T) {
	w := newWorld(t)
	c := w.comms[0].core
	unwatch(c)
	time.Sleep(3 * watchInterval) // until watchAll has forgotten it
	c.mu.Lock()
	c.session.goes(1)
	c.check()
	assert.NoError(t, c.err(), "it may soon return")
	c.stuck = c.stuck.Add(-2 * desertion)
	c.check()
	c.mu.Unlock()
	var left *PeerError
	assert.ErrorAs(t, c.err(), &left)
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
