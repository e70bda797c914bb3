//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Events and memory that other code has made. The tests run on the simulated driver and
// on a GPU.

package safe_test

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	operations = append(operations,
		operation{"BorrowEvent", func(w *world) error {
			e, err := safe.BorrowEvent(w.e.Raw(), w.x, w.e)
			return errors.Join(err, e.Close())
		}},
		operation{"EventFromRaw", func(w *world) error {
			raw, err := createEvent(w.x)
			if err != nil {
				return &safe.Error{Op: "EventFromRaw", Code: err.(driver.CUresult), Err: err}
			}
			e, err := safe.EventFromRaw(raw, w.x)
			if err != nil {
				return errors.Join(err, destroyEvent(w.x, raw))
			}
			_, err = also(w, e, err)
			return err
		}},
		operation{"BufferFromRaw", func(w *world) error {
			raw, err := createMemory(w.x, 64)
			if err != nil {
				return &safe.Error{Op: "BufferFromRaw", Code: err.(driver.CUresult), Err: err}
			}
			b, err := safe.BufferFromRaw[byte](w.x, raw, 64)
			if err != nil {
				return errors.Join(err, w.x.WithCurrent(func() error { return driver.CuMemFree(raw) }))
			}
			_, err = also(w, b, err)
			return err
		}},
	)
}

func createEvent(x *safe.Context) (raw driver.CUevent, err error) {
	err = x.WithCurrent(func() error { return driver.CuEventCreate(&raw, 0) })
	return raw, code(err)
}

func destroyEvent(x *safe.Context, raw driver.CUevent) error {
	return x.WithCurrent(func() error { return driver.CuEventDestroy(raw) })
}

func createMemory(x *safe.Context, size uint64) (raw driver.CUdeviceptr, err error) {
	err = x.WithCurrent(func() error { return driver.CuMemAlloc(&raw, size) })
	return raw, code(err)
}

// code returns the driver's code of an error.
func code(err error) error {
	var c driver.CUresult
	if errors.As(err, &c) {
		return c
	}
	return err
}

func TestEventFromRaw(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	raw, err := createEvent(x)
	require.NoError(t, err)
	e, err := safe.EventFromRaw(raw, x)
	require.NoError(t, err)
	assert.Equal(t, raw, e.Raw())
	require.NoError(t, s.Record(e))
	require.NoError(t, e.Synchronize())
	start := event(t, x)
	require.NoError(t, s.Record(start))
	require.NoError(t, s.Record(e))
	require.NoError(t, e.Synchronize())
	took, err := e.Since(start)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, time.Duration(0))
	require.NoError(t, e.Close(), "which destroys it")

	_, err = safe.EventFromRaw(0, x)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_HANDLE)
	_, err = safe.BorrowEvent(0, x, nil)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_HANDLE)
	_, err = safe.BorrowEvent(1, nil, nil)
	assert.ErrorIs(t, err, safe.ErrClosed)
}

// TestBorrowEvent: closing a borrowed event leaves it to its owner.
func TestBorrowEvent(t *testing.T) {
	x := open(t, 0)
	s, gate := stream(t, x), newGate(t, x)
	raw, err := createEvent(x)
	require.NoError(t, err)
	e, err := safe.BorrowEvent(raw, x, "owner")
	require.NoError(t, err)
	gate.shut(t, s)
	require.NoError(t, s.Record(e))
	done, err := e.Query()
	require.NoError(t, err)
	assert.False(t, done)
	gate.open()
	require.NoError(t, e.Synchronize())
	require.NoError(t, e.Close())
	require.NoError(t, destroyEvent(x, raw), "it is still there")
}

// TestBorrowedEventShares: an Event and those that borrow it share its state.
func TestBorrowedEventShares(t *testing.T) {
	x := open(t, 0)
	s, e := stream(t, x), event(t, x)
	borrowed, err := safe.BorrowEvent(e.Raw(), x, nil)
	require.NoError(t, err)
	closing(t, borrowed)
	c, err := s.BeginCapture()
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	_, err = borrowed.Query()
	assert.ErrorIs(t, err, safe.ErrCapturing, "a query would end the capture")
	g, err := c.End()
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, s.Record(borrowed))
	require.NoError(t, e.Synchronize())
	for range 2 { // the second after one is closed
		more, err := safe.BorrowEvent(e.Raw(), x, nil)
		require.NoError(t, err)
		assert.True(t, safe.SameRecording(e, more))
		require.NoError(t, more.Close())
	}

	require.NoError(t, e.Close())
	require.NoError(t, s.Record(borrowed), "it keeps the event alive")
	require.NoError(t, borrowed.Synchronize())
	again, err := safe.BorrowEvent(borrowed.Raw(), x, nil)
	require.NoError(t, err)
	require.NoError(t, borrowed.Close())
	_, err = again.Query()
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestBufferFromRaw(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	raw, err := createMemory(x, 400)
	require.NoError(t, err)
	b, err := safe.BufferFromRaw[float32](x, raw, 100)
	require.NoError(t, err)
	require.NoError(t, b.FillAsync(s, 7))
	assert.EqualValues(t, 7, values(t, b)[99])
	require.NoError(t, b.Close(), "which frees it")

	raw, err = createMemory(x, 400)
	require.NoError(t, err)
	free := func() error { return x.WithCurrent(func() error { return driver.CuMemFree(raw) }) }
	defer func() { assert.NoError(t, free(), "it is still the caller's") }()
	h := host[float32](t, x, 10)
	own := created(t, x, safe.ContextOptions{})
	for _, c := range []struct {
		name string
		x    *safe.Context
		at   driver.CUdeviceptr
		n    int
		want error
	}{
		{"too many values", x, raw, 1 << 30, safe.ErrRange},
		{"no values", x, raw, 0, safe.ErrRange},
		{"beyond the end", x, raw + 4, 100, safe.ErrRange},
		{"the middle", x, raw + 4, 1, safe.ErrInvalidArgument},
		{"another context", own, raw, 1, safe.ErrContextMismatch},
		{"host memory", x, driver.CUdeviceptr(uintptr(unsafe.Pointer(&h.Data()[0]))), 1, safe.ErrInvalidArgument},
		{"no memory", x, 64, 1, driver.CUDA_ERROR_NOT_FOUND},
		{"no context", nil, raw, 1, safe.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := safe.BufferFromRaw[float32](c.x, c.at, c.n)
			assert.ErrorIs(t, err, c.want)
		})
	}
}

// TestBufferFromRawElsewhere: memory of a pool belongs to its device.
func TestBufferFromRawElsewhere(t *testing.T) {
	x, y := open(t, 0), second(t)
	b, err := safe.NewBufferAsync[float32](stream(t, y), 4)
	require.NoError(t, err)
	closing(t, b)
	_, err = safe.BufferFromRaw[float32](x, b.Raw(), 4)
	assert.ErrorIs(t, err, safe.ErrContextMismatch)
}

// TestBufferFromRawManaged: the host can access managed memory that was taken over, and
// memory of pools can be taken over.
func TestBufferFromRawManaged(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	var raw driver.CUdeviceptr
	require.NoError(t, x.WithCurrent(func() error {
		return driver.CuMemAllocManaged(&raw, 400, driver.CU_MEM_ATTACH_GLOBAL)
	}))
	b, err := safe.BufferFromRaw[float32](x, raw, 100)
	require.NoError(t, err)
	require.NoError(t, b.Fill(5))
	assert.EqualValues(t, 5, b.Data()[99])
	require.NoError(t, b.Close())

	require.NoError(t, s.EnqueueRaw(func(stream driver.CUstream) error { return driver.CuMemAllocAsync(&raw, 400, stream) }))
	require.NoError(t, s.Synchronize())
	b, err = safe.BufferFromRaw[float32](x, raw, 100)
	require.NoError(t, err)
	require.NoError(t, b.Fill(6))
	assert.Nil(t, b.Data())
	require.NoError(t, b.Close())
}

// TestSinceOfTwoContexts: an event of another context is refused by every driver alike.
func TestSinceOfTwoContexts(t *testing.T) {
	x := open(t, 0)
	own, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	closing(t, own)
	var of [2]*safe.Event
	for i, c := range []*safe.Context{x, own} {
		of[i] = event(t, c)
		require.NoError(t, stream(t, c).Record(of[i]))
		require.NoError(t, of[i].Synchronize())
	}
	_, err = of[1].Since(of[0])
	assert.ErrorIs(t, err, safe.ErrContextMismatch)
}

// TestSinceBesideCaptures tests that Since and captured records of its events do not wait for each
// other.
func TestSinceBesideCaptures(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	e := event(t, x)
	require.NoError(t, s.Record(e))
	stop := make(chan struct{})
	over := make(chan struct{})
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = e.Since(e)
				}
			}
		}()
	}
	go func() {
		defer close(over)
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			g, err := s.Capture(func() error { return s.Record(e) })
			if !assert.NoError(t, err) {
				return
			}
			g.Close()
			assert.NoError(t, s.Record(e))
		}
	}()
	select {
	case <-over:
		close(stop)
		time.Sleep(50 * time.Millisecond)
	case <-time.After(hang):
		panic("Since hangs")
	}
}

// TestBorrowedEventAfterWait tests that a program may destroy an event once the Event that borrowed it
// is closed, after a wait that was given up.
func TestBorrowedEventAfterWait(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s := stream(t, x)
	openIt := stick(t, x, s)
	defer openIt()
	defer safe.ClosePatience(hang)()
	simulated.Widen(3 * time.Millisecond)
	defer simulated.Widen(0)
	for range 20 {
		raw, err := createEvent(x)
		require.NoError(t, err)
		e, err := safe.BorrowEvent(raw, x, nil)
		require.NoError(t, err)
		require.NoError(t, s.Record(e))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
		err = e.Wait(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, e.Close())
		require.NoError(t, destroyEvent(x, raw))
	}
	noViolation(t)
}

// TestEventFromRawBesideCloseAll: an event whose ownership was taken is destroyed, also if its context closes
// all objects at once.
func TestEventFromRawBesideCloseAll(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	before := simulated.Live("event")
	for range 200 {
		y, err := safe.Open(0)
		require.NoError(t, err)
		var raw driver.CUevent
		require.NoError(t, x.WithCurrent(func() error { return driver.CuEventCreate(&raw, 0) }))
		closed := make(chan error)
		go func() { closed <- y.CloseAll() }()
		e, err := safe.EventFromRaw(raw, y)
		require.NoError(t, <-closed)
		if err != nil {
			err = x.WithCurrent(func() error { return driver.CuEventDestroy(raw) })
		}
		require.NoError(t, errors.Join(err, e.Close()))
	}
	assert.Eventually(t, func() bool { return simulated.Live("event") <= before }, atOnce, time.Millisecond)
}
