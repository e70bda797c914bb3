//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What the driver allows in host functions, and which calls block. Needs any driver,
// simulated or a GPU's.

package safe_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostFunc enqueues a call of f, which stays reachable until the test ends.
func hostFunc(t *testing.T, s driver.CUstream, f func()) error {
	h := drivertest.NewHandle(f)
	t.Cleanup(h.Delete)
	return driver.CuLaunchHostFunc(s, driver.CUhostFn(drivertest.HostFunc()), uintptr(h))
}

// statusCallback is hostFunc for a callback with a status.
func statusCallback(t *testing.T, s driver.CUstream, f func(stream uintptr, status int)) error {
	h := drivertest.NewHandle(f)
	t.Cleanup(h.Delete)
	return driver.CuStreamAddCallback(s, driver.CUstreamCallback(drivertest.StreamCallback()), uintptr(h), 0)
}

// next receives the next value.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(hang):
		require.Fail(t, "nothing came")
		panic("unreachable")
	}
}

// TestFactHostFuncsShareAThread: it is not one of the program's threads.
func TestFactHostFuncsShareAThread(t *testing.T) {
	w := newFacts(t)
	threads := make(chan int, 12)
	require.NoError(t, onThreadOf(w.x, func() error {
		for range 4 {
			for _, s := range []driver.CUstream{w.s, w.other, w.blocking} {
				if err := hostFunc(t, s, func() { threads <- rt.Thread() }); err != nil {
					return err
				}
			}
		}
		return driver.CuCtxSynchronize()
	}))
	thread := next(t, threads)
	for range cap(threads) - 1 {
		assert.Equal(t, thread, next(t, threads))
	}
	assert.NotEqual(t, thread, onThread(rt.Thread))
}

func TestFactStreamWaitsForHostFunc(t *testing.T) {
	w := newFacts(t)
	release := make(chan struct{})
	var ran atomic.Bool
	assert.NoError(t, onThreadOf(w.x, func() error {
		return first(
			func() error { return hostFunc(t, w.s, func() { <-release; ran.Store(true) }) },
			func() error { return w.launch(w.s) },
			func() error {
				assert.ErrorIs(t, driver.CuStreamQuery(w.s), driver.CUDA_ERROR_NOT_READY)
				assert.NoError(t, driver.CuStreamSynchronize(w.other), "other streams go on")
				close(release)
				return driver.CuStreamSynchronize(w.s)
			},
			func() error { assert.True(t, ran.Load()); return nil },
		)
	}))
}

// TestFactHostFuncHoldsUpContexts: while a host function runs, the driver does not destroy a context, of any device, and
// mostly creates none. Streams, modules and memory come and go.
func TestFactHostFuncHoldsUpContexts(t *testing.T) {
	var ctx driver.CUcontext
	create := func(w *facts) error {
		return onThread(func() error {
			if err := driver.CuCtxCreate_v2(&ctx, 0, w.x.Device().Raw()); err != nil {
				return err
			}
			return driver.CuCtxPopCurrent(new(driver.CUcontext))
		})
	}
	destroy := func(*facts) error { return onThread(func() error { return driver.CuCtxDestroy(ctx) }) }
	nothing := func(*facts) error { return nil }
	for _, c := range []struct {
		name              string
		waits             bool
		sometimes         bool // it does not wait: driver 580
		before, do, after func(w *facts) error
	}{
		{"CtxCreate", true, true, nothing, create, destroy},
		{"CtxDestroy", true, false, create, destroy, nothing},
		{"StreamCreate", false, false, nothing, func(w *facts) error {
			return onThreadOf(w.x, func() error { return driver.CuStreamCreate(&w.moreStream, 0) })
		}, nothing},
		{"StreamDestroy", false, false, nothing, func(w *facts) error {
			return onThreadOf(w.x, func() error { return gone(&w.other, driver.CuStreamDestroy(w.other)) })
		}, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			startClean(t) // beside many streams, a further one waits for all work
			w := newFacts(t)
			require.NoError(t, c.before(w))
			runs, goOn := make(chan struct{}), make(chan struct{})
			end := sync.OnceFunc(func() { close(goOn) })
			t.Cleanup(end)
			require.NoError(t, onThreadOf(w.x, func() error { return hostFunc(t, w.s, func() { close(runs); <-goOn }) }))
			next(t, runs)
			var err error
			over := background(func() { err = c.do(w) })
			if c.waits {
				select {
				case <-over:
					assert.True(t, c.sometimes, "it does not wait")
					assert.NoError(t, err)
				case <-time.After(200 * time.Millisecond):
				}
			} else {
				next(t, over)
			}
			end()
			next(t, over)
			require.NoError(t, err)
			require.NoError(t, c.after(w))
		})
	}
}

// TestFactInsideHostFunc: most calls with a stream or an event are allowed; calls that
// need to know the context or the device are not.
func TestFactInsideHostFunc(t *testing.T) {
	const refused = driver.CUDA_ERROR_NOT_PERMITTED
	for _, c := range []struct {
		name  string
		since int32
		want  error
		do    func(w *facts) error
	}{
		{"GetErrorName", 0, nil, func(*facts) error { var p *byte; return driver.CuGetErrorName(700, &p) }},
		{"DriverGetVersion", 0, nil, func(*facts) error { var n int32; return driver.CuDriverGetVersion(&n) }},
		{"ThreadExchangeStreamCaptureMode", 0, nil, func(*facts) error {
			mode := relaxedMode
			exchange := func() error { return driver.CuThreadExchangeStreamCaptureMode(&mode) }
			return first(exchange, exchange)
		}},
		{"StreamQuery", 13000, nil, func(w *facts) error { return driver.CuStreamQuery(w.other) }},
		{"StreamSynchronize", 13000, nil, func(w *facts) error { return driver.CuStreamSynchronize(w.other) }},
		{"StreamIsCapturing", 13000, nil, func(w *facts) error {
			var status driver.CUstreamCaptureStatus
			return driver.CuStreamIsCapturing(w.other, &status)
		}},
		{"StreamGetFlags", 13000, nil, func(w *facts) error { var f driver.CUstream_flags; return driver.CuStreamGetFlags(w.other, &f) }},
		{"StreamGetPriority", 13000, nil, func(w *facts) error { var p int32; return driver.CuStreamGetPriority(w.other, &p) }},
		{"StreamGetCtx", 13000, nil, func(w *facts) error { var c driver.CUcontext; return driver.CuStreamGetCtx(w.other, &c) }},
		{"StreamGetId", 13000, nil, func(w *facts) error { var id uint64; return driver.CuStreamGetId(w.other, &id) }},
		{"StreamWaitEvent", 13000, nil, func(w *facts) error { return driver.CuStreamWaitEvent(w.other, w.recorded, 0) }},
		{"StreamAddCallback", 13000, nil, func(w *facts) error {
			return statusCallback(t, w.other, func(uintptr, int) {})
		}},
		{"LaunchHostFunc", 13000, nil, func(w *facts) error { return hostFunc(t, w.other, func() {}) }},
		{"StreamDestroy", 13000, nil, func(w *facts) error { return gone(&w.other, driver.CuStreamDestroy(w.other)) }},
		{"EventQuery", 13000, nil, func(w *facts) error { return driver.CuEventQuery(w.recorded) }},
		{"EventSynchronize", 13000, nil, func(w *facts) error { return driver.CuEventSynchronize(w.recorded) }},
		{"EventRecord", 13000, nil, func(w *facts) error { return driver.CuEventRecord(w.recorded, w.other) }},
		{"EventRecordWithFlags", 13000, nil, func(w *facts) error { return driver.CuEventRecordWithFlags(w.recorded, w.other, 0) }},
		{"EventElapsedTime", 13000, nil, func(w *facts) error { var ms float32; return driver.CuEventElapsedTime(&ms, w.recorded, w.recorded) }},
		{"EventDestroy", 13000, nil, func(w *facts) error { return gone(&w.recorded, driver.CuEventDestroy(w.recorded)) }},
		{"MemsetD8Async", 13000, nil, func(w *facts) error { return driver.CuMemsetD8Async(w.memory, 1, factSize, w.other) }},

		{"DeviceGetCount", 0, refused, func(*facts) error { var n int32; return driver.CuDeviceGetCount(&n) }},
		{"DeviceGetAttribute", 0, refused, func(*facts) error {
			var n int32
			return driver.CuDeviceGetAttribute(&n, driver.CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0)
		}},
		{"CtxGetCurrent", 0, refused, func(*facts) error { var c driver.CUcontext; return driver.CuCtxGetCurrent(&c) }},
		{"CtxSetCurrent", 0, refused, func(w *facts) error { return driver.CuCtxSetCurrent(w.x.Raw()) }},
		{"CtxPushCurrent", 0, refused, func(w *facts) error { return driver.CuCtxPushCurrent(w.x.Raw()) }},
		{"CtxSynchronize", 0, refused, func(*facts) error { return driver.CuCtxSynchronize() }},
		{"StreamCreate", 0, refused, func(*facts) error { var s driver.CUstream; return driver.CuStreamCreate(&s, 0) }},
		{"EventCreate", 0, refused, func(*facts) error { var e driver.CUevent; return driver.CuEventCreate(&e, 0) }},
		{"MemAlloc", 0, refused, func(*facts) error { var p driver.CUdeviceptr; return driver.CuMemAlloc(&p, factSize) }},
		{"MemFree", 0, refused, func(w *facts) error { return gone(&w.memory, driver.CuMemFree(w.memory)) }},
		{"MemFreeHost", 0, refused, func(w *facts) error { return gone(&w.host, driver.CuMemFreeHost(w.host)) }},
		{"MemAllocAsync", 0, refused, func(w *facts) error { var p driver.CUdeviceptr; return driver.CuMemAllocAsync(&p, factSize, w.other) }},
		{"MemFreeAsync", 0, refused, func(w *facts) error { return gone(&w.async, driver.CuMemFreeAsync(w.async, w.other)) }},
		{"MemcpyHtoDAsync", 0, refused, func(w *facts) error { return driver.CuMemcpyHtoDAsync(w.memory, w.host, factSize, w.other) }},
		{"ModuleUnload", 0, refused, func(w *facts) error { return gone(&w.module, driver.CuModuleUnload(w.module)) }},
		{"LaunchKernel", 0, refused, func(w *facts) error { return w.launch(w.other) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			needsDriver(t, c.since, "what it takes without a current context was not measured")
			w := newFacts(t)
			results := make(chan error, 1)
			require.NoError(t, onThreadOf(w.x, func() error {
				return first(
					func() error { return hostFunc(t, w.s, func() { results <- c.do(w) }) },
					func() error { return driver.CuCtxSynchronize() },
				)
			}))
			assert.Equal(t, c.want, next(t, results))
		})
	}
}

// waits returns whether a call blocks until a gate opens that keeps an unrelated stream
// of the context busy.
func waits(t *testing.T, w *facts, g *gate, s *safe.Stream, openAfter time.Duration, do func(w *facts) error) bool {
	t.Helper()
	g.shut(t, s)
	var opened atomic.Bool
	timer := time.AfterFunc(openAfter, func() { opened.Store(true); g.open() })
	defer timer.Stop()
	assert.NoError(t, onThreadOf(w.x, func() error { return do(w) }))
	waited := opened.Load()
	g.open()
	require.NoError(t, s.Synchronize())
	return waited
}

// TestFactFreesWait: freeing waits for all work of the context, even on non-blocking
// streams. Stream-ordered calls do not.
func TestFactFreesWait(t *testing.T) {
	for _, c := range []struct {
		name  string
		waits bool
		do    func(w *facts) error
	}{
		{"MemFree", true, func(w *facts) error { return gone(&w.memory, driver.CuMemFree(w.memory)) }},
		{"MemFreeHost", true, func(w *facts) error { return gone(&w.host, driver.CuMemFreeHost(w.host)) }},
		{"MemHostUnregister", true, func(w *facts) error { return driver.CuMemHostUnregister(unsafe.Pointer(&w.registered[0])) }},
		{"MemFreeAsync", false, func(w *facts) error { return gone(&w.async, driver.CuMemFreeAsync(w.async, w.other)) }},
		{"StreamDestroy", false, func(w *facts) error { return gone(&w.other, driver.CuStreamDestroy(w.other)) }},
		{"EventDestroy", false, func(w *facts) error { return gone(&w.recorded, driver.CuEventDestroy(w.recorded)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFacts(t)
			g, s := newGate(t, w.x), stream(t, w.x)
			openAfter := 50 * time.Millisecond
			if !c.waits {
				openAfter = hang
			}
			assert.Equal(t, c.waits, waits(t, w, g, s, openAfter, c.do))
		})
	}
}

// TestFactDestroyedStreamGoesOn: destroying a stream does not wait for its work, which
// still completes.
func TestFactDestroyedStreamGoesOn(t *testing.T) {
	w := newFacts(t)
	g := newGate(t, w.x)
	s, err := safe.NewStreamWith(w.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	g.shut(t, s)
	raw := s.Release()
	ran := make(chan bool, 1)
	var opened atomic.Bool
	timer := time.AfterFunc(hang, g.open)
	defer timer.Stop()
	require.NoError(t, onThreadOf(w.x, func() error {
		return first(
			func() error { return hostFunc(t, raw, func() { ran <- opened.Load() }) },
			func() error { return driver.CuStreamDestroy(raw) },
		)
	}))
	opened.Store(true)
	g.open()
	assert.True(t, next(t, ran), "after the gate")
}

// TestFactQueue: a stream queues some work that cannot run yet; more blocks its thread.
// Records take a place in the queue only if they take the time.
func TestFactQueue(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 7 seconds: make test-all runs it")
	}
	const all = 5000
	for _, c := range []struct {
		name   string
		blocks bool
		work   func(*testing.T, *facts) func() error
	}{
		{"launches", true, func(_ *testing.T, w *facts) func() error {
			return func() error { return w.launch(w.s) }
		}},
		{"launches of a graph of 100 kernels", true, func(t *testing.T, w *facts) func() error {
			e := executable(t, chain(t, w.x, 100))
			return func() error { // CUPTI, if it records, crashes without a current context
				return w.x.WithCurrent(func() error { return driver.CuGraphLaunch(e.Raw(), w.s) })
			}
		}},
		{"records", true, func(t *testing.T, w *facts) func() error {
			e := rawEvent(t, w, driver.CU_EVENT_DEFAULT)
			return func() error { return driver.CuEventRecord(e, w.s) }
		}},
		{"records without time", false, func(t *testing.T, w *facts) func() error {
			e := rawEvent(t, w, driver.CU_EVENT_DISABLE_TIMING)
			return func() error { return driver.CuEventRecord(e, w.s) }
		}},
		{"waits for events", false, func(t *testing.T, w *facts) func() error {
			e := rawEvent(t, w, driver.CU_EVENT_DISABLE_TIMING)
			require.NoError(t, driver.CuEventRecord(e, w.other))
			return func() error { return driver.CuStreamWaitEvent(w.s, e, 0) }
		}},
		{"host functions", false, func(t *testing.T, w *facts) func() error {
			return func() error { return hostFunc(t, w.s, func() {}) }
		}},
		{"prefetches", true, func(t *testing.T, w *facts) func() error {
			var p driver.CUdeviceptr
			require.NoError(t, driver.CuMemAllocManaged(&p, 4096, driver.CU_MEM_ATTACH_GLOBAL))
			t.Cleanup(func() { assert.NoError(t, w.x.WithCurrent(func() error { return driver.CuMemFree(p) })) })
			return func() error { return driver.CuMemPrefetchAsync_v1(p, 4096, 0, w.s) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFacts(t)
			g := newGate(t, w.x)
			s, err := safe.BorrowStream(w.s, w.x, nil)
			require.NoError(t, err)
			closing(t, s)
			var work func() error
			require.NoError(t, w.x.WithCurrent(func() error { work = c.work(t, w); return w.launch(w.s) }))
			g.shut(t, s)
			var made atomic.Int32
			done := make(chan error, 1)
			go func() {
				done <- onThreadOf(w.x, func() error {
					for range all {
						if err := work(); err != nil {
							return err
						}
						made.Add(1)
					}
					return nil
				})
			}()
			if c.blocks {
				enough := int32(50)
				if strings.HasPrefix(c.name, "launches") { // kernels of a graph take no places of their own
					enough = 1001
				}
				require.Eventually(t, func() bool { return made.Load() >= enough }, hang, time.Millisecond, "they do not wait for the gate")
				for before := int32(-1); before != made.Load() && made.Load() < all; {
					before = made.Load()
					time.Sleep(time.Second)
				}
				t.Logf("%d were taken", made.Load())
				assert.Less(t, made.Load(), int32(all))
				g.open()
			}
			assert.NoError(t, next(t, done))
			assert.EqualValues(t, all, made.Load())
			g.open()
			assert.NoError(t, s.SynchronizeBlocking())
		})
	}
}

func rawEvent(t *testing.T, w *facts, flags driver.CUevent_flags) (e driver.CUevent) {
	require.NoError(t, driver.CuEventCreate(&e, flags))
	t.Cleanup(func() { assert.NoError(t, w.x.WithCurrent(func() error { return driver.CuEventDestroy(e) })) })
	return e
}
