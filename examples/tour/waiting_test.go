//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read waits for a stream until ctx ends, and then reads a buffer.
func read(ctx context.Context, s *safe.Stream, b *safe.Buffer[float32]) ([]float32, error) {
	if err := s.Wait(ctx); err != nil {
		return nil, err // if ctx ended, the work goes on and b may still change
	}
	values := make([]float32, b.Len())
	return values, b.CopyToHost(values)
}

// either waits until one of two streams is done.
func either(ctx context.Context, a, b *safe.Stream) (*safe.Stream, error) {
	doneA, doneB := a.Completion(), b.Completion()
	select {
	case <-doneA.Done():
		return a, doneA.Err()
	case <-doneB.Done():
		return b, doneB.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx) // the work of both goes on
	}
}

// download starts a copy to the host. The future yields the values when the copy is
// done.
func download(s *safe.Stream, from *safe.Buffer[float32], to *safe.Pinned[float32]) *safe.Future[[]float32] {
	return safe.Enqueue(s, func(s *safe.Stream) ([]float32, error) {
		return to.Data(), from.CopyToHostAsync(s, to)
	})
}

// handOver sends the result of a stream to a channel. The channel is buffered, so
// that the driver's thread does not block.
func handOver(s *safe.Stream, host *safe.Pinned[float32]) (<-chan []float32, error) {
	results := make(chan []float32, 1)
	_, err := s.LaunchHostFunc(func() { results <- host.Data() })
	return results, err
}

// outcome explains the error of a wait.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "timed out: the work goes on"
	case errors.Is(err, safe.ErrCapturing):
		return "the stream is capturing: nothing runs"
	case safe.IsFatal(err):
		return "CUDA is lost: end the process"
	}
	return "the call failed"
}

func TestWaiting(t *testing.T) {
	const n = 1000
	background := context.Background()
	x := open(t)
	s, other := newStream(t, x), newStream(t, x)
	add := kernel(t, x, "add")
	a, b, c, host := newBuffer(t, x, n), newBuffer(t, x, n), newBuffer(t, x, n), newHostBuffer(t, x, n)
	gates := []*gate{newGate(t, x), newGate(t, x)}
	require.NoError(t, a.Fill(1))
	require.NoError(t, b.Fill(2))
	launch := func() {
		require.NoError(t, add.Launch(s, safe.Threads(n), a.Arg(), b.Arg(), c.Arg(), safe.Val(uint32(n))))
	}

	t.Run("a wait", func(t *testing.T) {
		launch()
		sum, err := read(background, s, c)
		require.NoError(t, err)
		assert.EqualValues(t, 3, sum[n-1])
	})
	t.Run("a wait that is given up", func(t *testing.T) {
		gates[0].shut(t, s)
		ctx, cancel := context.WithTimeout(background, time.Millisecond)
		defer cancel()
		launch()
		_, err := read(ctx, s, c)
		assert.EqualError(t, err, "cuda: Stream.Wait: context deadline exceeded")
		assert.Equal(t, "timed out: the work goes on", outcome(err))
		gates[0].open()
		assert.EqualValues(t, 3, values(t, c)[n-1], "after the kernel")
	})
	t.Run("the first result", func(t *testing.T) {
		ready := newEvent(t, x)
		require.NoError(t, a.FillAsync(s, 1))
		require.NoError(t, s.Record(ready))
		gates[0].shut(t, s)
		require.NoError(t, ready.Wait(background), "while the second goes on")
	})
	t.Run("the first of two", func(t *testing.T) {
		gates[0].shut(t, s)
		first, err := either(background, s, other)
		require.NoError(t, err)
		assert.Equal(t, other, first)
		gates[1].shut(t, other)
		ctx, cancel := context.WithCancel(background)
		cancel()
		_, err = either(ctx, s, other)
		assert.Equal(t, "timed out: the work goes on", outcome(err))
	})
	t.Run("a future", func(t *testing.T) {
		require.NoError(t, c.Fill(5))
		got, err := download(s, c, host).Wait(background)
		require.NoError(t, err)
		assert.EqualValues(t, 5, got[n-1])
	})
	t.Run("a host function", func(t *testing.T) {
		require.NoError(t, c.Fill(6))
		require.NoError(t, c.CopyToHostAsync(s, host))
		results, err := handOver(s, host)
		require.NoError(t, err)
		assert.EqualValues(t, 6, (<-results)[n-1])
	})
	t.Run("in a callback", func(t *testing.T) {
		said := make(chan error, 1)
		require.NoError(t, s.AddCallback(func(error) { said <- c.FillAsync(s, 0) }))
		err := <-said
		assert.ErrorIs(t, err, safe.ErrInCallback)
		assert.EqualError(t, err, "cuda: Buffer.FillAsync: not allowed in a host function, a callback or a function that makes raw calls")
		require.NoError(t, s.Synchronize())
	})
	t.Run("a capture", func(t *testing.T) {
		g, err := s.Capture(func() error {
			err := s.Wait(background)
			assert.EqualError(t, err, "cuda: Stream.Wait: a stream is capturing, and this call would invalidate the capture")
			assert.Equal(t, "the stream is capturing: nothing runs", outcome(err))
			return c.FillAsync(s, 0)
		})
		require.NoError(t, err)
		require.NoError(t, g.Close())
	})
	t.Run("shutdown", func(t *testing.T) {
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		require.NoError(t, s.Shutdown(background))
		err = s.Wait(background)
		assert.EqualError(t, err, "cuda: Stream.Wait: already closed, or never opened")
		assert.Equal(t, "the call failed", outcome(err))
	})
	assert.Equal(t, "done", outcome(nil))
}

// TestWaitingDead: the waits of a process that has lost CUDA end.
func TestWaitingDead(t *testing.T) {
	needsSimulated(t)
	defer control.Reset()
	x := open(t)
	s := newStream(t, x)
	control.Hold(true)
	require.NoError(t, newBuffer(t, x, 1).FillAsync(s, 0))
	done := s.Completion()
	control.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
	<-done.Done()
	assert.EqualError(t, done.Err(), "cuda: Stream.Completion: CUDA_ERROR_ILLEGAL_ADDRESS: a kernel accessed an invalid memory address (caused by earlier work)")
	assert.Equal(t, "CUDA is lost: end the process", outcome(done.Err()))
	control.Reset()
}
