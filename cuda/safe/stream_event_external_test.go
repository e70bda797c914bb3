//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// External event nodes, and events recorded in captures that have ended. Runs on any
// driver.

package safe_test

import (
	"testing"

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
