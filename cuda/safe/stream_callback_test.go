//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Host functions and callbacks: rules, panics, faults. Runs on any driver; tests named
// Sim need the simulated one.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hook collects errors that OnError reports during the test.
type hook struct {
	mu   sync.Mutex
	errs []error
}

func newHook(t *testing.T) *hook {
	settle(t) // or it gets what earlier tests report
	h := &hook{}
	safe.OnError(func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.errs = append(h.errs, err)
	})
	t.Cleanup(func() { safe.OnError(nil) })
	return h
}

// reported waits for an error of a type.
func reported[E error](t *testing.T, h *hook) (e E) {
	t.Helper()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return errors.As(errors.Join(h.errs...), &e)
	}, atOnce, time.Millisecond)
	return e
}

func wait[T any](t *testing.T, f *safe.Future[T]) T {
	t.Helper()
	v, err := f.Wait(context.Background())
	require.NoError(t, err)
	return v
}

func TestLaunchHostFunc(t *testing.T) {
	x := open(t, 0)
	g, s, b := newGate(t, x), stream(t, x), buffer[float32](t, x, 10)
	h := host[float32](t, x, 10)
	g.shut(t, s)
	require.NoError(t, b.FillAsync(s, 2))
	require.NoError(t, b.CopyToHostAsync(s, h))
	var seen float32
	f, err := s.LaunchHostFunc(func() { seen = h.Data()[9]; h.Data()[9] = 5 })
	require.NoError(t, err)
	require.NoError(t, b.CopyFromHostAsync(s, h), "after the function")
	assert.False(t, isDone(f.Done()))
	g.open()
	wait(t, f)
	assert.EqualValues(t, 2, seen)
	got := make([]float32, 10)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 5, got[9])

	require.NoError(t, s.Synchronize())
}

func TestAddCallback(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	got := make(chan error, 1)
	require.NoError(t, s.AddCallback(func(err error) { got <- err }))
	assert.NoError(t, <-got)
	assert.ErrorIs(t, (*safe.Stream)(nil).AddCallback(nil), safe.ErrClosed)
}

// TestInCallback: calls that need CUDA return an error in a host function, and Close
// defers the destruction.
func TestInCallback(t *testing.T) {
	x := open(t, 0)
	s, e, b := stream(t, x), event(t, x), buffer[int32](t, x, 4)
	k := kernel(t, x, "nothing")
	inside := map[string]func() error{
		"launch":     func() error { return k.Launch(s, one) },
		"query":      func() error { _, err := s.Query(); return err },
		"wait":       s.Synchronize,
		"record":     func() error { return s.Record(e) },
		"event":      func() error { _, err := safe.NewEvent(x); return err },
		"buffer":     func() error { _, err := safe.NewBuffer[int](x, 1); return err },
		"copy":       func() error { return b.CopyFromHost(make([]int32, 4)) },
		"fill":       func() error { return b.FillAsync(s, 1) },
		"do":         func() error { return x.WithCurrent(func() error { return nil }) },
		"host func":  func() error { _, err := s.LaunchHostFunc(func() {}); return err },
		"callback":   func() error { return s.AddCallback(func(error) {}) },
		"completion": func() error { return s.Completion().Err() },
	}
	closed, err := safe.NewEvent(x)
	require.NoError(t, err)
	f, err := s.LaunchHostFunc(func() {
		for name, call := range inside {
			assert.ErrorIs(t, call(), safe.ErrInCallback, name)
		}
		assert.NoError(t, closed.Close())
	})
	require.NoError(t, err)
	wait(t, f)
	require.NoError(t, s.Synchronize())
	require.NoError(t, s.AddCallback(func(error) { assert.ErrorIs(t, k.Launch(s, one), safe.ErrInCallback) }))
	require.NoError(t, s.Synchronize())
}

// TestCallbackWaits: a host function may wait for a goroutine that launches.
func TestCallbackWaits(t *testing.T) {
	x := open(t, 0)
	s, other, k := stream(t, x), stream(t, x), kernel(t, x, "nothing")
	asked, launched := make(chan struct{}), make(chan error)
	go func() {
		<-asked
		launched <- errors.Join(k.Launch(other, one), other.Synchronize())
	}()
	f, err := s.LaunchHostFunc(func() {
		close(asked)
		assert.NoError(t, <-launched)
	})
	require.NoError(t, err)
	wait(t, f)
}

func TestCallbackFails(t *testing.T) {
	x := open(t, 0)
	s, h := stream(t, x), newHook(t)
	f, err := s.LaunchHostFunc(func() { panic("mine") })
	require.NoError(t, err)
	_, err = f.Wait(context.Background())
	var p *safe.PanicError
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "mine", p.Value)
	assert.Contains(t, string(p.Stack), "TestCallbackFails")
	assert.Equal(t, p, reported[*safe.PanicError](t, h))
	require.NoError(t, s.AddCallback(func(error) { time.Sleep(120 * time.Millisecond) }))
	assert.Greater(t, reported[*safe.SlowCallbackError](t, h).Took, 100*time.Millisecond)
	require.NoError(t, s.Synchronize())
}

// TestCallbacksAndFault: callbacks receive the error; host functions never run and their
// futures fail.
func TestCallbacksAndFault(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		m, err := safe.LoadFile(x, "testdata/kernels.ptx")
		require.NoError(t, err)
		store, err := m.Kernel("store")
		require.NoError(t, err)
		begin := make(chan struct{})
		_, err = s.LaunchHostFunc(func() { <-begin })
		require.NoError(t, err)
		require.NoError(t, store.Launch(s, one, safe.Val(uint64(8)), safe.Val(uint64(1))))
		told := make(chan error, 1)
		require.NoError(t, s.AddCallback(func(err error) { told <- err }))
		f, err := s.LaunchHostFunc(func() { t.Error("it ran") })
		require.NoError(t, err)
		done := s.Completion()
		close(begin)
		_, err = done.Wait(context.Background())
		assert.True(t, safe.IsFatal(err), "%v", err)
		assert.True(t, safe.IsFatal(<-told))
		_, err = f.Wait(context.Background())
		assert.True(t, safe.IsFatal(err), "%v", err)
		assert.True(t, safe.IsFatal(s.AddCallback(func(error) { t.Error("it was refused") })))
		for _, c := range []closer{s, m, x} {
			c.Close()
		}
	})
}

// TestHostFuncInRawCapture: a function that a capture of other code gets runs at each launch.
func TestHostFuncInRawCapture(t *testing.T) {
	x := open(t, 0)
	s, ran := stream(t, x), make(chan int, 2)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, x.WithCurrent(func() error {
		var raw driver.CUgraph
		var e driver.CUgraphExec
		require.NoError(t, driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_RELAXED))
		f, err := s.LaunchHostFunc(func() { ran <- 1 })
		require.NoError(t, err)
		assert.ErrorIs(t, f.Err(), safe.ErrCapturing)
		require.NoError(t, driver.CuStreamEndCapture(s.Raw(), &raw))
		require.NoError(t, driver.CuGraphInstantiateWithFlags(&e, raw, 0))
		for range 2 {
			require.NoError(t, driver.CuGraphLaunch(e, s.Raw()))
			require.NoError(t, driver.CuStreamSynchronize(s.Raw()))
		}
		return errors.Join(driver.CuGraphExecDestroy(e), driver.CuGraphDestroy(raw))
	}))
	assert.Len(t, ran, 2)
}

// TestSimCallbackRefused: a function that the driver rejects is released.
func TestSimCallbackRefused(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s := stream(t, x)
	for _, name := range []string{"cuLaunchHostFunc", "cuStreamAddCallback"} {
		gone := make(chan struct{})
		func() {
			large := new([1 << 10]int)
			runtime.AddCleanup(large, func(gone chan struct{}) { close(gone) }, gone)
			simulated.Fail(name, 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
			var err error
			if name == "cuLaunchHostFunc" {
				_, err = s.LaunchHostFunc(func() { large[0]++ })
			} else {
				err = s.AddCallback(func(error) { large[0]++ })
			}
			assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
		}()
		collected(t, gone)
	}
}

// collected waits until the garbage collector has found an object.
func collected(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	for end := time.Now().Add(atOnce); time.Now().Before(end); {
		drop()
		if isDone(gone) {
			return
		}
	}
	t.Error("it is still kept")
}
