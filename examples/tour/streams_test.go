//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// elapsed returns how long the device takes for work that is enqueued on a stream.
// The events need timing, which is the default.
func elapsed(s *safe.Stream, start, end *safe.Event, work func() error) (time.Duration, error) {
	if err := s.Record(start); err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	if err := s.Record(end); err != nil {
		return 0, err
	}
	if err := end.Synchronize(); err != nil {
		return 0, err
	}
	return end.Since(start)
}

func TestStreams(t *testing.T) {
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)

	t.Run("timing", func(t *testing.T) {
		var events [2]*safe.Event
		for i := range events {
			e, err := safe.NewEvent(x, safe.EventOptions{})
			require.NoError(t, err)
			closing(t, e)
			events[i] = e
		}
		took, err := elapsed(s, events[0], events[1], func() error { return b.FillAsync(s, 1) })
		require.NoError(t, err)
		assert.GreaterOrEqual(t, took, time.Duration(0))
		assert.Less(t, took, time.Minute)
		assert.EqualValues(t, 1, values(t, b)[0])
	})
}
