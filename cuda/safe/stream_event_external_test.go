//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// External event nodes, and events recorded in captures that have ended. Runs on any
// driver.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExternalEvents: external records and waits are nodes of the graph. A capture cannot
// wait for an event that launches of a graph record.
func TestExternalEvents(t *testing.T) {
	x := open(t, 0)
	s, e, b := stream(t, x), event(t, x), buffer[float32](t, x, 10)
	g, err := s.Capture(func() error {
		require.NoError(t, b.FillAsync(s, 1))
		require.NoError(t, s.RecordExternal(e))
		assert.ErrorIs(t, s.WaitEvent(e), safe.ErrCapturing)
		return s.WaitEventExternal(e)
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 3)
	require.NoError(t, executable(t, g).Launch(s))
	require.NoError(t, e.Synchronize())
	require.NoError(t, s.Synchronize())
}

// TestExternalEventsAreKept: an event of an external node is destroyed after its graph.
func TestExternalEventsAreKept(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	for name, add := range map[string]func(e *safe.Event) error{"record": s.RecordExternal, "wait": s.WaitEventExternal} {
		t.Run(name, func(t *testing.T) {
			e := event(t, x)
			g, err := s.Capture(func() error { return add(e) })
			require.NoError(t, err)
			alive := simulated.Live("event")
			require.NoError(t, e.Close())
			assert.Equal(t, alive, simulated.Live("event"))
			require.NoError(t, g.Close())
			assert.Eventually(t, func() bool { return simulated.Live("event") == alive-1 }, atOnce, time.Millisecond)
		})
	}
}

// TestRecordFails: a record that fails takes no room in the stream's queue.
func TestRecordFails(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s, captured := stream(t, x), event(t, x)
	g, err := s.Capture(func() error { return s.Record(captured) })
	require.NoError(t, errors.Join(err, g.Close()))
	for name, e := range map[string]*safe.Event{"at once": event(t, x), "after a capture": captured} {
		t.Run(name, func(t *testing.T) {
			before := safe.Pending(s)
			simulated.Fail("cuEventRecord", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
			assert.ErrorIs(t, s.Record(e), driver.CUDA_ERROR_UNKNOWN)
			simulated.Reset()
			assert.Equal(t, before, safe.Pending(s))
		})
	}
}

// TestRecordAfterWait: a capture records an event for which no wait is under way.
func TestRecordAfterWait(t *testing.T) {
	x := open(t, 0)
	s, e := stream(t, x), event(t, x)
	require.NoError(t, errors.Join(s.Record(e), s.Synchronize(), e.Synchronize()))
	g, err := s.Capture(func() error { return s.Record(e) })
	require.NoError(t, errors.Join(err, g.Close()))
}

// TestJoinFails: a stream that cannot join a capture is as before.
func TestJoinFails(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s, other, e := stream(t, x), stream(t, x), event(t, x)
	g, err := s.Capture(func() error {
		require.NoError(t, s.Record(e))
		simulated.Fail("cuStreamWaitEvent", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
		assert.ErrorIs(t, other.WaitEvent(e), driver.CUDA_ERROR_UNKNOWN)
		simulated.Reset()
		return other.Synchronize()
	})
	require.NoError(t, errors.Join(err, g.Close(), x.Synchronize()))
}

// TestEventOfEndedCapture: an event that was recorded in an ended capture cannot be used
// in another capture, which stays valid.
func TestEventOfEndedCapture(t *testing.T) {
	x := open(t, 0)
	s, e, b := stream(t, x), event(t, x), buffer[float32](t, x, 10)
	g, err := s.Capture(func() error { return s.Record(e) })
	require.NoError(t, err)
	closing(t, g)
	g, err = s.Capture(func() error {
		assert.ErrorIs(t, s.WaitEvent(e), safe.ErrInvalidArgument)
		return b.FillAsync(s, 1)
	})
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, s.Record(e))
	require.NoError(t, e.Synchronize(), "it is an ordinary one again")
}
