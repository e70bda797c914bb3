//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExternalEvents: an external record and an external wait are nodes of the graph. An
// event that launches of a graph record is none that a capture may wait for.
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

// TestEventOfEndedCapture: an event that stands for work of a capture that has ended is
// refused in another one, which goes on.
func TestEventOfEndedCapture(t *testing.T) {
	x := open(t, 0)
	s, e, b := stream(t, x), event(t, x), buffer[float32](t, x, 10)
	g, err := s.Capture(func() error { return s.Record(e) })
	require.NoError(t, err)
	closing(t, g)
	g, err = s.Capture(func() error {
		assert.ErrorIs(t, s.WaitEvent(e), safe.ErrCapturing)
		return b.FillAsync(s, 1)
	})
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, s.Record(e))
	require.NoError(t, e.Synchronize(), "it is an ordinary one again")
}
