//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures within captures that are invalidated, ended, dropped and closed in any order. Runs on any driver for
// CUDA 12.3 or newer.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaptureOrders has a capture, one into a body in it, and one into a body in that. It tries steps in all
// orders: nothing crashes or hangs, and what cannot be used any more says so.
func TestCaptureOrders(t *testing.T) {
	const file = "CUDABIND_TEST_ORDER"
	for _, some := range []struct {
		name  string
		first string // step, or "" for any
		steps []captureStep
		most  int
		long  bool // takes long
	}{
		{"all", "", captureSteps, 2, false},
		{"invalidations and ends", "", captureSteps[:6], 3, false},
		{"many invalidations and ends", "", captureSteps[:6], 5, true},
		{"first lost", "lose", captureSteps[:12], 3, true},
		{"first ended", "end", captureSteps[:12], 3, true},
		{"first forked", "fork", captureSteps[:12], 3, true},
		{"first dropped", "drop", captureSteps[:12], 3, true},
	} {
		if drivertest.InParent() && some.long && (testing.Short() || onGPU) {
			continue
		}
		t.Run(some.name, func(t *testing.T) {
			if drivertest.InParent() {
				t.Setenv(file, filepath.Join(drivertest.TempDir(t), "order")) // the present one, for when the process crashes
				t.Cleanup(func() {
					if order, err := os.ReadFile(os.Getenv(file)); t.Failed() {
						t.Logf("the latest order: %s %v", order, err)
					}
				})
			}
			inLost(t, func(t *testing.T) {
				orders(some.steps, some.most, func(order []captureStep) {
					if some.first != "" && (len(order) == 0 || order[0].what != some.first) {
						return
					}
					require.NoError(t, os.WriteFile(os.Getenv(file), []byte(fmt.Sprint(order)), 0o600))
					tryOrder(t, order)
					require.False(t, t.Failed(), "%v", order)
				})
			})
		})
	}
}

// orders calls f with all orders of up to n of the steps.
func orders(steps []captureStep, n int, f func([]captureStep)) {
	var grow func(order []captureStep)
	grow = func(order []captureStep) {
		f(order)
		if len(order) == n {
			return
		}
		for _, s := range steps {
			if !slices.Contains(order, s) {
				grow(append(slices.Clip(order), s))
			}
		}
	}
	grow(nil)
}

// A captureStep is what happens to one of the captures, of which 0 is the outermost.
type captureStep struct {
	what string
	of   int
}

func (s captureStep) String() string { return fmt.Sprintf("%s %d", s.what, s.of) }

var captureSteps = []captureStep{
	{"lose", 0}, {"lose", 1}, {"lose", 2}, {"end", 0}, {"end", 1}, {"end", 2},
	{"fork", 0}, {"fork", 1}, {"fork", 2}, {"drop", 0}, {"drop", 1}, {"drop", 2},
	{"close", 0}, {"close", 1}, {"close", 2}, {"cancel", 0}, {"close all", 0}, {"reset", 0},
}

// captureWorld is three captures, each into a body in the one before.
type captureWorld struct {
	x        *safe.Context
	y        *safe.Buffer[float32]
	streams  []*safe.Stream
	forks    []*safe.Stream
	captures []*safe.Capture
	graphs   []*safe.Graph
	cancel   func()

	lost, closed [3]bool // invalidated; the stream was closed
	vague        bool    // something else than an invalidation may have failed a capture
}

func tryOrder(t *testing.T, order []captureStep) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	timer := time.AfterFunc(hang, func() { panic(fmt.Sprintf("%v hangs", order)) })
	defer timer.Stop()
	over := make(chan struct{})
	go func() { // the thread of captures that cannot end goes with it
		defer close(over)
		w := newCaptureWorld(t, x)
		for _, s := range order {
			w.step(t, s)
		}
		w.finish(t)
	}()
	<-over
	require.NoError(t, errors.Join(x.CloseAll(), x.Close()))
}

func newCaptureWorld(t *testing.T, x *safe.Context) *captureWorld {
	w := &captureWorld{x: x}
	var err error
	w.y, err = safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	for i := range 3 {
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		fork, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		w.streams, w.forks = append(w.streams, s), append(w.forks, fork)
		var c *safe.Capture
		if i == 0 {
			c, err = s.BeginCaptureWith(ctx, safe.CaptureOptions{})
		} else {
			outer := w.streams[i-1]
			condition, err := outer.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
			require.NoError(t, err)
			body, err := outer.AddIf(condition)
			require.NoError(t, err)
			c, err = s.BeginCaptureTo(body, safe.CaptureToOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, err)
		require.NoError(t, w.y.FillAsync(s, float32(i)))
		w.captures = append(w.captures, c)
	}
	return w
}

func (w *captureWorld) step(t *testing.T, s captureStep) {
	i := s.of
	stream := w.streams[i]
	switch s.what {
	case "lose":
		if status, err := stream.CaptureStatus(); err != nil || status == 0 {
			return // closed, or not capturing any more
		}
		// The call wants its turn: a dropped capture may end on another goroutine meanwhile, also this one.
		err := stream.EnqueueRaw(func(raw driver.CUstream) error { return driver.CuStreamSynchronize(raw) })
		if w.captures[i] != nil {
			assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
			w.lost[i] = true
		}
	case "end":
		w.end(t, i)
	case "fork": // and do not join
		if w.captures[i] == nil {
			return
		}
		w.vague = true
		if w.forks[i].WaitStream(stream) == nil {
			_ = w.y.FillAsync(w.forks[i], 9)
		}
	case "drop":
		w.vague = w.vague || w.captures[i] != nil
		w.captures[i] = nil
		for range 3 { // it may have to wait for others
			if runtime.GC(); safe.ReaperIdle() {
				break
			}
			time.Sleep(200 * time.Microsecond)
		}
	case "close":
		w.closed[i] = true
		assert.NoError(t, stream.Close())
	case "cancel":
		w.cancel()
	case "close all":
		w.closed = [3]bool{true, true, true}
		assert.NoError(t, w.x.CloseAll())
	case "reset":
		assert.ErrorIs(t, w.x.Device().ResetPrimary(), safe.ErrInUse)
	}
}

func (w *captureWorld) end(t *testing.T, i int) {
	if w.captures[i] == nil {
		return
	}
	g, err := w.captures[i].End()
	if errors.Is(err, safe.ErrCapturing) {
		assert.ErrorContains(t, err, "body")
		return
	}
	lost := slices.Contains(w.lost[i:], true)
	switch {
	case lost && !slices.Contains(w.lost[i+1:], true):
		assert.Error(t, err)
	case lost:
		assert.ErrorIs(t, err, safe.ErrGraphLost)
	case !w.vague && !w.lost[0]:
		assert.NoError(t, err)
	}
	w.captures[i] = nil
	if i == 0 && err == nil {
		w.graphs = append(w.graphs, g)
	}
}

// finish ends what has not ended, and checks which streams can be used.
func (w *captureWorld) finish(t *testing.T) {
	for i := range slices.Backward(w.captures) {
		w.end(t, i)
	}
	w.cancel()
	b, err := safe.NewBuffer[float32](w.x, 10)
	if errors.Is(err, safe.ErrReset) {
		return
	}
	require.NoError(t, err)
	for i, s := range w.streams {
		err := b.FillAsync(s, 3)
		switch {
		case w.closed[i]:
			assert.ErrorIs(t, err, safe.ErrClosed)
		case w.vague: // a dropped capture may not have ended yet
			if err != nil && !errors.Is(err, safe.ErrGraphLost) {
				assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "stream %d", i)
			}
		case w.lost[i] && slices.Contains(w.lost[i+1:], true):
			assert.ErrorIs(t, err, safe.ErrGraphLost, "stream %d", i)
		default:
			assert.NoError(t, err, "stream %d", i)
		}
	}
	s, err := safe.NewStreamWith(w.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	(&lostWorld{x: w.x}).works(t, s)
	for _, g := range w.graphs {
		assert.NoError(t, g.Close())
	}
	assert.NoError(t, errors.Join(s.Close(), b.Close()))
}
