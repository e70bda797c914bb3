//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// How the driver treats handles and captures of green contexts. Needs any driver for CUDA
// 12.4 or newer.

package safe_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rawGreen creates a green context of one group through package driver.
func rawGreen(t *testing.T, x *safe.Context) (g driver.CUgreenCtx) {
	t.Helper()
	part := splitInto(t, 1)[0].Raw()
	var desc driver.CUdevResourceDesc
	require.NoError(t, driver.CuDevResourceGenerateDesc(&desc, &part, 1))
	require.NoError(t, driver.CuGreenCtxCreate(&g, desc, x.Device().Raw(), driver.CU_GREEN_CTX_DEFAULT_STREAM))
	return g
}

// TestFactGreenContext: assumptions of package safe about handles.
func TestFactGreenContext(t *testing.T) {
	x := open(t, 0)
	needs(t, "cuGreenCtxStreamCreate")
	g := rawGreen(t, x)
	defer func() { assert.NoError(t, driver.CuGreenCtxDestroy(g)) }()
	var view, of, primary driver.CUcontext
	require.NoError(t, driver.CuCtxFromGreenCtx(&view, g))
	assert.NotEqual(t, x.Raw(), view)
	var s driver.CUstream
	assert.ErrorIs(t, driver.CuGreenCtxStreamCreate(&s, g, 0, 0), driver.CUDA_ERROR_INVALID_VALUE, "a blocking stream")
	require.NoError(t, driver.CuGreenCtxStreamCreate(&s, g, driver.CU_STREAM_NON_BLOCKING, 0))
	var green driver.CUgreenCtx
	require.NoError(t, x.WithCurrent(func() error {
		return first(
			func() error { return driver.CuStreamGetCtx(s, &of) },
			func() error { return driver.CuStreamGetCtx_v2(s, &primary, &green) },
			func() error { return driver.CuStreamDestroy(s) },
		)
	}))
	assert.Equal(t, view, of)
	assert.Equal(t, x.Raw(), primary)
	assert.Equal(t, g, green)
	assert.ErrorIs(t, driver.CuCtxDestroy(view), driver.CUDA_ERROR_INVALID_CONTEXT)

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, driver.CuCtxPushCurrent(view))
	now := current(t)
	require.NoError(t, driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING))
	require.NoError(t, driver.CuStreamGetGreenCtx(s, &green))
	require.NoError(t, driver.CuStreamDestroy(s))
	require.NoError(t, driver.CuCtxPopCurrent(&of))
	assert.Equal(t, view, now)
	assert.Equal(t, view, of)
	assert.Equal(t, g, green)
	if driver.Find("cuGreenCtxGetId") == nil {
		var a, b uint64
		require.NoError(t, driver.CuGreenCtxGetId(g, &a))
		require.NoError(t, driver.CuCtxGetId(view, &b))
		assert.Equal(t, a, b)
	}
}

// TestFactGreenCapture: calls on a whole green context invalidate captures of its
// streams, in every mode.
func TestFactGreenCapture(t *testing.T) {
	x := open(t, 0)
	needs(t, "cuGreenCtxStreamCreate")
	g := rawGreen(t, x)
	defer func() { assert.NoError(t, driver.CuGreenCtxDestroy(g)) }()
	e := event(t, x)
	for name, call := range map[string]func() error{
		"record": func() error { return driver.CuGreenCtxRecordEvent(g, e.Raw()) },
		"wait":   func() error { return driver.CuGreenCtxWaitEvent(g, e.Raw()) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, x.WithCurrent(func() error {
				var s driver.CUstream
				var graph driver.CUgraph
				require.NoError(t, driver.CuGreenCtxStreamCreate(&s, g, driver.CU_STREAM_NON_BLOCKING, 0))
				require.NoError(t, driver.CuStreamBeginCapture(s, relaxedMode))
				err := safe.WithCaptureMode(safe.CaptureRelaxed, call)
				assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
				assert.ErrorIs(t, driver.CuStreamEndCapture(s, &graph), driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
				return driver.CuStreamDestroy(s)
			}))
		})
	}
}

// TestFactGreenCreateWaits: creating a green context waits for the work of its device's primary
// context. Calls for other streams return meanwhile, but their work does not begin.
func TestFactGreenCreateWaits(t *testing.T) {
	x := open(t, 0)
	needs(t, "cuGreenCtxStreamCreate")
	s, other, b, e := stream(t, x), stream(t, x), buffer[uint32](t, x, 4), event(t, x)
	unstick := stickOn(t, host[uint32](t, x, 1), s)
	defer unstick()
	var g driver.CUgreenCtx
	created := background(func() { g = rawGreen(t, x) })
	require.Eventually(t, func() bool { // the first work may be there before the creation
		assert.NoError(t, errors.Join(b.FillAsync(other, 0), other.Record(e)))
		time.Sleep(150 * time.Millisecond)
		done, err := e.Query()
		return assert.NoError(t, err) && !done
	}, hang, time.Millisecond)
	assert.False(t, closed(created))
	unstick()
	<-created
	require.NoError(t, other.Synchronize())
	assert.NoError(t, driver.CuGreenCtxDestroy(g))
}

// TestFactGreenQueue: a record of a green context's work takes a place in the queues of its streams if
// it takes the time.
func TestFactGreenQueue(t *testing.T) {
	for name, flags := range map[string]driver.CUevent_flags{"records": driver.CU_EVENT_DEFAULT, "records without time": driver.CU_EVENT_DISABLE_TIMING} {
		t.Run(name, func(t *testing.T) {
			needs(t, "cuGreenCtxStreamCreate")
			w := newFacts(t)
			g := rawGreen(t, w.x)
			var raw driver.CUstream
			require.NoError(t, driver.CuGreenCtxStreamCreate(&raw, g, driver.CU_STREAM_NON_BLOCKING, 0))
			s, err := safe.BorrowStream(raw, w.x, nil)
			require.NoError(t, err)
			var e driver.CUevent
			require.NoError(t, w.x.WithCurrent(func() error { e = rawEvent(t, w, flags); return nil }))
			open := stickOn(t, host[uint32](t, w.x, 1), s)
			defer open()
			var made, taken atomic.Int64
			launched := background(func() {
				_ = w.x.WithCurrent(func() error {
					for range 5000 {
						assert.NoError(t, w.launch(raw))
						made.Add(1)
					}
					return nil
				})
			})
			t.Logf("%d launches are queued", untilBlocked(&made))
			recorded := background(func() { // more than there are places, whatever the launches take
				_ = w.x.WithCurrent(func() error {
					for range 5000 {
						assert.NoError(t, driver.CuGreenCtxRecordEvent(g, e))
						taken.Add(1)
					}
					return nil
				})
			})
			if flags == driver.CU_EVENT_DISABLE_TIMING {
				soon(t, recorded, "they take no places")
			} else {
				t.Logf("%d records are queued", untilBlocked(&taken))
				assert.False(t, closed(recorded))
			}
			open()
			<-launched
			<-recorded
			require.NoError(t, errors.Join(s.SynchronizeBlocking(), s.Close()))
			require.NoError(t, w.x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
			require.NoError(t, driver.CuGreenCtxDestroy(g))
		})
	}
}
