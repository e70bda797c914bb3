//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures into bodies that fail. They may leave streams that cannot be used, and graphs that cannot be
// destroyed, so these tests run in processes of their own. Runs on any driver for CUDA 12.3 or newer.

package safe_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inLost runs body in a process of its own, which may leave objects.
func inLost(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	needs(t, "cuGraphConditionalHandleCreate")
	drivertest.InChild(t, func(t *testing.T) {
		leaves = true
		body(t)
	})
}

// invalidates makes a raw call that invalidates the captures of streams.
func invalidates(t testing.TB, streams ...*safe.Stream) {
	t.Helper()
	for _, s := range streams {
		err := s.Context().WithCurrent(func() error { return driver.CuStreamSynchronize(s.Raw()) })
		assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
	}
}

type addBody func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error)

// bodies are ways to add a conditional node: the first body is captured, the others are filled or left empty.
var bodies = []struct {
	name  string
	since int32 // the driver's version
	add   addBody
}{
	{"if", 0, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) {
		body, err := s.AddIf(c)
		return []*safe.Graph{body}, err
	}},
	{"while", 0, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) {
		body, err := s.AddWhile(c)
		return []*safe.Graph{body}, err
	}},
	{"if and else", 12080, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) {
		then, otherwise, err := s.AddIfElse(c)
		return []*safe.Graph{then, otherwise}, err
	}},
	{"switch", 12080, func(s *safe.Stream, c safe.Condition) ([]*safe.Graph, error) { return s.AddSwitch(c, 3) }},
}

// lostWorld is what a test has in which a capture into a body fails.
type lostWorld struct {
	x              *safe.Context
	s, side, other *safe.Stream
	y              *safe.Buffer[float32]
	e              *safe.Event // recorded in the outer capture
}

func newLostWorld(t *testing.T) *lostWorld {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	w := &lostWorld{x: x}
	for _, s := range []**safe.Stream{&w.s, &w.side, &w.other} {
		*s, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
	}
	w.e, err = safe.NewEvent(x)
	require.NoError(t, err)
	w.y, err = safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	return w
}

// body adds a conditional node to the capture of s. The first body is to be captured, the second one has been.
func (w *lostWorld) body(t *testing.T, s *safe.Stream, add addBody) *safe.Graph {
	t.Helper()
	c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
	require.NoError(t, err)
	graphs, err := add(s, c)
	require.NoError(t, err)
	if len(graphs) > 1 {
		require.NoError(t, w.other.CaptureTo(graphs[1], safe.CaptureToOptions{}, func() error { return w.y.FillAsync(w.other, 2) }))
	}
	return graphs[0]
}

// apart calls f on another goroutine, which f may end.
func apart(f func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() { _ = recover() }()
		f()
	}()
	<-over
}

// TestCaptureBodyLost: if CUDA has invalidated a capture into a body, the outer capture returns an error. If
// that was invalidated, too, its streams cannot be used any more. Everything else goes on.
func TestCaptureBodyLost(t *testing.T) {
	inLost(t, func(t *testing.T) {
		watch(t)
		for _, kind := range bodies {
			for how, end := range waysOut {
				for _, both := range []bool{false, true} {
					name := kind.name + ", " + how
					if both {
						name += ", both lost"
					}
					t.Run(name, func(t *testing.T) {
						if kind.since > 0 {
							needsDriver(t, kind.since, "it has no such nodes")
						}
						losesBody(t, kind.add, end, both)
					})
				}
			}
		}
	})
}

var errOfFunction = errors.New("of the function")

// waysOut are ways in which the function of a capture ends.
var waysOut = map[string]func() error{
	"nil":    func() error { return nil },
	"error":  func() error { return errOfFunction },
	"panic":  func() error { panic("of the function") },
	"Goexit": func() error { runtime.Goexit(); return nil },
}

func losesBody(t *testing.T, add addBody, end func() error, both bool) {
	w := newLostWorld(t)
	var body *safe.Graph
	var outer, inner error
	returned := false
	apart(func() {
		_, outer = w.s.Capture(func() error {
			assert.NoError(t, w.s.Record(w.e))
			body = w.body(t, w.s, add)
			inner = w.side.CaptureTo(body, safe.CaptureToOptions{}, func() error {
				assert.NoError(t, w.y.FillAsync(w.side, 1))
				invalidates(t, w.side)
				if both {
					invalidates(t, w.s)
				}
				return nil
			})
			return end()
		})
		returned = true
		assert.Equal(t, both, staysOnThread(), "CUDA refuses raw calls there until the capture ends")
	})
	assert.ErrorIs(t, inner, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	own := strings.Contains(t.Name(), "error")
	if own {
		assert.ErrorIs(t, outer, errOfFunction)
	}
	if returned && (both || !own) {
		assert.ErrorIs(t, outer, safe.ErrGraphLost)
		assert.ErrorContains(t, outer, "INVALIDATED", "why")
	}
	_, err := body.Nodes()
	assert.Error(t, err)
	if both {
		w.stuck(t)
	} else {
		w.works(t, w.s)
		w.works(t, w.side)
	}
	w.closes(t)
}

// stuck checks that s cannot be used, and that everything else can.
func (w *lostWorld) stuck(t *testing.T) {
	t.Helper()
	h := host[float32](t, w.x, 10)
	for name, call := range map[string]func() error{
		"fill":      func() error { return w.y.FillAsync(w.s, 1) },
		"copy":      func() error { return w.y.CopyToHostAsync(w.s, h) },
		"query":     func() error { _, err := w.s.Query(); return err },
		"wait":      w.s.Synchronize,
		"blocking":  w.s.SynchronizeBlocking,
		"record":    func() error { return w.s.Record(event(t, w.x)) },
		"waits":     func() error { return w.s.WaitEvent(event(t, w.x)) },
		"is joined": func() error { return w.other.WaitStream(w.s) },
		"joins":     func() error { return w.other.WaitEvent(w.e) },
		"capture":   func() error { _, err := w.s.Capture(func() error { return nil }); return err },
		"condition": func() error { _, err := w.s.NewCondition(safe.ConditionOptions{}); return err },
		"node":      func() error { _, err := w.s.AddNode(safe.EmptyNode()); return err },
		"info":      func() error { _, err := w.s.CaptureInfo(); return err },
		"raw":       func() error { return w.s.EnqueueRaw(func(driver.CUstream) error { return nil }) },
	} {
		assert.ErrorIs(t, call(), safe.ErrGraphLost, name)
	}
	assert.Zero(t, w.s.Release())
	assert.ErrorIs(t, w.x.Synchronize(), safe.ErrCapturing, "for good")
	assert.ErrorIs(t, w.x.Device().ResetPrimary(), safe.ErrInUse)
	for _, s := range []*safe.Stream{w.side, w.other} {
		w.works(t, s)
	}
}

// works checks that a stream can be used, and captured.
func (w *lostWorld) works(t *testing.T, s *safe.Stream) {
	t.Helper()
	b, err := safe.NewBuffer[float32](w.x, 10)
	require.NoError(t, err)
	require.NoError(t, b.FillAsync(s, 3))
	assert.EqualValues(t, 3, read(t, b))
	g, err := s.Capture(func() error { return b.FillAsync(s, 4) })
	require.NoError(t, err)
	e, err := g.Instantiate()
	require.NoError(t, err)
	launch(t, e, s)
	assert.EqualValues(t, 4, read(t, b))
	require.NoError(t, errors.Join(e.Close(), g.Close(), b.Close()))
}

// closes checks that everything can be closed.
func (w *lostWorld) closes(t *testing.T) {
	t.Helper()
	require.NoError(t, w.x.CloseAll())
	require.NoError(t, w.s.Close())
	require.NoError(t, w.x.Close())
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	(&lostWorld{x: x}).works(t, s)
	require.NoError(t, errors.Join(s.Close(), x.Close()))
}

// TestCaptureBodyUnjoined: a capture into a body that leaves a stream unjoined fails, and the outer one with it, but
// CUDA keeps the body: nothing is left over.
func TestCaptureBodyUnjoined(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	startClean(t)
	w := newLostWorld(t)
	e, third := event(t, w.x), stream(t, w.x)
	forks := func(join ...*safe.Stream) (inner, outer error) {
		_, outer = w.s.Capture(func() error {
			body := w.body(t, w.s, bodies[0].add)
			inner = w.side.CaptureTo(body, safe.CaptureToOptions{}, func() error {
				require.NoError(t, w.y.FillAsync(w.side, 1))
				for _, s := range []*safe.Stream{w.other, third} {
					require.NoError(t, s.WaitStream(w.side))
					require.NoError(t, w.y.FillAsync(s, 2))
				}
				if len(join) == 0 { // for both, CUDA names the last node of w.other
					require.NoError(t, third.WaitStream(w.other))
				}
				for _, s := range join {
					require.NoError(t, s.Record(e))
					require.NoError(t, w.side.WaitEvent(e))
				}
				return nil
			})
			if inner != nil {
				_, err := w.s.AddNode(safe.EmptyNode())
				assert.ErrorIs(t, err, safe.ErrGraphLost)
				_, err = w.s.NewCondition(safe.ConditionOptions{})
				assert.ErrorIs(t, err, safe.ErrGraphLost)
			}
			return nil
		})
		return inner, outer
	}
	for _, some := range [][]*safe.Stream{nil, {w.other}, {third}} {
		inner, outer := forks(some...)
		assert.ErrorIs(t, inner, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
		assert.ErrorIs(t, outer, safe.ErrGraphLost)
		for _, s := range []*safe.Stream{w.s, w.side, w.other, third} {
			w.works(t, s)
		}
	}
	inner, outer := forks(w.other, third)
	assert.NoError(t, errors.Join(inner, outer))
	require.NoError(t, w.x.Synchronize(), "no capture is left")
	w.closes(t)
	if !onGPU {
		nothingAlive(t, "the outer graphs")
	}
}

// TestCaptureBodyDropped: the garbage collector ends a capture into a body on the wrong thread, which makes CUDA
// destroy the body. The outer capture fails, and its stream goes on.
func TestCaptureBodyDropped(t *testing.T) {
	inLost(t, func(t *testing.T) {
		watch(t)
		w := newLostWorld(t)
		_, err := w.s.Capture(func() error {
			body := w.body(t, w.s, bodies[0].add)
			apart(func() {
				_, err := w.side.BeginCaptureTo(body, safe.CaptureToOptions{})
				assert.NoError(t, err)
			})
			require.Eventually(t, func() bool {
				runtime.GC()
				status, err := w.side.CaptureStatus()
				return err == nil && status == driver.CU_STREAM_CAPTURE_STATUS_NONE
			}, hang, time.Millisecond)
			return w.y.FillAsync(w.s, 1)
		})
		assert.ErrorIs(t, err, safe.ErrGraphLost)
		assert.ErrorContains(t, err, "WRONG_THREAD")
		w.works(t, w.s)
		w.works(t, w.side)
		require.NoError(t, w.x.Synchronize(), "no capture is left")
		w.closes(t)
	})
}

// TestCaptureAroundLostBodyDropped: the garbage collector ends a relaxed capture around a body that is lost, and its
// stream goes on. In another mode it cannot, as CUDA would crash.
func TestCaptureAroundLostBodyDropped(t *testing.T) {
	inLost(t, func(t *testing.T) {
		watch(t)
		for _, m := range factModes {
			t.Run(m.name, func(t *testing.T) {
				w := newLostWorld(t)
				apart(func() {
					_, err := w.s.BeginCaptureWith(t.Context(), safe.CaptureOptions{Mode: m.own})
					assert.NoError(t, errors.Join(err, w.s.Record(w.e)))
					body := w.body(t, w.s, bodies[0].add)
					err = w.side.CaptureTo(body, safe.CaptureToOptions{}, func() error {
						invalidates(t, w.side)
						return nil
					})
					assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
				})
				relaxed := m.own == safe.CaptureRelaxed
				require.Eventually(t, func() bool {
					runtime.GC()
					_, err := w.s.Query()
					if relaxed {
						return err == nil
					}
					return errors.Is(err, safe.ErrGraphLost)
				}, hang, time.Millisecond)
				if relaxed {
					w.works(t, w.s)
				} else {
					w.stuck(t)
				}
				w.closes(t)
			})
		}
	})
}
