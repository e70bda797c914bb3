//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What the mode of a capture means for other calls. Runs on any driver.

package safe_test

import (
	"fmt"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaptureModeReachesCUDA: each mode rejects raw calls where it says so, and no others.
func TestCaptureModeReachesCUDA(t *testing.T) {
	for _, row := range []struct {
		mode    safe.CaptureMode
		rejects bool // on other threads
	}{{safe.CaptureThreadLocal, false}, {safe.CaptureGlobal, true}, {safe.CaptureRelaxed, false}} {
		t.Run(fmt.Sprint("mode ", row.mode), func(t *testing.T) {
			x := open(t, 0)
			s, other := stream(t, x), stream(t, x)
			_, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: row.mode}, func() error {
				raw := make(chan error)
				go func() {
					raw <- safe.WithCaptureMode(safe.CaptureGlobal, func() error {
						return x.WithCurrent(func() error { return driver.CuStreamQuery(other.Raw()) })
					})
				}()
				if err := <-raw; row.rejects {
					assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
				} else {
					assert.NoError(t, err)
				}
				return nil
			})
			if row.rejects {
				assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

// TestGlobalCaptureBesideOtherContexts: calls that wait for a whole context, and functions of
// WithoutCaptures, return ErrCapturing also in other contexts, but only during a capture of mode GLOBAL.
func TestGlobalCaptureBesideOtherContexts(t *testing.T) {
	x := open(t, 0)
	other, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	closing(t, other)
	s := stream(t, x)
	called := 0
	f := func() error { called++; return nil }
	for _, row := range []struct {
		mode safe.CaptureMode
		want error
	}{{safe.CaptureThreadLocal, nil}, {safe.CaptureGlobal, safe.ErrCapturing}, {safe.CaptureRelaxed, nil}} {
		t.Run(fmt.Sprint("mode ", row.mode), func(t *testing.T) {
			called = 0
			g, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: row.mode}, func() error {
				if row.want == nil {
					assert.NoError(t, other.Synchronize())
					assert.NoError(t, other.WithoutCaptures(f))
					assert.Equal(t, 1, called)
					return nil
				}
				assert.ErrorIs(t, other.Synchronize(), row.want)
				assert.ErrorIs(t, other.WithoutCaptures(f), row.want)
				assert.Zero(t, called)
				return nil
			})
			require.NoError(t, err)
			closing(t, g)
			require.NoError(t, other.Synchronize(), "after the capture")
		})
	}
}
