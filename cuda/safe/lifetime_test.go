//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"
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

func TestClosed(t *testing.T) {
	x := open(t, 0)
	s, e, b := stream(t, x), event(t, x), buffer[int32](t, x, 1)
	h, k := host[int32](t, x, 1), kernel(t, x, "nothing")
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	own, err := m.Kernel("nothing")
	require.NoError(t, err)
	_ = k
	for range 2 {
		for _, c := range []closer{x, m, h, b, e, s} { // the context first
			require.NoError(t, c.Close())
		}
	}
	refusedAll(t, streamUses(x, s, e, b, h, m, own))
}

// TestClosedWhileKept: a stream that has used memory refuses it once it is closed, even while a graph keeps it.
func TestClosedWhileKept(t *testing.T) {
	x := open(t, 0)
	s, fill := stream(t, x), kernel(t, x, "fill")
	b, err := safe.NewBuffer[float32](x, 1)
	require.NoError(t, err)
	use := func(cfg safe.LaunchConfig, address safe.Arg) error {
		return fill.Launch(s, cfg, safe.Val(uint32(1)), safe.Val(float32(3)), address)
	}
	g, err := s.Capture(func() error { return use(one, b.Arg()) })
	require.NoError(t, err)
	closing(t, g)
	a, raw := b.Arg(), safe.Val(uint64(b.Raw()))
	calls := map[string]func() error{
		"Launch":               func() error { return use(one, a) },
		"Launch that lists it": func() error { return use(using(a), raw) },
		"FillAsync":            func() error { return b.FillAsync(s, 3) },
		"EnqueueRaw":           func() error { return s.EnqueueRaw(func(driver.CUstream) error { return nil }, a) },
	}
	for name, call := range calls {
		require.NoError(t, call(), name)
	}
	require.NoError(t, b.Close())
	for name, call := range calls {
		assert.ErrorIs(t, call(), safe.ErrClosed, name)
	}
	require.NoError(t, s.Synchronize())
}

// TestParentFirst: a context that is closed goes with its last object.
func TestParentFirst(t *testing.T) {
	startClean(t) // what tests before have dropped keeps the context in use
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	b, err := safe.NewBufferAsync[float32](s, 100)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	_, err = safe.NewStream(x)
	require.ErrorIs(t, err, safe.ErrClosed)
	require.NoError(t, b.FillAsync(s, 2))
	require.NoError(t, s.Close())
	got := make([]float32, 100)
	require.NoError(t, b.CopyToHost(got), "after the work of the closed stream")
	assert.EqualValues(t, 2, got[99])
	assert.True(t, inUse(t, x.Device()))
	require.NoError(t, b.Close())
	assert.Eventually(t, func() bool { return !inUse(t, x.Device()) }, hang, time.Millisecond, "the last object is closed")
}

// TestDropped: objects dropped without Close are released.
func TestDropped(t *testing.T) {
	startClean(t) // memory of earlier tests would come back meanwhile
	x := open(t, 0)
	const size = 256 << 20
	free := func() uint64 {
		n, _, err := x.MemoryInfo()
		require.NoError(t, err)
		return n
	}
	before := free()
	func() {
		b, err := safe.NewBuffer[byte](x, size)
		require.NoError(t, err)
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		part, err := b.Slice(0, 1)
		require.NoError(t, err)
		require.NoError(t, part.FillAsync(s, 1))
		_, err = safe.NewEvent(x)
		require.NoError(t, err)
		_, err = safe.NewPinned[byte](x, 10)
		require.NoError(t, err)
		assert.Less(t, free(), before-size/2)
	}()
	assert.Eventually(t, func() bool {
		drop()
		require.NoError(t, x.TrimMemory())
		return free() > before-size/2
	}, atOnce, 10*time.Millisecond)
}

// TestManyGoroutines uses objects of its own and shared ones from many
// goroutines, in any order.
func TestManyGoroutines(t *testing.T) {
	const n, goroutines, rounds = 256, 64, 20
	contexts := []*safe.Context{open(t, 0)}
	if devices, _ := safe.Devices(); len(devices) > 1 {
		contexts = append(contexts, open(t, 1))
	}
	shared := make([]*safe.Stream, len(contexts))
	fills := make([]*safe.Kernel, len(contexts))
	for i, x := range contexts {
		shared[i], fills[i] = stream(t, x), kernel(t, x, "fill")
	}
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for r := range rounds {
				i := (g + r) % len(contexts)
				if !assert.NoError(t, oneRound(contexts[i], shared[i], fills[i], n, float32(g*rounds+r), r%3 == 0)) {
					return
				}
			}
		})
	}
	all.Wait()
}

// wrongValue says that a buffer held something else than was written.
type wrongValue struct{ got, want float32 }

func (w wrongValue) Error() string { return fmt.Sprintf("%v, not %v", w.got, w.want) }

func oneRound(x *safe.Context, shared *safe.Stream, fill *safe.Kernel, n int, v float32, drops bool) error {
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	e, err := safe.NewEventWith(x, safe.EventOptions{DisableTiming: true})
	if err != nil {
		return err
	}
	b, err := safe.NewBufferAsync[float32](s, n)
	if err != nil {
		return err
	}
	got := make([]float32, n)
	for _, step := range []func() error{
		func() error { return s.Record(e) },
		func() error { return shared.WaitEvent(e) },
		func() error {
			return fill.Launch(shared, perValue(n), safe.Val(uint32(n)), safe.Val(v), b.Arg())
		},
		func() error { return b.CopyToHost(got) },
		func() error {
			if got[n-1] != v {
				return wrongValue{got[n-1], v}
			}
			return nil
		},
		func() error { _, err := shared.Query(); return err },
		s.Synchronize,
		e.Synchronize,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if drops {
		return nil
	}
	for _, c := range []closer{s, e, b} {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestForeignCaptures: while a thread captures by package driver, others use
// the layer, and the collector drops things; the capture survives.
func TestForeignCaptures(t *testing.T) {
	x := open(t, 0)
	const n = 256
	fill, side := kernel(t, x, "fill"), stream(t, x)
	for name, mode := range map[string]driver.CUstreamCaptureMode{
		"global":       driver.CU_STREAM_CAPTURE_MODE_GLOBAL,
		"thread local": driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
		"relaxed":      driver.CU_STREAM_CAPTURE_MODE_RELAXED,
	} {
		t.Run(name, func(t *testing.T) {
			s, e := stream(t, x), event(t, x)
			b := buffer[float32](t, x, n)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamBeginCapture(s.Raw(), mode) }))
			var others sync.WaitGroup
			for g := range 8 {
				others.Go(func() {
					for r := range 10 {
						assert.NoError(t, oneRound(x, side, fill, n, float32(g+r), r%2 == 0))
					}
				})
			}
			require.NoError(t, fill.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(5)), b.Arg()))
			for range 5 {
				_, err := s.Query()
				assert.ErrorIs(t, err, safe.ErrCapturing)
				assert.ErrorIs(t, s.Synchronize(), safe.ErrCapturing)
				assert.ErrorIs(t, s.SynchronizeBlocking(), safe.ErrCapturing)
				_, err = s.ID()
				assert.ErrorIs(t, err, safe.ErrCapturing)
				assert.ErrorIs(t, x.Synchronize(), safe.ErrCapturing)
				assert.ErrorIs(t, b.Fill(0), safe.ErrCapturing, "captured work uses the buffer")
				_, err = safe.NewBufferAsync[float32](s, n)
				assert.ErrorIs(t, err, safe.ErrCapturing)
				require.NoError(t, s.Record(e))
				_, err = e.Query()
				assert.ErrorIs(t, err, safe.ErrCapturing)
				assert.NoError(t, side.Synchronize(), "on the capturing thread")
				drop()
			}
			others.Wait()
			var graph driver.CUgraph
			require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamEndCapture(s.Raw(), &graph) }))
			require.NotZero(t, graph)
			require.NoError(t, x.WithCurrent(func() error { return driver.CuGraphDestroy(graph) }))
			require.NoError(t, s.Record(e))
			require.NoError(t, e.Synchronize())
		})
	}
}

// TestFault kills the process's CUDA by a store to nowhere, in a process of its own.
func TestFault(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		b, err := safe.NewBuffer[float32](x, 10)
		require.NoError(t, err)
		m, err := safe.LoadFile(x, "testdata/kernels.ptx")
		require.NoError(t, err)
		k, err := m.Kernel("store")
		require.NoError(t, err)
		part, err := b.Slice(0, 1)
		require.NoError(t, err)
		require.NoError(t, part.FillAsync(s, 1))
		require.NoError(t, k.Launch(s, one, safe.Val(uint64(8)), safe.Val(uint64(1))))
		err = s.Synchronize()
		assert.ErrorIs(t, err, driver.CUDA_ERROR_ILLEGAL_ADDRESS)
		assert.True(t, safe.IsFatal(err))
		assert.ErrorContains(t, err, "caused by earlier work")
		_, err = s.Query()
		assert.True(t, safe.IsFatal(err))
		_, err = safe.NewBuffer[float32](x, 10)
		assert.True(t, safe.IsFatal(err))
		assert.True(t, safe.IsFatal(b.CopyFromHost(make([]float32, 10))))
		for _, c := range []closer{b, s, m, x} {
			err := c.Close()
			assert.True(t, err == nil || safe.IsFatal(err), "%v", err)
			assert.NoError(t, c.Close())
		}
		assert.ErrorIs(t, b.Fill(0), safe.ErrClosed)
	})
}
