//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures beside calls that could invalidate them. Needs the simulated driver.

package safe_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// blockingStream creates a stream that synchronizes with the legacy stream.
func blockingStream(t *testing.T, x *safe.Context) *safe.Stream {
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	closing(t, s)
	return s
}

// TestSimLegacyAmongCaptures: work on the legacy stream returns an error while a blocking
// stream captures.
func TestSimLegacyAmongCaptures(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	k := kernel(t, x, "nothing")
	for name, f := range map[string]func(used *safe.Buffer[float32]) error{
		"Buffer.Close":        func(b *safe.Buffer[float32]) error { return b.Close() },
		"SynchronizeBlocking": func(*safe.Buffer[float32]) error { return legacy.SynchronizeBlocking() },
		"Launch":              func(*safe.Buffer[float32]) error { return k.Launch(legacy, one) },
		"FillAsync of 0":      func(b *safe.Buffer[float32]) error { return b.FillAsync(legacy, 0) },
		"Synchronize":         func(*safe.Buffer[float32]) error { return legacy.Synchronize() },
		"Record":              func(*safe.Buffer[float32]) error { return legacy.Record(event(t, x)) },
		"HostFunc": func(*safe.Buffer[float32]) error {
			_, err := legacy.LaunchHostFunc(func() {})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, y := blockingStream(t, x), buffer[float32](t, x, 10)
			b, err := safe.NewBuffer[float32](x, 10)
			require.NoError(t, err)
			defer b.Close()
			require.NoError(t, b.FillAsync(legacy, 0))
			g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed}, func() error {
				require.NoError(t, y.FillAsync(s, 0))
				t.Logf("%s: %v", name, f(b))
				return nil
			})
			if assert.NoError(t, err, "the capture must survive") {
				g.Close()
			}
		})
	}
}

// TestSimLegacyClosed: closing the legacy stream invalidates no capture.
func TestSimLegacyClosed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	y := buffer[float32](t, x, 10)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	require.NoError(t, y.FillAsync(legacy, 0))
	s := blockingStream(t, x)
	g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed}, func() error {
		require.NoError(t, y.FillAsync(s, 1))
		t.Log(legacy.Close())
		return nil
	})
	if assert.NoError(t, err) {
		g.Close()
	}
}

// TestSimLegacyUsed: nor does closing objects that were used on it.
func TestSimLegacyUsed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	s, y := blockingStream(t, x), buffer[float32](t, x, 10)
	b, err := safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	require.NoError(t, b.FillAsync(legacy, 0))
	s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed}, func() error {
		require.NoError(t, y.FillAsync(s, 0))
		before := simulated.Calls("cuStreamSynchronize")
		b.Close()
		assert.Equal(t, before, simulated.Calls("cuStreamSynchronize"), "kills the capture")
		return nil
	})
}

// TestSimBorrowCaptures: objects captured through a borrowed stream are retained.
func TestSimBorrowCaptures(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	same, err := s.Borrow()
	require.NoError(t, err)
	closing(t, same)
	b, err := safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	g, err := s.Capture(func() error { return b.FillAsync(same, 0) })
	require.NoError(t, err)
	closing(t, g)
	before := simulated.Live("async")
	require.NoError(t, b.Close())
	settle(t)
	assert.Equal(t, before, simulated.Live("async"), "the graph needs it")
	simulated.Reset()
	e := executable(t, g)
	_ = e.Launch(s)
	_ = s.Synchronize()
	assert.Empty(t, simulated.Violation())
	simulated.Reset()
}

// TestSimUsedBeforeCapture: a graph retains memory that the stream has used before the capture.
func TestSimUsedBeforeCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, fill, from := stream(t, x), kernel(t, x, "fill"), host[float32](t, x, 10)
	for name, use := range map[string]func(b *safe.Buffer[float32]) error{
		"Launch": func(b *safe.Buffer[float32]) error {
			return fill.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg())
		},
		"Launch that lists it": func(b *safe.Buffer[float32]) error {
			return fill.Launch(s, using(b.Arg()), safe.Val(uint32(1)), safe.Val(float32(3)), safe.Val(uint64(b.Raw())))
		},
		"CopyFromHostAsync": func(b *safe.Buffer[float32]) error { return b.CopyFromHostAsync(s, from) },
		"FillAsync":         func(b *safe.Buffer[float32]) error { return b.FillAsync(s, 3) },
		"EnqueueRaw": func(b *safe.Buffer[float32]) error {
			return s.EnqueueRaw(func(raw driver.CUstream) error { return driver.CuMemsetD32Async(b.Raw(), 3, 10, raw) }, b.Arg())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := safe.NewBuffer[float32](x, 10)
			require.NoError(t, err)
			require.NoError(t, errors.Join(use(b), use(b), s.Synchronize()))
			g, err := s.Capture(func() error { return use(b) })
			require.NoError(t, err)
			closing(t, g)
			settle(t) // what subtests before have closed
			before := simulated.Live("async")
			require.NoError(t, b.Close())
			settle(t)
			assert.Equal(t, before, simulated.Live("async"), "the graph needs it")
			launch(t, executable(t, g), s)
			noViolation(t)
		})
	}
}

// TestSimFedAtTheEnd: other goroutines may enqueue on a joined stream while the capture
// ends.
func TestSimFedAtTheEnd(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, side, y := stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	fork := event(t, x)
	b, err := safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	live := simulated.Live("async")
	simulated.Delay("cuStreamEndCapture", 100*time.Millisecond)
	defer simulated.Reset()
	fed := make(chan error, 1)
	_, err = s.Capture(func() error {
		require.NoError(t, errors.Join(y.FillAsync(s, 0), s.Record(fork), side.WaitEvent(fork), y.FillAsync(side, 1)))
		go func() { time.Sleep(50 * time.Millisecond); fed <- b.FillAsync(side, 0) }()
		return nil
	})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
	t.Log(<-fed)
	require.NoError(t, side.Synchronize())
	require.NoError(t, b.Close())
	settle(t)
	assert.Eventually(t, func() bool { return simulated.Live("async") == live-1 }, atOnce, time.Millisecond, "no graph needs it")
}

// TestSimModuleClosed: a module closed during a captured launch is retained.
func TestSimModuleClosed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	k, err := m.Kernel("nothing")
	require.NoError(t, err)
	live := simulated.Live("module")
	defer simulated.Reset()
	var lerr error
	g, err := s.Capture(func() error {
		var wg sync.WaitGroup
		simulated.Delay("cuMemsetD8Async", 200*time.Millisecond)
		wg.Go(func() { assert.NoError(t, y.FillAsync(s, 0)) }) // has the lock
		time.Sleep(50 * time.Millisecond)
		wg.Go(func() { lerr = k.Launch(s, one) })
		time.Sleep(50 * time.Millisecond)
		assert.NoError(t, m.Close())
		wg.Wait()
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
	settle(t)
	t.Log(lerr)
	if lerr == nil {
		assert.Equal(t, live, simulated.Live("module"), "the graph needs it")
	}
	t.Log(g.Instantiate())
}

// TestSimContextClosed: open objects of a closed context can be captured and
// instantiated.
func TestSimContextClosed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	s := stream(t, x)
	y := buffer[float32](t, x, 10)
	g, err := s.Capture(func() error { return y.FillAsync(s, 0) })
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, x.Close())
	require.NoError(t, y.FillAsync(s, 1), "it keeps working")
	e, err := g.Instantiate()
	if assert.NoError(t, err) {
		e.Close()
	}
	g2, err := s.Capture(func() error { return y.FillAsync(s, 0) })
	if assert.NoError(t, err) {
		g2.Close()
	}
	require.NoError(t, s.Synchronize())
}

// beside calls f repeatedly until the test ends.
func beside(t *testing.T, f func()) {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	t.Cleanup(func() { stop.Store(true); wg.Wait() })
	wg.Go(func() {
		for !stop.Load() {
			f()
		}
	})
}

// TestSimQueryAndCapture: querying a stream while a capture begins does not invalidate
// it.
func TestSimQueryAndCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	beside(t, func() { s.Query() })
	for i := range 500 {
		g, err := s.Capture(func() error { return y.FillAsync(s, 0) })
		require.NoError(t, err, i)
		g.Close()
	}
}

// TestSimEventAndCapture: nor does querying an event.
func TestSimEventAndCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, y, e := stream(t, x), buffer[float32](t, x, 10), event(t, x)
	beside(t, func() { e.Query() })
	for i := range 500 {
		require.NoError(t, s.Record(e))
		g, err := s.Capture(func() error { return errors.Join(y.FillAsync(s, 0), s.Record(e), y.FillAsync(s, 0)) })
		require.NoError(t, err, i)
		g.Close()
	}
}

// TestSimEndInCallback: a capture that a host function failed to end can still be ended.
func TestSimEndInCallback(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	c, err := other.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	f, err := s.LaunchHostFunc(func() { _, err := c.End(); assert.ErrorIs(t, err, safe.ErrInCallback) })
	require.NoError(t, err)
	wait(t, f)
	status, err := other.CaptureStatus()
	t.Log(status, err)
	g, err := c.End()
	if assert.NoError(t, err, "End can be called elsewhere") {
		g.Close()
	}
	assert.NoError(t, other.Synchronize(), "it captures no more")
}

// TestSimLostGraphIsSaid: the error says that the graph is lost.
func TestSimLostGraphIsSaid(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	needs(t, "cuStreamBeginCaptureToGraph")
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, g)
	mine := errors.New("mine")
	err = s.CaptureTo(g, safe.CaptureToOptions{}, func() error {
		require.NoError(t, y.FillAsync(s, 0))
		x.WithCurrent(func() error { driver.CuStreamQuery(s.Raw()); return nil })
		return mine
	})
	t.Log(err)
	_, lost := g.Nodes()
	assert.ErrorIs(t, lost, safe.ErrGraphLost)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the graph is lost and the error does not say so")
}

// TestSimReleaseInCapture: Release does not release a capturing stream.
func TestSimReleaseInCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	closing(t, s)
	over := make(chan struct{})
	go func() {
		defer close(over)
		g, err := s.Capture(func() error { assert.Zero(t, s.Release()); return nil })
		assert.NoError(t, err)
		assert.NoError(t, g.Close())
	}()
	select {
	case <-over:
	case <-time.After(atOnce):
		t.Error("it hangs")
	}
}
