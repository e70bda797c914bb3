//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Misuse and cleanup of green contexts. Needs the simulated driver.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimGreenDestroyedFirst: the simulator detects a green context that is destroyed
// before its streams.
func TestSimGreenDestroyedFirst(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGreenCtxStreamCreate")
	startClean(t)
	x := open(t, 0)
	g := rawGreen(t, x)
	var s driver.CUstream
	require.NoError(t, driver.CuGreenCtxStreamCreate(&s, g, driver.CU_STREAM_NON_BLOCKING, 0))
	require.NoError(t, driver.CuGreenCtxDestroy(g))
	defer simulated.Reset()
	query, destroy := driver.CuStreamQuery(s), driver.CuStreamDestroy(s)
	if driver.Find("cuStreamGetDevResource") == nil { // from CUDA 13.1 on
		assert.ErrorIs(t, query, driver.CUDA_ERROR_STREAM_DETACHED)
		assert.NoError(t, destroy)
		assert.Empty(t, simulated.Violation())
		return
	}
	assert.ErrorIs(t, query, driver.CUDA_ERROR_CONTEXT_IS_DESTROYED)
	assert.ErrorIs(t, destroy, driver.CUDA_ERROR_CONTEXT_IS_DESTROYED)
	assert.Contains(t, simulated.Violation(), "a green context is destroyed before its streams")
	require.NoError(t, x.Close())
	assert.Eventually(t, func() bool { return simulated.Lost() > 0 }, atOnce, time.Millisecond, "it leaks until the context goes")
}

// TestSimGreenWaitEvent: streams created later wait as well.
func TestSimGreenWaitEvent(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	gate := newGate(t, x)
	parts := splitInto(t, 2)
	g, h, e := green(t, x, parts[0]), green(t, x, parts[1]), event(t, x)
	s := greenStream(t, g)
	gate.shut(t, s)
	require.NoError(t, s.Record(e))
	require.NoError(t, h.WaitEvent(e))
	later := greenStream(t, h)
	done, err := later.Query()
	require.NoError(t, err)
	assert.False(t, done)
	gate.open()
	require.NoError(t, later.Synchronize())
}

// TestSimGreenDropped: objects dropped without Close are destroyed.
func TestSimGreenDropped(t *testing.T) {
	needsSimulated(t)
	parts := splitInto(t, 1)
	startClean(t)
	func() {
		x, err := safe.Open(0)
		require.NoError(t, err)
		g, err := safe.NewGreenContext(x, parts...)
		require.NoError(t, err)
		s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		assert.Equal(t, 1, simulated.Live("green"))
		runtime.KeepAlive(s) // or it is dropped before
	}()
	assert.Eventually(t, func() bool {
		drop()
		return simulated.Live("") == 0
	}, atOnce, 10*time.Millisecond)
	assert.Empty(t, simulated.Violation(), "in the right order")
}

// TestPoolBesideNewGreen: no pool is destroyed while CUDA waits for the primary context's work to make a
// green context.
func TestPoolBesideNewGreen(t *testing.T) {
	needsSimulated(t)
	parts := splitInto(t, 1)
	startClean(t)
	watch(t)
	x := open(t, 0)
	p, err := safe.NewPool(x)
	require.NoError(t, err)
	pools := simulated.Live("pool")
	simulated.Delay("cuGreenCtxCreate", hang)
	made := background(func() {
		g, err := safe.NewGreenContext(x, parts...)
		assert.NoError(t, errors.Join(err, g.Close()))
	})
	inside(t, "driver.CuGreenCtxCreate")
	require.NoError(t, p.Close())
	time.Sleep(50 * time.Millisecond)
	assert.False(t, closed(made))
	assert.Equal(t, pools, simulated.Live("pool"), "a pool is destroyed")
	simulated.Reset() // the delay
	soon(t, made, "NewGreenContext waits for the pool")
	require.Eventually(t, func() bool { return simulated.Live("pool") < pools }, atOnce, time.Millisecond)
	noViolation(t)
}

// greens are the green contexts of a world, none if the driver has none.
type greens struct {
	sms   safe.SMResource
	part  []safe.SMResource
	green *safe.GreenContext
	on    *safe.Stream
}

func (w *world) addGreens() (err error) {
	if w.sms, err = w.x.Device().SMResource(); err != nil {
		if errors.Is(err, safe.ErrNotSupported) {
			return nil
		}
		return err
	}
	if w.part, _, err = w.sms.Split(safe.SplitOptions{Groups: 1}); err != nil {
		return err
	}
	g, err := safe.NewGreenContext(w.x, w.part...)
	if w.green, err = also(w, g, err); err != nil {
		return err
	}
	s, err := w.green.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	w.on, err = also(w, s, err)
	return err
}

func init() {
	operations = append(operations, []operation{
		{"Device.SMResource", func(w *world) error { _, err := w.x.Device().SMResource(); return err }},
		{"Device.Split", func(w *world) error { _, _, err := w.x.Device().Split(safe.SplitOptions{}); return err }},
		{"SMResource.Split", func(w *world) error { _, _, err := w.sms.Split(safe.SplitOptions{Groups: 2}); return err }},
		{"SMResource.SplitGroups", func(w *world) error { _, _, err := w.sms.SplitGroups(safe.SMGroupOptions{Count: 8}); return err }},
		{"NewGreenContext", func(w *world) error {
			c, err := safe.NewGreenContext(w.x, w.part...)
			_, err = also(w, c, err)
			return err
		}},
		{"GreenContext.SMResource", func(w *world) error { _, err := w.green.SMResource(); return err }},
		{"GreenContext.NewStream", func(w *world) error {
			c, err := w.green.NewStreamWith(safe.StreamOptions{NonBlocking: true})
			_, err = also(w, c, err)
			return err
		}},
		{"GreenContext.Record", func(w *world) error { return w.green.Record(w.e) }},
		{"GreenContext.WaitEvent", func(w *world) error { return w.green.WaitEvent(w.e) }},
		{"GreenContext.Wait", func(w *world) error { return w.green.Wait(context.Background()) }},
		{"Stream.GreenContext", func(w *world) error { _, err := w.on.GreenContext(); return err }},
		{"Stream.SMResource", func(w *world) error { _, err := w.on.SMResource(); return err }},
		{"Stream.SMResource", func(w *world) error { _, err := w.s.SMResource(); return err }},
		{"BorrowStream", func(w *world) error {
			if driver.Find("cuStreamGetCtx_v2") != nil {
				return nil // the driver rejects it
			}
			c, err := safe.BorrowStream(w.on.Raw(), w.x, w.on)
			_, err = also(w, c, err)
			return err
		}},
	}...)
}
