//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// A host function never waits for a lock of another goroutine, because launches that wait
// for room in a queue wait for the host function. A failure hangs the process, so each
// call runs in its own. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inFullQueue calls f in a host function of the stream while a launch of k waits for room
// after it.
func inFullQueue(t *testing.T, s *safe.Stream, k *safe.Kernel, f func() error) error {
	t.Helper()
	full, result := make(chan struct{}), make(chan error, 1)
	future, err := s.LaunchHostFunc(func() { <-full; result <- f() })
	require.NoError(t, err)
	over := fillQueue(t, s, k, queued)
	close(full)
	select {
	case err = <-result:
	case <-time.After(atOnce):
		panic("deadlock: " + t.Name() + " waits for a launch that waits for it")
	}
	<-over
	<-future.Done()
	return err
}

var callsOfHostFuncs = map[string]func(t *testing.T, x *safe.Context, s *safe.Stream) func() error{
	"CopyToHost": func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
		b := buffer[uint32](t, x, 16)
		require.NoError(t, errors.Join(b.CopyToHost(make([]uint32, 16)), b.FillAsync(s, 0), s.Synchronize()))
		return func() error { return b.CopyToHost(make([]uint32, 16)) }
	},
	"Pitched.CopyToHost": func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
		b, err := safe.NewPitched[uint32](x, safe.Extent{Width: 16, Height: 4})
		require.NoError(t, err)
		closing(t, b)
		require.NoError(t, errors.Join(b.CopyToHost(make([]uint32, 64)), b.FillAsync(s, 0), s.Synchronize()))
		return func() error { return b.CopyToHost(make([]uint32, 64)) }
	},
	"BeginCapture": func(_ *testing.T, _ *safe.Context, s *safe.Stream) func() error {
		return func() error {
			_, err := s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
			return err
		}
	},
	"Release": func(_ *testing.T, _ *safe.Context, s *safe.Stream) func() error {
		return func() error {
			if s.Release() == 0 { // Release returns no error
				return safe.ErrInCallback
			}
			return nil
		}
	},
	"AttachAsync": func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
		b := managed[uint32](t, x, 16)
		return func() error { return b.AttachAsync(s, driver.CU_MEM_ATTACH_GLOBAL) }
	},
	"WaitEvent, of a captured event": func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
		other, e := stream(t, x), event(t, x)
		c, err := other.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
		require.NoError(t, err)
		t.Cleanup(func() {
			g, err := c.End()
			assert.NoError(t, err)
			assert.NoError(t, g.Close())
		})
		require.NoError(t, other.Record(e))
		return func() error { return s.WaitEvent(e) }
	},
	"Launch": func(t *testing.T, x *safe.Context, s *safe.Stream) func() error {
		k := kernel(t, x, "nothing")
		return func() error { return k.Launch(s, one) }
	},
	"NewBufferAsync": func(_ *testing.T, _ *safe.Context, s *safe.Stream) func() error {
		return func() error { _, err := safe.NewBufferAsync[byte](s, 1); return err }
	},
	"Query": func(_ *testing.T, _ *safe.Context, s *safe.Stream) func() error {
		return func() error { _, err := s.Query(); return err }
	},
	"Capture": func(_ *testing.T, _ *safe.Context, s *safe.Stream) func() error {
		return func() error { _, err := s.Capture(func() error { return nil }); return err }
	},
	"Context.Synchronize": func(_ *testing.T, x *safe.Context, _ *safe.Stream) func() error { return x.Synchronize },
}

// TestHostFuncDoesNotWait: calls in a host function return an error at once, even
// while a launch that waits for room holds the stream.
func TestHostFuncDoesNotWait(t *testing.T) {
	for name, make := range callsOfHostFuncs {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				s, k := stream(t, x), kernel(t, x, "nothing")
				require.NoError(t, k.Launch(s, one))
				call := make(t, x, s)
				assert.ErrorIs(t, inFullQueue(t, s, k, call), safe.ErrInCallback)
			})
		})
	}
}

// TestHostFuncMayClose: objects closed in a host function are destroyed later.
func TestHostFuncMayClose(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, k := stream(t, x), kernel(t, x, "nothing")
		require.NoError(t, k.Launch(s, one))
		b, err := safe.NewBuffer[uint32](x, 16)
		require.NoError(t, err)
		require.NoError(t, b.FillAsync(s, 0))
		lent, err := s.Borrow()
		require.NoError(t, err)
		e, err := safe.NewEvent(x)
		require.NoError(t, err)
		require.NoError(t, s.Record(e))
		assert.NoError(t, inFullQueue(t, s, k, func() error {
			return errors.Join(b.Close(), lent.Close(), e.Close(), s.Close())
		}))
		noViolation(t)
	})
}
