//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures that fail, and calls that a capturing stream rejects. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaptureErrors provokes each way in which a capture can fail.
func TestCaptureErrors(t *testing.T) {
	x := open(t, 0)
	s, side, y := stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	e, fork := event(t, x), event(t, x)
	mine := errors.New("mine")
	for _, test := range []struct {
		name string
		f    func(t *testing.T) error
		is   error
	}{
		{"f's error", func(*testing.T) error { return mine }, mine},
		{"unjoined", func(t *testing.T) error {
			require.NoError(t, errors.Join(y.FillAsync(s, 0), s.Record(fork), side.WaitEvent(fork)))
			return y.FillAsync(side, 1)
		}, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED},
		{"isolation", func(t *testing.T) error {
			require.NoError(t, y.FillAsync(side, 1))
			require.NoError(t, side.Record(e))
			err := s.WaitEvent(e)
			assert.NoError(t, y.FillAsync(s, 0), "the capture goes on")
			return err
		}, safe.ErrCapturing},
		{"invalidated by a raw call", func(t *testing.T) error {
			err := x.WithCurrent(func() error { return driver.CuStreamQuery(s.Raw()) })
			assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
			assert.Error(t, y.FillAsync(s, 0))
			return nil
		}, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
		{"captures already", func(t *testing.T) error {
			_, err := s.Capture(func() error { return nil })
			assert.ErrorIs(t, err, safe.ErrCapturing)
			return err
		}, safe.ErrCapturing},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, err := s.Capture(func() error { return test.f(t) })
			assert.ErrorIs(t, err, test.is)
			assert.Nil(t, g)
			require.NoError(t, s.Synchronize(), "it captures no more")
			require.NoError(t, side.Synchronize(), "nor does this one")
		})
	}
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	_, err = legacy.Capture(func() error { return nil })
	assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

// TestCaptureMix: captures that meet, and captures ended by the wrong goroutine.
func TestCaptureMix(t *testing.T) {
	x := open(t, 0)
	s, side, y, fork := stream(t, x), stream(t, x), buffer[float32](t, x, 10), event(t, x)
	t.Run("merge", func(t *testing.T) {
		c, err := side.BeginCapture()
		require.NoError(t, err)
		require.NoError(t, errors.Join(y.FillAsync(side, 0), side.Record(fork)))
		g, err := s.Capture(func() error {
			assert.ErrorIs(t, s.WaitEvent(fork), safe.ErrCapturing, "CUDA would lose both captures")
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, g.Close())
		g, err = c.End()
		require.NoError(t, err)
		require.NoError(t, g.Close())
	})
	t.Run("unmatched", func(t *testing.T) {
		_, err := s.Capture(func() error {
			require.NoError(t, errors.Join(y.FillAsync(s, 0), s.Record(fork), side.WaitEvent(fork)))
			err := x.WithCurrent(func() error {
				var graph driver.CUgraph
				return driver.CuStreamEndCapture(side.Raw(), &graph)
			})
			assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
			return nil
		})
		assert.Error(t, err)
		require.NoError(t, side.Synchronize())
	})
}

// programmatic is data of an edge that drivers before CUDA 12.3 do not know.
var programmatic = []driver.CUgraphEdgeData{{From_port: 1, Type: uint8(driver.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)}}

// afterPart makes later work of a capture, whose stream s is, depend on a part of a kernel alone.
func afterPart(t *testing.T, s *safe.Stream, k *safe.Kernel) error {
	t.Helper()
	require.NoError(t, k.Launch(s, one))
	info, err := s.CaptureInfo()
	require.NoError(t, err)
	return s.UpdateCaptureDependencies(info.Dependencies, programmatic, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
}

// TestCaptureEdgeDataRefused: a driver that knows no data of edges does not lose it.
func TestCaptureEdgeDataRefused(t *testing.T) {
	if driver.Find("cuStreamUpdateCaptureDependencies_v2") == nil {
		t.Skip("the driver knows it")
	}
	x := open(t, 0)
	s, nothing := stream(t, x), kernel(t, x, "nothing")
	g, err := s.Capture(func() error {
		assert.ErrorIs(t, afterPart(t, s, nothing), safe.ErrNotSupported)
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
}

func TestCaptureLossyQuery(t *testing.T) {
	needs(t, "cuStreamGetCaptureInfo_v3")
	x := open(t, 0)
	s, nothing := stream(t, x), kernel(t, x, "nothing")
	g, err := s.Capture(func() error {
		require.NoError(t, afterPart(t, s, nothing))
		err := x.WithCurrent(func() error {
			var status driver.CUstreamCaptureStatus
			var n uint64
			var nodes *driver.CUgraphNode
			return driver.CuStreamGetCaptureInfo_v2(s.Raw(), &status, nil, nil, &nodes, &n)
		})
		assert.ErrorIs(t, err, driver.CUDA_ERROR_LOSSY_QUERY)
		info, err := s.CaptureInfo()
		require.NoError(t, err)
		assert.Equal(t, programmatic, info.Data)
		return s.UpdateCaptureDependencies(info.Dependencies, nil, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
}

// TestCaptureEnds: a capture ends however its function does.
func TestCaptureEnds(t *testing.T) {
	s := stream(t, open(t, 0))
	t.Run("panic", func(t *testing.T) {
		assert.PanicsWithValue(t, 1, func() { s.Capture(func() error { panic(1) }) })
		require.NoError(t, s.Synchronize())
	})
	t.Run("Goexit", func(t *testing.T) {
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.Capture(func() error { runtime.Goexit(); return nil })
		}()
		<-over
		require.NoError(t, s.Synchronize())
	})
}

// TestCaptureRefuses: calls that a capturing stream cannot make return an error, and the
// capture stays valid.
func TestCaptureRefuses(t *testing.T) {
	x := open(t, 0)
	s, y, captured, own := stream(t, x), buffer[float32](t, x, 10), event(t, x), pool(t, x, safe.PoolOptions{})
	g := adding(t, s, kernel(t, x, "saxpy"), ones(t, x, 10), y)
	e := executable(t, g)
	made, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureGlobal}, func() error {
		require.NoError(t, y.FillAsync(s, 0))
		require.NoError(t, s.Record(captured))
		for name, call := range map[string]func() error{
			"query":       func() error { _, err := s.Query(); return err },
			"wait":        s.Synchronize,
			"blocking":    s.SynchronizeBlocking,
			"id":          func() error { _, err := s.ID(); return err },
			"callback":    func() error { return s.AddCallback(func(error) {}) },
			"scope":       func() error { return s.Scope(func(*safe.Scope) error { return nil }) },
			"completion":  func() error { return s.Completion().Err() },
			"launch":      func() error { return e.Launch(s) },
			"upload":      func() error { return e.Upload(s) },
			"synchronize": x.Synchronize,
			"event":       func() error { _, err := captured.Query(); return err },
			"event wait":  captured.Synchronize,
			"buffer":      func() error { return y.Fill(0) },
			"async":       func() error { _, err := safe.NewBufferFrom[int](own, s, 1); return err },
		} {
			assert.ErrorIs(t, call(), safe.ErrCapturing, name)
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, made.Close())
}

func TestCaptureThreads(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	onOther := func(f func()) {
		over := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			defer close(over)
			f()
		}()
		<-over
	}
	c, err := s.BeginCapture()
	require.NoError(t, err)
	onOther(func() {
		_, err := c.End()
		assert.ErrorIs(t, err, safe.ErrWrongThread)
	})
	require.NoError(t, y.FillAsync(s, 0))
	g, err := c.End()
	require.NoError(t, err, "the capture went on")
	require.NoError(t, g.Close())
	_, err = c.End()
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = (*safe.Capture)(nil).End()
	assert.ErrorIs(t, err, safe.ErrClosed)

	c, err = s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	onOther(func() {
		g, err := c.End()
		assert.NoError(t, err)
		assert.NoError(t, g.Close())
	})
	require.NoError(t, s.Synchronize())
}

// staysOnThread tells whether the calling goroutine is locked to its thread.
func staysOnThread() bool {
	stack := make([]byte, 1<<10)
	header, _, _ := strings.Cut(string(stack[:runtime.Stack(stack, false)]), "\n")
	return strings.Contains(header, "locked to thread")
}

// TestCaptureStaysOnThread: the goroutine stays on its thread during a capture, unless that is relaxed, but not
// afterwards, nor if the capture does not begin.
func TestCaptureStaysOnThread(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			c, err := s.BeginCaptureWith(t.Context(), safe.CaptureOptions{Mode: m.own})
			require.NoError(t, err)
			assert.Equal(t, m.own != safe.CaptureRelaxed, staysOnThread())
			refused := make(chan bool)
			go func() {
				_, err := s.BeginCaptureWith(t.Context(), safe.CaptureOptions{Mode: m.own})
				assert.ErrorIs(t, err, safe.ErrCapturing)
				refused <- staysOnThread()
			}()
			assert.False(t, <-refused, "it captures already")
			require.NoError(t, end(c))
			assert.False(t, staysOnThread(), "it is over")
		})
	}
}

func TestWithCaptureMode(t *testing.T) {
	x := open(t, 0)
	mode := func() (m driver.CUstreamCaptureMode) {
		m = driver.CU_STREAM_CAPTURE_MODE_GLOBAL
		require.NoError(t, driver.CuThreadExchangeStreamCaptureMode(&m))
		was := m
		require.NoError(t, driver.CuThreadExchangeStreamCaptureMode(&m))
		return was
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine := errors.New("mine")
	assert.Equal(t, mine, safe.WithCaptureMode(safe.CaptureRelaxed, func() error {
		assert.Equal(t, driver.CU_STREAM_CAPTURE_MODE_RELAXED, mode())
		require.NoError(t, stream(t, x).Synchronize())
		assert.Equal(t, driver.CU_STREAM_CAPTURE_MODE_RELAXED, mode())
		return mine
	}))
	assert.Panics(t, func() {
		safe.WithCaptureMode(safe.CaptureRelaxed, func() error { panic(1) })
	})
	assert.Equal(t, driver.CU_STREAM_CAPTURE_MODE_GLOBAL, mode())
}

// TestCaptureWaitsForStale: a wait for an event that was last recorded in a capture which has
// ended is refused before CUDA invalidates the capture for it.
func TestCaptureWaitsForStale(t *testing.T) {
	x := open(t, 0)
	s, other, e := stream(t, x), stream(t, x), event(t, x)
	before, err := other.Capture(func() error { return other.Record(e) })
	require.NoError(t, err)
	closing(t, before)
	for name, wait := range map[string]func(*safe.Event) error{"WaitEvent": s.WaitEvent, "WaitEventExternal": s.WaitEventExternal} {
		t.Run(name, func(t *testing.T) {
			g, err := s.Capture(func() error {
				require.Error(t, wait(e))
				return s.RecordExternal(e)
			})
			require.NoError(t, err)
			closing(t, g)
		})
	}
	g, err := s.Capture(func() error { return s.WaitEventExternal(e) })
	assert.ErrorIs(t, err, safe.ErrInvalidArgument, "RecordExternal records nothing until a launch")
	assert.NoError(t, g.Close())
	require.NoError(t, other.Record(e))
	g, err = s.Capture(func() error { return s.WaitEventExternal(e) })
	require.NoError(t, err)
	closing(t, g)
}

// TestStaleEventIsNamed: whatever is asked of an event that was last recorded in a capture which
// has ended names that as the cause.
func TestStaleEventIsNamed(t *testing.T) {
	x := open(t, 0)
	s, recorded := stream(t, x), event(t, x)
	require.NoError(t, s.Record(recorded))
	require.NoError(t, s.Synchronize())
	ours, raw := event(t, x), event(t, x)
	g, err := s.Capture(func() error { return s.Record(ours) })
	require.NoError(t, err)
	closing(t, g)
	other := stream(t, x)
	rawCapture(t, x, other, driver.CU_STREAM_CAPTURE_MODE_RELAXED, func() { require.NoError(t, other.Record(raw)) })
	const stale, captured = "the event was last recorded in a capture that has ended; record it again", "the event was last recorded in a capture; record it again outside"
	for _, test := range []struct {
		name string
		ask  func(e *safe.Event) error
		is   error
		why  string
	}{
		{"Stream.WaitEvent", s.WaitEvent, safe.ErrInvalidArgument, stale},
		{"Batch.WaitEvent", func(e *safe.Event) error {
			b := newBatch(t, x)
			require.NoError(t, b.WaitEvent(e))
			return b.Submit(s)
		}, safe.ErrInvalidArgument, "operation 0, a wait: " + stale},
		{"Query", func(e *safe.Event) error { _, err := e.Query(); return err }, safe.ErrCapturing, captured},
		{"Wait", func(e *safe.Event) error { return e.Wait(t.Context()) }, safe.ErrCapturing, captured},
		{"Since, end", func(e *safe.Event) error { _, err := e.Since(recorded); return err }, safe.ErrCapturing, "the end event was last recorded in a capture; record it again outside"},
		{"Since, start", func(e *safe.Event) error { _, err := recorded.Since(e); return err }, safe.ErrCapturing, "the start event was last recorded in a capture; record it again outside"},
	} {
		for name, e := range map[string]*safe.Event{"of a capture": ours, "of a raw capture": raw} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				err := test.ask(e)
				require.ErrorIs(t, err, test.is)
				var told *safe.Error
				require.ErrorAs(t, err, &told)
				assert.Equal(t, test.why, told.Detail)
			})
		}
	}
	require.NoError(t, s.Record(ours))
	assert.NoError(t, s.WaitEvent(ours))
	noViolation(t)
}

// TestLegacyCannotJoin: the legacy default stream cannot join a capture, which would invalidate
// the capture.
func TestLegacyCannotJoin(t *testing.T) {
	x := open(t, 0)
	s, e, b := stream(t, x), event(t, x), buffer[int32](t, x, 4)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	for name, wait := range map[string]func() error{
		"WaitEvent":  func() error { return errors.Join(s.Record(e), legacy.WaitEvent(e)) },
		"WaitStream": func() error { return legacy.WaitStream(s) },
	} {
		t.Run(name, func(t *testing.T) {
			g, err := s.Capture(func() error {
				require.NoError(t, b.FillAsync(s, 1))
				require.ErrorIs(t, wait(), safe.ErrCapturing)
				return b.FillAsync(s, 2)
			})
			require.NoError(t, err)
			closing(t, g)
		})
	}
}
