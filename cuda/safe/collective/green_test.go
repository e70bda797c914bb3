//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGreenContext adds values of all ranks on streams of green contexts.
func TestGreenContext(t *testing.T) {
	w := newWorld(t)
	for i, x := range w.contexts {
		parts, _, err := x.Device().Split(safe.SplitOptions{Groups: 1, Min: 64})
		if errors.Is(err, safe.ErrNotSupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		g, err := safe.NewGreenContext(x, parts...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, g.Close()) })
		s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		w.streams[i] = s
	}
	b := filled(t, w, 100, func(rank, i int) float32 { return float32(rank + i) })
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Max) }))
	w.wait(t)
	for _, b := range b {
		assert.EqualValues(t, 99+len(w.comms)-1, contents(t, b)[99])
	}
}
