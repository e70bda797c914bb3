//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillTime returns how long the device takes to fill a buffer.
func fillTime(ctx context.Context, s *safe.Stream, b *safe.Buffer[float32]) (time.Duration, error) {
	return s.Time(ctx, func() error { return b.FillAsync(s, 1) })
}

// sideBySide fills two buffers at the same time. Later work of s waits for both.
func sideBySide(s *safe.Stream, a, b *safe.Buffer[float32]) error {
	return s.Fork(2, func(branches []*safe.Stream) error {
		if err := a.FillAsync(branches[0], 1); err != nil {
			return err
		}
		return b.FillAsync(branches[1], 2)
	})
}

// newStep returns a batch that doubles the values in host.
func newStep(x *safe.Context, add *safe.Kernel, host *safe.Pinned[float32], device *safe.Buffer[float32]) (*safe.Batch, error) {
	b, err := safe.NewBatch(x)
	if err != nil {
		return nil, err
	}
	n := device.Len()
	return b, errors.Join(
		safe.BatchCopy(b, device, host),
		b.Launch(add, safe.Threads(n), device.Arg(), device.Arg(), device.Arg(), safe.Val(uint32(n))),
		safe.BatchCopy(b, host, device),
	)
}

func TestStreams(t *testing.T) {
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)

	t.Run("timing", func(t *testing.T) {
		took, err := fillTime(context.Background(), s, b)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, took, time.Duration(0))
		assert.Less(t, took, time.Minute)
		assert.EqualValues(t, 1, values(t, b)[0])
	})
	t.Run("batch", func(t *testing.T) {
		host := newHostBuffer(t, x, b.Len())
		step, err := newStep(x, kernel(t, x, "add"), host, b)
		require.NoError(t, err)
		host.Data()[999] = 1
		for range 10 {
			require.NoError(t, step.Submit(s))
		}
		require.NoError(t, s.Synchronize())
		assert.EqualValues(t, 1024, host.Data()[999])
	})
	t.Run("fork", func(t *testing.T) {
		c := newBuffer(t, x, 10)
		require.NoError(t, sideBySide(s, b, c))
		assert.EqualValues(t, 1, values(t, b)[999])
		assert.EqualValues(t, 2, values(t, c)[9])
	})
}
