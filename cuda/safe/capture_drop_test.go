//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures that are dropped, or that end in the wrong order. Runs on any driver.

package safe_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaptureDropped: the garbage collector ends a capture whose token was dropped, whether
// its goroutine goes on or has ended, and reports the leak.
func TestCaptureDropped(t *testing.T) {
	for _, mode := range []safe.CaptureMode{safe.CaptureThreadLocal, safe.CaptureGlobal, safe.CaptureRelaxed} {
		for _, into := range []bool{false, true} {
			name := fmt.Sprint(mode)
			if into {
				name += ", into a graph"
			}
			t.Run(name, func(t *testing.T) { dropsCapture(t, mode, into) })
		}
	}
}

func dropsCapture(t *testing.T, mode safe.CaptureMode, into bool) {
	if into {
		needs(t, "cuStreamBeginCaptureToGraph")
	}
	x := open(t, 0)
	s, y, g := stream(t, x), buffer[float32](t, x, 10), newGraph(t, x)
	reported := collectErrors(t)
	safe.TrackLeaks(true)
	defer safe.TrackLeaks(false)
	begun, end := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		if into {
			_, err = s.BeginCaptureTo(g, safe.CaptureToOptions{Mode: mode})
		} else {
			_, err = s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: mode})
		}
		assert.NoError(t, err)
		assert.NoError(t, y.FillAsync(s, 0))
		close(begun)
		<-end
	}()
	<-begun
	if into { // the goroutine ends too, and its thread with it
		close(end)
		<-ended
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		status, err := s.CaptureStatus()
		return err == nil && status == driver.CU_STREAM_CAPTURE_STATUS_NONE
	}, hang, time.Millisecond, "nothing ends the capture")
	require.NoError(t, s.Synchronize(), "the stream works again")
	require.NoError(t, x.Synchronize(), "so does the context")
	_, err := g.Nodes()
	if into && mode != safe.CaptureRelaxed {
		assert.ErrorIs(t, err, safe.ErrGraphLost)
	} else {
		assert.NoError(t, err)
	}
	settle(t)
	var leak *safe.LeakError
	for _, err := range reported() {
		require.ErrorAs(t, err, &leak, "nothing else")
		assert.Equal(t, "Capture", leak.Kind)
		assert.Contains(t, leak.Stack, "dropsCapture")
	}
	require.NotNil(t, leak)
	if !into {
		close(end)
		<-ended
	}
}
