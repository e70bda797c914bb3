//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures into bodies of conditional nodes of a graph that is itself captured. Runs on any
// driver for CUDA 12.3 or newer.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaptureEndsWithBody: a capture does not end before those into its bodies.
func TestCaptureEndsWithBody(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	s, side, y := stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	begins := func() (*safe.Graph, *safe.Capture) {
		c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
		require.NoError(t, err)
		body, err := s.AddIf(c)
		require.NoError(t, err)
		inner, err := side.BeginCaptureTo(body, safe.CaptureToOptions{})
		require.NoError(t, err)
		return body, inner
	}
	t.Run("End", func(t *testing.T) {
		outer, err := s.BeginCapture()
		require.NoError(t, err)
		_, inner := begins()
		_, err = outer.End()
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "body")
		require.NoError(t, y.FillAsync(side, 6))
		_, err = inner.End()
		require.NoError(t, err)
		g, err := outer.End()
		require.NoError(t, err)
		closing(t, g)
		launch(t, executable(t, g), s)
		assert.EqualValues(t, 6, read(t, y))
	})
	t.Run("Capture", func(t *testing.T) {
		var inner *safe.Capture
		_, err := s.Capture(func() error {
			_, inner = begins()
			return nil
		})
		assert.ErrorIs(t, err, safe.ErrCapturing)
		_, err = inner.End()
		assert.ErrorIs(t, err, safe.ErrClosed, "Capture has ended it")
	})
	t.Run("Capture waits for another goroutine", func(t *testing.T) {
		var body *safe.Graph
		begun, over := make(chan struct{}), make(chan error, 1)
		_, err := s.Capture(func() error {
			c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
			require.NoError(t, err)
			body, err = s.AddIf(c)
			require.NoError(t, err)
			go func() {
				inner, err := side.BeginCaptureTo(body, safe.CaptureToOptions{})
				if err != nil {
					over <- err
					close(begun)
					return
				}
				finds := safe.LockCapture(inner)
				close(begun)
				ends := func() bool { return safe.Locked(s) }
				assert.Eventually(t, ends, hang, time.Millisecond, "Capture ends")
				finds()
				assert.Eventually(t, func() bool { return !ends() }, hang, time.Millisecond, "it finds the inner capture")
				_, err = inner.End()
				over <- err
			}()
			<-begun
			return nil
		})
		assert.ErrorIs(t, err, safe.ErrCapturing)
		require.NoError(t, <-over)
		_, err = body.Nodes()
		assert.ErrorIs(t, err, safe.ErrClosed, "Capture returned no graph")
	})
	require.NoError(t, errors.Join(s.Synchronize(), side.Synchronize()))
}
