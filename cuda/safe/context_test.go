//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The basics of devices, contexts, streams and events. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDevices(t *testing.T) {
	x := open(t, 0)
	devices, err := safe.Devices()
	require.NoError(t, err)
	require.NotEmpty(t, devices)
	for i, d := range devices {
		p, err := d.Properties()
		require.NoError(t, err)
		u, err := d.UUID()
		require.NoError(t, err)
		address, err := d.PCIAddress()
		require.NoError(t, err)
		t.Logf("%v: %s %v at %s, %d.%d, %d multiprocessors, %d MiB", d, p.Name, u, address, p.Major, p.Minor, p.Multiprocessors, p.TotalMemory>>20)
		assert.Equal(t, i, d.Ordinal())
		assert.Equal(t, 32, p.WarpSize)
		assert.NotEmpty(t, p.Name)
		same, err := safe.DeviceByPCI(address)
		require.NoError(t, err)
		assert.Equal(t, d, same)
	}
	assert.Equal(t, devices[0], x.Device())
	_, err = safe.Open(len(devices))
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_DEVICE)
	assert.ErrorContains(t, err, fmt.Sprintf("device %[1]d: the machine has %[1]d, from 0 on", len(devices)))
	_, err = safe.Open(-1)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_DEVICE)
	assert.ErrorContains(t, err, "cuda: Open: ")
	_, err = safe.DeviceByPCI("ffff:ff:ff.f")
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_DEVICE)
	_, err = devices[0].Attribute(driver.CUdevice_attribute(99999))
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
}

func TestContext(t *testing.T) {
	x := open(t, 0)
	free, total, err := x.MemoryInfo()
	require.NoError(t, err)
	assert.LessOrEqual(t, free, total)
	size, err := x.Limit(driver.CU_LIMIT_STACK_SIZE)
	require.NoError(t, err)
	require.NoError(t, x.SetLimit(driver.CU_LIMIT_STACK_SIZE, size))
	least, greatest := priorities(t, x)
	assert.LessOrEqual(t, greatest, least)
	require.NoError(t, x.Synchronize())
}

// TestCurrentContext: every call leaves the current context as it was.
func TestCurrentContext(t *testing.T) {
	x := open(t, 0)
	runtime.LockOSThread() // as do the goroutines below
	defer runtime.UnlockOSThread()
	work := func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := current(t)
		s := stream(t, x)
		e := event(t, x)
		b := buffer[float32](t, x, 100)
		require.NoError(t, s.Record(e))
		require.NoError(t, s.WaitEvent(e))
		require.NoError(t, b.FillAsync(s, 1))
		require.NoError(t, b.CopyFromHost(count(100)))
		require.NoError(t, s.Synchronize())
		require.NoError(t, kernel(t, x, "nothing").Launch(s, one))
		_, err := s.Query()
		require.NoError(t, err)
		assert.Equal(t, before, current(t))
	}
	t.Run("none", work)
	t.Run("its own", func(t *testing.T) {
		require.NoError(t, x.WithCurrent(func() error {
			assert.Equal(t, x.Raw(), current(t))
			work(t)
			return nil
		}))
	})
	t.Run("another", func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var other driver.CUcontext
		require.NoError(t, driver.CuCtxCreate_v2(&other, 0, x.Device().Raw()))
		work(t)
		require.NoError(t, driver.CuCtxDestroy(other))
	})
	assert.Zero(t, current(t))

	mine := errors.New("mine")
	assert.Equal(t, mine, x.WithCurrent(func() error { return mine }))
	assert.Panics(t, func() { x.WithCurrent(func() error { panic(1) }) })
	assert.Zero(t, current(t), "after a panic")
}

func TestBorrowContext(t *testing.T) {
	open(t, 0)
	var raw driver.CUcontext
	require.NoError(t, onThread(func() error { return driver.CuCtxCreate_v2(&raw, 0, 0) }))
	x, err := safe.BorrowContext(raw, "owner")
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	require.NoError(t, s.Synchronize(), "the stream keeps the context")
	require.NoError(t, s.Close())
	require.NoError(t, driver.CuCtxDestroy(raw), "it was not destroyed")
	_, err = safe.BorrowContext(0, nil)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_CONTEXT)
}

func TestStream(t *testing.T) {
	x := open(t, 0)
	g := newGate(t, x)
	s := stream(t, x)
	done, err := s.Query()
	require.NoError(t, err)
	assert.True(t, done)
	g.shut(t, s)
	done, err = s.Query()
	require.NoError(t, err)
	assert.False(t, done)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
	g.open()
	require.NoError(t, s.Synchronize())
	require.NoError(t, s.SynchronizeBlocking())
	assert.True(t, s.NonBlocking())

	_, greatest := priorities(t, x)
	_, err = safe.NewStreamWith(x, safe.StreamOptions{Priority: greatest - 1})
	assert.ErrorIs(t, err, safe.ErrRange)
	p, err := safe.NewStreamWith(x, safe.StreamOptions{Priority: greatest - 1, ClampPriority: true})
	require.NoError(t, err)
	assert.Equal(t, greatest, p.Priority())
	raw := p.Release()
	assert.NotZero(t, raw)
	assert.ErrorIs(t, p.Synchronize(), safe.ErrClosed)
	b, err := safe.BorrowStream(raw, x, nil)
	require.NoError(t, err)
	assert.Equal(t, greatest, b.Priority())
	require.NoError(t, b.Close())
	p, err = safe.StreamFromRaw(raw, x)
	require.NoError(t, err)
	again, err := p.Borrow()
	require.NoError(t, err)
	require.NoError(t, again.Synchronize())
	require.NoError(t, again.Close())
	require.NoError(t, p.Close())
	for raw := driver.CUstream(0); raw < 3; raw++ {
		_, err = safe.StreamFromRaw(raw, x)
		assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_HANDLE)
	}
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	require.NoError(t, kernel(t, x, "nothing").Launch(legacy, one))
	require.NoError(t, legacy.Synchronize())
	require.NoError(t, legacy.Close())
}

// TestWaitIsForAPoint: a wait for a stream ends although other goroutines enqueue without
// pause.
func TestWaitIsForAPoint(t *testing.T) {
	x := open(t, 0)
	spin, s := kernel(t, x, "spin"), stream(t, x)
	stop := make(chan struct{})
	var fed sync.WaitGroup
	fed.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, spin.Launch(s, one, safe.Val(uint64(100_000))))
			}
		}
	})
	time.Sleep(5 * time.Millisecond)
	for range 3 {
		require.NoError(t, s.Synchronize())
	}
	close(stop)
	fed.Wait()
	require.NoError(t, s.Synchronize())
}

func TestEvents(t *testing.T) {
	x := open(t, 0)
	g := newGate(t, x)
	fill := kernel(t, x, "fill")
	a, b, start, end := stream(t, x), stream(t, x), event(t, x), event(t, x)
	data := buffer[float32](t, x, 10)
	done, err := end.Query()
	require.NoError(t, err)
	assert.True(t, done, "never recorded")
	require.NoError(t, b.WaitEvent(end), "never recorded")

	require.NoError(t, a.Record(start))
	g.shut(t, a)
	require.NoError(t, fill.Launch(a, perValue(10), safe.Val(uint32(10)), safe.Val(float32(1)), data.Arg()))
	require.NoError(t, a.Record(end))
	require.NoError(t, b.WaitEvent(end))
	require.NoError(t, fill.Launch(b, perValue(10), safe.Val(uint32(10)), safe.Val(float32(2)), data.Arg()))
	done, err = end.Query()
	require.NoError(t, err)
	assert.False(t, done)
	_, err = end.Since(start)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_READY)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, end.Wait(ctx), context.DeadlineExceeded)
	g.open()
	require.NoError(t, end.Synchronize())
	took, err := end.Since(start)
	require.NoError(t, err)
	assert.Positive(t, took)
	got := make([]float32, 10)
	require.NoError(t, data.CopyToHost(got), "waits for b")
	assert.EqualValues(t, 2, got[9])

	_, err = safe.NewEventWith(x, safe.EventOptions{Interprocess: true})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	shared, err := safe.NewEventWith(x, safe.EventOptions{Interprocess: true, DisableTiming: true})
	require.NoError(t, err)
	_, err = shared.IPCHandle()
	require.NoError(t, err)
	require.NoError(t, shared.Close())
}

// TestReset: a reset of the primary context is detected, and closing old objects
// afterwards affects no new ones.
func TestReset(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		b, err := safe.NewBuffer[int32](x, 10)
		require.NoError(t, err)
		reset(t, x)
		_, err = safe.NewStream(x)
		assert.ErrorIs(t, err, safe.ErrReset)
		y, err := safe.Open(0)
		require.NoError(t, err)
		_, err = safe.NewStream(x)
		assert.ErrorIs(t, err, safe.ErrReset)
		assert.NoError(t, b.Close())
		assert.NoError(t, s.Close())
		later, err := safe.NewStream(y)
		require.NoError(t, err)
		assert.NoError(t, x.Close())
		assert.NoError(t, later.Close())
		assert.NoError(t, y.Close())
		if !onGPU {
			assert.Positive(t, simulated.Lost(), "it was a reset")
		}
	})
}
