//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls with all kinds of objects beside a reset. Each test runs in its own process. Runs on any
// driver.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// objectsAtReset are what calls use while a reset destroys it, but for the stream of another device.
type objectsAtReset struct {
	x      *safe.Context
	s      *safe.Stream
	b      *safe.Buffer[uint32]
	h      *safe.Pinned[uint32]
	a      *safe.Array[float32]
	pool   *safe.Pool
	m      *safe.Module
	k      *safe.Kernel
	g      *safe.Graph
	n      safe.Node
	exec   *safe.GraphExec
	e      *safe.Event
	start  *safe.Event // recorded before e
	other  *safe.Stream
	theirs *safe.Buffer[uint32] // of other
}

// TestResetBesideCalls: a reset waits for calls in flight, also for those that hold no lock of a
// stream.
func TestResetBesideCalls(t *testing.T) {
	for name, call := range map[string]func(w *objectsAtReset) error{
		"Context.Synchronize": func(w *objectsAtReset) error { return w.x.Synchronize() },
		"Context.MemoryInfo":  func(w *objectsAtReset) error { _, _, err := w.x.MemoryInfo(); return err },
		"CopyToHost":          func(w *objectsAtReset) error { return w.b.CopyToHost(make([]uint32, 4)) },
		"Kernel.Load":         func(w *objectsAtReset) error { return w.k.Load() },
		"Module.Kernel":       func(w *objectsAtReset) error { _, err := w.m.Kernel("nothing"); return err },
		"occupancy":           func(w *objectsAtReset) error { _, err := w.k.MaxBlocksPerMultiprocessor(32, 0); return err },
		"Pool.Trim":           func(w *objectsAtReset) error { return w.pool.Trim(0) },
		"Graph.Nodes":         func(w *objectsAtReset) error { _, err := w.g.Nodes(); return err },
		"Graph.Clone": func(w *objectsAtReset) error {
			g, err := w.g.Clone()
			return errors.Join(err, g.Close())
		},
		"Graph.Instantiate": func(w *objectsAtReset) error {
			e, err := w.g.Instantiate()
			return errors.Join(err, e.Close())
		},
		"GraphExec.Update": func(w *objectsAtReset) error { return w.exec.Update(w.g) },
		"GraphExec.Set": func(w *objectsAtReset) error {
			return w.exec.Set(w.n, safe.KernelNode(w.k, one))
		},
		"Node.Dependencies": func(w *objectsAtReset) error { _, err := w.n.Dependencies(); return err },
		"NewStream": func(w *objectsAtReset) error {
			s, err := safe.NewStream(w.x, safe.StreamOptions{})
			return errors.Join(err, s.Close())
		},
		"NewEvent": func(w *objectsAtReset) error {
			e, err := safe.NewEvent(w.x, safe.EventOptions{})
			return errors.Join(err, e.Close())
		},
		"NewBuffer": func(w *objectsAtReset) error {
			b, err := safe.NewBuffer[uint32](w.x, 64<<20)
			return errors.Join(err, b.Close())
		},
		"NewBufferAsync": func(w *objectsAtReset) error {
			b, err := safe.NewBufferAsync[uint32](w.s, 64)
			return errors.Join(err, b.Close())
		},
		"WithoutCaptures": func(w *objectsAtReset) error { return w.x.WithoutCaptures(func() error { return nil }) },
		"Event.Query":     func(w *objectsAtReset) error { _, err := w.e.Query(); return err },
		"Kernel.Launch":   func(w *objectsAtReset) error { return w.k.Launch(w.s, one) },
		"Event.Since":     func(w *objectsAtReset) error { _, err := w.e.Since(w.start); return err },
		"Fork":            func(w *objectsAtReset) error { return w.s.Fork(2, func([]*safe.Stream) error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) { (&objectsAtReset{}).resets(t, call) })
	}
}

// TestResetBesideCallsElsewhere is TestResetBesideCalls for calls with objects of two devices.
func TestResetBesideCallsElsewhere(t *testing.T) {
	for name, call := range map[string]func(w *objectsAtReset) error{
		"CopyFrom of a peer":         func(w *objectsAtReset) error { return w.b.CopyFrom(w.theirs) },
		"CopyFrom to a peer":         func(w *objectsAtReset) error { return w.theirs.CopyFrom(w.b) },
		"GraphExec.Launch elsewhere": func(w *objectsAtReset) error { return w.exec.Launch(w.other) },
		"WaitEvent elsewhere":        func(w *objectsAtReset) error { return w.other.WaitEvent(w.e) },
		"Batch elsewhere": func(w *objectsAtReset) error {
			b, err := safe.NewBatch(w.other.Context())
			if err == nil {
				err = errors.Join(b.WaitEvent(w.e), b.Submit(w.other))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			needsSecond(t)
			(&objectsAtReset{}).resets(t, call)
		})
	}
}

// TestElsewhereBesideStuckReset: a reset waits for the work of its device, and holds up nothing on
// other devices meanwhile.
func TestElsewhereBesideStuckReset(t *testing.T) {
	needsSecond(t)
	needs(t, "cuCtxGetId")
	global := safe.CaptureOptions{Mode: safe.CaptureGlobal}
	launches := func(_ *testing.T, s *safe.Stream, g *safe.Graph) error {
		e, err := g.Instantiate()
		return errors.Join(err, e.Launch(s), s.Synchronize(), e.Close())
	}
	for name, c := range map[string]struct {
		call   func(t *testing.T, s *safe.Stream, g *safe.Graph) error
		beside bool // a capture of mode GLOBAL
	}{
		"launch":                         {call: launches},
		"launch beside a global capture": {call: launches, beside: true},
		"global capture": {call: func(t *testing.T, s *safe.Stream, _ *safe.Graph) error {
			g, err := s.CaptureContext(t.Context(), global, func() error { return nil })
			return errors.Join(err, g.Close())
		}},
		"release": {call: func(t *testing.T, s *safe.Stream, _ *safe.Graph) error {
			r, gone := resource(t, s.Context())
			defer func() { <-gone }()
			return r.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			besideResets(t, func(t *testing.T) {
				x, y := open(t, 0), open(t, 1)
				s, u, other, g := stream(t, x), stream(t, x), stream(t, y), newGraph(t, y)
				end := func() {}
				if c.beside {
					capture, err := stream(t, y).BeginCaptureContext(t.Context(), global)
					require.NoError(t, err)
					end = func() {
						g, err := capture.End()
						assert.NoError(t, errors.Join(err, g.Close()))
					}
				}
				unstick := stickOn(t, host[uint32](t, y, 1), s)
				defer unstick()
				reset := background(func() { assert.NoError(t, x.Device().ResetPrimary()) })
				over := background(func() { assert.NoError(t, c.call(t, other, g)) })
				soon(t, over, "the call waits for the reset")
				_, err := u.BeginCapture()
				assert.ErrorIs(t, err, safe.ErrReset)
				end()
				assert.False(t, closed(reset))
				unstick()
				<-reset
			})
		})
	}
}

// resets resets the first device again and again, in a process of its own.
func (w *objectsAtReset) resets(t *testing.T, call func(*objectsAtReset) error) {
	t.Helper()
	needs(t, "cuCtxGetId")
	besideResets(t, func(t *testing.T) {
		if devices, err := safe.Devices(); len(devices) > 1 {
			require.NoError(t, err)
			y := open(t, 1)
			w.other, w.theirs = stream(t, y), buffer[uint32](t, y, 4)
		}
		for end := time.Now().Add(stormTime(t)); time.Now().Before(end); {
			w.reset(t, call)
		}
	})
}

// reset resets the device while three goroutines call.
func (w *objectsAtReset) reset(t *testing.T, call func(*objectsAtReset) error) {
	t.Helper()
	var err error
	w.x, err = safe.Open(0)
	require.NoError(t, err)
	w.s, err = safe.NewStream(w.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	w.b, err = safe.NewBuffer[uint32](w.x, 4)
	require.NoError(t, err)
	w.h, err = safe.NewPinned[uint32](w.x, 4, safe.PinnedOptions{})
	require.NoError(t, err)
	w.a, err = safe.NewArray[float32](w.x, safe.Extent{Width: 16}, safe.ArrayOptions{})
	require.NoError(t, err)
	w.pool, err = safe.NewPool(w.x, safe.PoolOptions{})
	require.NoError(t, err)
	w.m, err = safe.LoadFile(w.x, "testdata/kernels.ptx", safe.LoadOptions{})
	require.NoError(t, err)
	w.k, err = w.m.Kernel("nothing")
	require.NoError(t, err)
	w.g, err = safe.NewGraph(w.x)
	require.NoError(t, err)
	w.n, err = w.g.Add(safe.KernelNode(w.k, one))
	require.NoError(t, err)
	w.exec, err = w.g.Instantiate()
	require.NoError(t, err)
	w.e, err = safe.NewEvent(w.x, safe.EventOptions{})
	require.NoError(t, err)
	w.start, err = safe.NewEvent(w.x, safe.EventOptions{})
	require.NoError(t, err)
	require.NoError(t, errors.Join(w.s.Record(w.start), w.s.Record(w.e), w.s.Synchronize()))
	told := make(chan error, 3)
	for range cap(told) {
		go func() {
			err := call(w)
			for err == nil {
				err = call(w)
			}
			told <- err
		}()
	}
	time.Sleep(time.Millisecond)
	resetPrimary(t, w.x)
	for range cap(told) {
		require.ErrorIs(t, <-told, safe.ErrReset)
	}
	for _, c := range []closer{w.e, w.start, w.exec, w.g, w.m, w.pool, w.a, w.h, w.b, w.s, w.x} {
		require.NoError(t, c.Close())
	}
}
