//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Contexts that the program creates. The tests run on the simulated driver and on a GPU.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	operations = append(operations,
		operation{"NewContext", func(w *world) error {
			c, err := safe.NewContext(w.x.Device())
			_, err = also(w, c, err)
			return err
		}},
	)
}

func created(t *testing.T, x *safe.Context, o safe.ContextOptions) *safe.Context {
	t.Helper()
	own, err := safe.NewContextWith(x.Device(), o)
	require.NoError(t, err)
	closing(t, own)
	return own
}

// filled runs a kernel in a context and returns the memory that it has written.
func filled(t *testing.T, x *safe.Context, s *safe.Stream, v float32) *safe.Buffer[float32] {
	t.Helper()
	b := buffer[float32](t, x, 100)
	require.NoError(t, kernel(t, x, "fill").Launch(s, perValue(100), safe.Val(uint32(100)), safe.Val(v), b.Arg()))
	return b
}

func values(t *testing.T, b *safe.Buffer[float32]) []float32 {
	t.Helper()
	got := make([]float32, b.Len())
	require.NoError(t, b.CopyToHost(got))
	return got
}

// TestNewContext: contexts of one device are separate, and copies between them work.
func TestNewContext(t *testing.T) {
	x := open(t, 0)
	own := created(t, x, safe.ContextOptions{Flags: driver.CU_CTX_SCHED_BLOCKING_SYNC})
	assert.Zero(t, current(t), "it is not left current")
	assert.NotEqual(t, x.Raw(), own.Raw())
	assert.Equal(t, x.Device(), own.Device())
	var flags driver.CUctx_flags
	require.NoError(t, own.WithCurrent(func() error { return driver.CuCtxGetFlags(&flags) }))
	assert.NotZero(t, flags&driver.CU_CTX_SCHED_BLOCKING_SYNC)

	s, there := stream(t, x), stream(t, own)
	a, b := filled(t, x, s, 1), filled(t, own, there, 2)
	assert.EqualValues(t, 2, values(t, b)[99])
	assert.ErrorIs(t, kernel(t, own, "fill").Launch(there, perValue(1), safe.Val(uint32(1)), safe.Val(float32(0)), a.Arg()), safe.ErrContextMismatch)
	assert.ErrorIs(t, a.FillAsync(there, 0), safe.ErrContextMismatch)
	require.NoError(t, a.CopyFrom(b))
	assert.EqualValues(t, 2, values(t, a)[0])
	require.NoError(t, own.Synchronize())

	parts, _, err := x.Device().Split(safe.SplitOptions{Groups: 1})
	if err == nil {
		_, err = safe.NewGreenContext(own, parts...)
		assert.ErrorIs(t, err, safe.ErrContextMismatch)
	}
	_, err = safe.NewContextWith(x.Device(), safe.ContextOptions{Flags: 1 << 20})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
}

// TestNewContextClose: objects keep a context alive that was closed before them, and so
// does a Context that borrows it.
func TestNewContextClose(t *testing.T) {
	startClean(t)
	x := open(t, 0)
	own, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	raw := own.Raw()
	s := stream(t, own)
	borrowed, err := safe.BorrowContext(raw, nil)
	require.NoError(t, err)
	b, err := safe.NewBuffer[float32](own, 10)
	require.NoError(t, err)
	require.NoError(t, own.Close())
	require.NoError(t, own.Close())
	assert.Zero(t, own.Raw())
	require.NoError(t, b.FillAsync(s, 3))
	assert.EqualValues(t, 3, values(t, b)[9])
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
	_, free, err := borrowed.MemoryInfo()
	require.NoError(t, err, "the context is still there")
	assert.NotZero(t, free)
	require.NoError(t, borrowed.Close())
	_, err = safe.NewBuffer[float32](own, 10)
	assert.ErrorIs(t, err, safe.ErrClosed)
	if !onGPU {
		settle(t)
		assert.Zero(t, simulated.Live("context"))
	}
}

// TestNewContextCloseAll: a context can close all that it has.
func TestNewContextCloseAll(t *testing.T) {
	startClean(t)
	x := open(t, 0)
	own, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	b, err := safe.NewBuffer[float32](own, 10)
	require.NoError(t, err)
	e, err := safe.NewEvent(own)
	require.NoError(t, err)
	borrowed, err := safe.BorrowEvent(e.Raw(), own, nil)
	require.NoError(t, err)
	assert.Equal(t, own.Raw(), borrowed.Context().Raw())
	require.NoError(t, own.CloseAll())
	assert.ErrorIs(t, b.Fill(0), safe.ErrClosed)
	_, err = borrowed.Query()
	assert.ErrorIs(t, err, safe.ErrClosed)
	require.NoError(t, own.Close())
	if !onGPU {
		settle(t)
		assert.Zero(t, simulated.Live("context"))
	}
}

// TestNewContextDestroyed: closing a context that other code has destroyed does not
// destroy the one that got its handle.
func TestNewContextDestroyed(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		own, err := safe.NewContext(x.Device())
		require.NoError(t, err)
		raw := own.Raw()
		require.NoError(t, driver.CuCtxDestroy(raw))
		next, err := safe.NewContext(x.Device())
		require.NoError(t, err)
		t.Logf("%#x after %#x", uintptr(next.Raw()), uintptr(raw))
		require.NoError(t, own.Close())
		assert.NoError(t, next.Synchronize())
		require.NoError(t, next.Close())
	})
}

// TestResetSparesOwnContexts: a reset of the primary context affects its objects only,
// those made in a Context that borrows it included.
func TestResetSparesOwnContexts(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		own, err := safe.NewContext(x.Device())
		require.NoError(t, err)
		mine, err := safe.NewBuffer[float32](own, 10)
		require.NoError(t, err)
		require.NoError(t, mine.Fill(1))
		reset(t, x)
		assert.EqualValues(t, 1, values(t, mine)[9])
		assert.ErrorIs(t, x.Synchronize(), safe.ErrReset)
		require.NoError(t, mine.Close())
		require.NoError(t, own.Close())
	})
}

// TestResetReachesBorrowedContexts: objects in a Context that borrows the primary context
// notice its reset.
func TestResetReachesBorrowedContexts(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		var raw driver.CUcontext
		require.NoError(t, x.Close())
		require.NoError(t, driver.CuDevicePrimaryCtxRetain(&raw, x.Device().Raw()))
		y, err := safe.BorrowContext(raw, nil)
		require.NoError(t, err)
		s, err := safe.NewStream(y)
		require.NoError(t, err)
		reset(t, x)
		_, err = safe.NewStream(y)
		assert.ErrorIs(t, err, safe.ErrReset)
		require.NoError(t, s.Close())
		require.NoError(t, y.Close())
		require.NoError(t, driver.CuDevicePrimaryCtxRelease(x.Device().Raw()))
	})
}

// TestContextEndsBesideClone tests that the end of a context destroys its internal streams in turn with
// copies of graphs.
func TestContextEndsBesideClone(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	watch(t)
	x := open(t, 0)
	y, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	b, err := safe.NewZeroed[uint32](y, 16) // a stream for the heap, and one for copies
	require.NoError(t, err)
	require.NoError(t, b.Close())
	g := newGraph(t, x)
	simulated.Delay("cuGraphClone", hang)
	defer simulated.Reset()
	cloned := inDriver(t, func() error {
		c, err := g.Clone()
		return errors.Join(err, c.Close())
	})
	before := simulated.Calls("cuStreamDestroy_v2")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		assert.NoError(t, y.Close())
	}()
	time.Sleep(70 * time.Millisecond)
	assert.Equal(t, before, simulated.Calls("cuStreamDestroy_v2"), "streams are destroyed during cuGraphClone")
	assert.Empty(t, cloned)
	simulated.Reset() // ends the delay
	require.NoError(t, <-cloned)
	<-closed
}

// TestCloseContextBesideHostFunc: closing a context holds nothing up while a host function runs, for which CUDA
// would wait.
func TestCloseContextBesideHostFunc(t *testing.T) {
	watch(t)
	x := open(t, 0)
	own := created(t, x, safe.ContextOptions{})
	s, other := stream(t, x), stream(t, x)
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, g)
	e := executable(t, g)
	runs, goOn := make(chan struct{}), make(chan struct{})
	f, err := s.LaunchHostFunc(func() { close(runs); <-goOn })
	require.NoError(t, err)
	next(t, runs)
	require.NoError(t, own.Close())
	assert.NoError(t, e.Launch(other))
	assert.NoError(t, other.Synchronize())
	close(goOn)
	_, err = f.Wait(t.Context())
	assert.NoError(t, err)
}

// TestCopyOfOtherContexts: a stream copies between two contexts only if one of them is its own.
func TestCopyOfOtherContexts(t *testing.T) {
	x, y := open(t, 0), second(t)
	s, a, b := stream(t, created(t, x, safe.ContextOptions{})), buffer[int32](t, x, 4), buffer[int32](t, y, 4)
	assert.ErrorIs(t, a.CopyFromAsync(s, b), safe.ErrContextMismatch)
	assert.NoError(t, a.CopyFromAsync(stream(t, x), b))
	assert.NoError(t, a.CopyFromAsync(stream(t, y), b))
	_, err := a.Download()
	assert.NoError(t, err)
}
