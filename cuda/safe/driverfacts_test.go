//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Facts about CUDA on which package safe relies, tested through package driver alone,
// with the same results on the simulated driver and on a GPU.

package safe_test

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// facts is a device's primary context and some objects in it. The streams are idle, and
// no thread has a current context.
type facts struct {
	x                        *safe.Context
	s, other, blocking       driver.CUstream
	fresh, recorded          driver.CUevent
	module, moreModule       driver.CUmodule
	nothing                  driver.CUfunction
	memory, async, more      driver.CUdeviceptr
	host, moreHost           unsafe.Pointer
	registered, unregistered []byte
	stack                    uint64
	moreStream               driver.CUstream
	moreEvent                driver.CUevent
	image                    []byte
}

const factSize = 4096

func newFacts(t *testing.T) *facts {
	t.Helper()
	w := &facts{x: open(t, 0)}
	image, err := os.ReadFile("testdata/kernels.ptx")
	require.NoError(t, err)
	w.image = append(image, 0)
	for _, p := range []*[]byte{&w.registered, &w.unregistered} {
		*p = ownPages(t, factSize)
	}
	require.NoError(t, w.x.WithCurrent(func() error {
		return first(
			func() error { return driver.CuStreamCreate(&w.s, driver.CU_STREAM_NON_BLOCKING) },
			func() error { return driver.CuStreamCreate(&w.other, driver.CU_STREAM_NON_BLOCKING) },
			func() error { return driver.CuStreamCreate(&w.blocking, 0) },
			func() error { return driver.CuEventCreate(&w.fresh, 0) },
			func() error { return driver.CuEventCreate(&w.recorded, 0) },
			func() error { return driver.CuModuleLoadData(&w.module, unsafe.Pointer(&w.image[0])) },
			func() error { return driver.CuModuleGetFunction(&w.nothing, w.module, cName("nothing")) },
			func() error { return w.launch(w.other) }, // loads it
			func() error { return driver.CuMemAlloc(&w.memory, factSize) },
			func() error { return driver.CuMemAllocAsync(&w.async, factSize, w.other) },
			func() error { return driver.CuMemHostAlloc(&w.host, factSize, 0) },
			func() error { return driver.CuMemHostRegister(unsafe.Pointer(&w.registered[0]), factSize, 0) },
			func() error { return driver.CuCtxGetLimit(&w.stack, driver.CU_LIMIT_STACK_SIZE) },
			func() error { return driver.CuEventRecord(w.recorded, w.other) },
			func() error { return driver.CuStreamSynchronize(w.other) },
		)
	}))
	t.Cleanup(func() { assert.NoError(t, w.x.WithCurrent(w.close)) })
	return w
}

// close destroys the objects that the calls have left.
func (w *facts) close() error {
	var all []func() error
	for _, s := range []driver.CUstream{w.s, w.other, w.blocking, w.moreStream} {
		if s != 0 {
			all = append(all, func() error { return driver.CuStreamDestroy(s) })
		}
	}
	for _, e := range []driver.CUevent{w.fresh, w.recorded, w.moreEvent} {
		if e != 0 {
			all = append(all, func() error { return driver.CuEventDestroy(e) })
		}
	}
	for _, m := range []driver.CUmodule{w.module, w.moreModule} {
		if m != 0 {
			all = append(all, func() error { return driver.CuModuleUnload(m) })
		}
	}
	for _, p := range []driver.CUdeviceptr{w.memory, w.async, w.more} {
		if p != 0 {
			all = append(all, func() error { return driver.CuMemFree(p) })
		}
	}
	for _, p := range []unsafe.Pointer{w.host, w.moreHost} {
		if p != nil {
			all = append(all, func() error { return driver.CuMemFreeHost(p) })
		}
	}
	for _, b := range [][]byte{w.registered, w.unregistered} {
		all = append(all, func() error {
			err := driver.CuMemHostUnregister(unsafe.Pointer(&b[0]))
			if err == driver.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED {
				return nil
			}
			return err
		})
	}
	return first(all...)
}

func (w *facts) launch(s driver.CUstream) error {
	return driver.CuLaunchKernel(w.nothing, 1, 1, 1, 1, 1, 1, 0, s, nil, nil)
}

func (w *facts) copyIn() error {
	var v [factSize]byte
	return driver.CuMemcpyHtoD(w.memory, unsafe.Pointer(&v[0]), factSize)
}

func (w *facts) load() error {
	return driver.CuModuleLoadData(&w.moreModule, unsafe.Pointer(&w.image[0]))
}

// gone clears a handle that a call has destroyed.
func gone[T comparable](v *T, err error) error {
	if err == nil {
		*v = *new(T)
	}
	return err
}

// first calls functions until one fails.
func first(all ...func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func cName(name string) *byte { return unsafe.StringData(name + "\x00") }

// onThread runs f on a thread of its own without a current context and with the default
// capture mode.
func onThread[T any](f func() T) T {
	c := make(chan T)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		c <- f()
	}()
	return <-c
}

// onThreadOf is onThread with a current context.
func onThreadOf(x *safe.Context, f func() error) error {
	return onThread(func() error {
		if err := driver.CuCtxSetCurrent(x.Raw()); err != nil {
			return err
		}
		return f()
	})
}

// needsDriver skips a test of behaviour that drivers have since a CUDA version, 13000 for
// 13.0.
func needsDriver(t *testing.T, number int32, why string) {
	t.Helper()
	var n int32
	require.NoError(t, driver.CuDriverGetVersion(&n))
	if n < number {
		t.Skipf("driver %d: %s", n, why)
	}
}

func TestFactNeedsCurrentContext(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *facts) error
	}{
		{"StreamCreate", func(w *facts) error { return driver.CuStreamCreate(&w.moreStream, 0) }},
		{"EventCreate", func(w *facts) error { return driver.CuEventCreate(&w.moreEvent, 0) }},
		{"MemAlloc", func(w *facts) error { return driver.CuMemAlloc(&w.more, factSize) }},
		{"MemHostAlloc", func(w *facts) error { return driver.CuMemHostAlloc(&w.moreHost, factSize, 0) }},
		{"MemHostRegister", func(w *facts) error {
			return driver.CuMemHostRegister(unsafe.Pointer(&w.unregistered[0]), factSize, 0)
		}},
		{"MemcpyHtoD", (*facts).copyIn},
		{"MemGetInfo", func(w *facts) error { var a, b uint64; return driver.CuMemGetInfo(&a, &b) }},
		{"ModuleLoadData", (*facts).load},
		{"CtxSynchronize", func(*facts) error { return driver.CuCtxSynchronize() }},
		{"StreamQuery of the NULL stream", func(*facts) error { return driver.CuStreamQuery(0) }},
		{"StreamSynchronize of the legacy stream", func(*facts) error { return driver.CuStreamSynchronize(driver.CU_STREAM_LEGACY) }},
		{"LaunchKernel on the NULL stream", func(w *facts) error { return w.launch(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFacts(t)
			assert.ErrorIs(t, onThread(func() error { return c.do(w) }), driver.CUDA_ERROR_INVALID_CONTEXT)
			assert.NoError(t, onThreadOf(w.x, func() error { return c.do(w) }))
		})
	}
}

func TestFactNeedsNoCurrentContext(t *testing.T) {
	needsDriver(t, 13000, "what it takes without a current context was not measured")
	for _, c := range []struct {
		name string
		do   func(w *facts) error
	}{
		{"StreamQuery", func(w *facts) error { return driver.CuStreamQuery(w.other) }},
		{"StreamSynchronize", func(w *facts) error { return driver.CuStreamSynchronize(w.other) }},
		{"StreamGetFlags", func(w *facts) error { var f driver.CUstream_flags; return driver.CuStreamGetFlags(w.other, &f) }},
		{"StreamWaitEvent", func(w *facts) error { return driver.CuStreamWaitEvent(w.s, w.recorded, 0) }},
		{"StreamDestroy", func(w *facts) error { return gone(&w.other, driver.CuStreamDestroy(w.other)) }},
		{"EventQuery", func(w *facts) error { return driver.CuEventQuery(w.recorded) }},
		{"EventRecord", func(w *facts) error { return driver.CuEventRecord(w.recorded, w.other) }},
		{"EventSynchronize", func(w *facts) error { return driver.CuEventSynchronize(w.recorded) }},
		{"EventDestroy", func(w *facts) error { return gone(&w.recorded, driver.CuEventDestroy(w.recorded)) }},
		{"LaunchKernel", func(w *facts) error { return w.launch(w.other) }},
		{"MemFree", func(w *facts) error { return gone(&w.memory, driver.CuMemFree(w.memory)) }},
		{"MemFreeHost", func(w *facts) error { return gone(&w.host, driver.CuMemFreeHost(w.host)) }},
		{"MemAllocAsync", func(w *facts) error { return driver.CuMemAllocAsync(&w.more, factSize, w.other) }},
		{"MemFreeAsync", func(w *facts) error { return gone(&w.async, driver.CuMemFreeAsync(w.async, w.other)) }},
		{"MemsetD8Async", func(w *facts) error { return driver.CuMemsetD8Async(w.memory, 1, factSize, w.other) }},
		{"MemsetD32Async of a pool's memory", func(w *facts) error { return driver.CuMemsetD32Async(w.async, 1, factSize/4, w.other) }},
		{"MemcpyDtoDAsync", func(w *facts) error { return driver.CuMemcpyDtoDAsync(w.async, w.memory, factSize, w.other) }},
		{"MemcpyHtoDAsync", func(w *facts) error { return driver.CuMemcpyHtoDAsync(w.async, w.host, factSize, w.other) }},
		{"MemcpyDtoHAsync", func(w *facts) error { return driver.CuMemcpyDtoHAsync(w.host, w.async, factSize, w.other) }},
		{"MemcpyHtoDAsync of Go memory", func(w *facts) error {
			return driver.CuMemcpyHtoDAsync(w.async, unsafe.Pointer(&w.unregistered[0]), factSize, w.other)
		}},
		{"MemcpyPeerAsync", func(w *facts) error {
			return driver.CuMemcpyPeerAsync(w.async, w.x.Raw(), w.memory, w.x.Raw(), factSize, w.other)
		}},
		{"ModuleUnload", func(w *facts) error { return gone(&w.module, driver.CuModuleUnload(w.module)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFacts(t)
			assert.NoError(t, onThread(func() error { return c.do(w) }))
			assert.NoError(t, w.x.Synchronize())
		})
	}
}

func TestFactEvents(t *testing.T) {
	w := newFacts(t)
	assert.NoError(t, onThreadOf(w.x, func() error {
		assert.NoError(t, driver.CuEventQuery(w.fresh), "never recorded")
		assert.NoError(t, driver.CuEventSynchronize(w.fresh), "never recorded")
		assert.NoError(t, driver.CuStreamWaitEvent(w.s, w.fresh, 0), "never recorded")
		assert.NoError(t, driver.CuStreamSynchronize(w.s))
		assert.ErrorIs(t, driver.CuEventRecordWithFlags(w.recorded, w.s, driver.CU_EVENT_RECORD_EXTERNAL), driver.CUDA_ERROR_ILLEGAL_STATE)
		assert.ErrorIs(t, driver.CuStreamWaitEvent(w.s, w.recorded, driver.CU_EVENT_WAIT_EXTERNAL), driver.CUDA_ERROR_ILLEGAL_STATE)

		var none driver.CUevent
		assert.ErrorIs(t, driver.CuEventCreate(&none, driver.CU_EVENT_INTERPROCESS), driver.CUDA_ERROR_INVALID_VALUE)
		assert.NoError(t, driver.CuEventCreate(&w.moreEvent, driver.CU_EVENT_INTERPROCESS|driver.CU_EVENT_DISABLE_TIMING))
		var handle driver.CUipcEventHandle
		assert.NoError(t, driver.CuIpcGetEventHandle(&handle, w.moreEvent))
		assert.ErrorIs(t, driver.CuIpcOpenEventHandle(&none, handle), driver.CUDA_ERROR_INVALID_CONTEXT, "by the process that made it")
		return nil
	}))
}

// TestFactEventOfAnotherContext: an event can be recorded in its own context only, and
// waited for in any.
func TestFactEventOfAnotherContext(t *testing.T) {
	w := newFacts(t)
	assert.NoError(t, onThread(func() error {
		var other driver.CUcontext
		var s driver.CUstream
		defer func() { assert.NoError(t, driver.CuCtxDestroy(other)) }()
		return first(
			func() error { return driver.CuCtxCreate_v2(&other, 0, w.x.Device().Raw()) },
			func() error { return driver.CuStreamCreate(&s, 0) },
			func() error {
				assert.ErrorIs(t, driver.CuEventRecord(w.recorded, s), driver.CUDA_ERROR_INVALID_HANDLE)
				return driver.CuStreamWaitEvent(s, w.recorded, 0)
			},
			func() error { return driver.CuStreamSynchronize(s) },
			func() error { return driver.CuStreamDestroy(s) },
		)
	}))
}

func TestFactHandlesThatAreNoStreams(t *testing.T) {
	w := newFacts(t)
	for handle := range driver.CUstream(3) {
		assert.ErrorIs(t, onThreadOf(w.x, func() error { return driver.CuStreamDestroy(handle) }), driver.CUDA_ERROR_INVALID_HANDLE, handle)
	}
}

func TestFactHostRegister(t *testing.T) {
	w := newFacts(t)
	assert.NoError(t, onThreadOf(w.x, func() error {
		known, unknown := unsafe.Pointer(&w.registered[0]), unsafe.Pointer(&w.unregistered[0])
		assert.ErrorIs(t, driver.CuMemHostRegister(known, factSize, 0), driver.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		assert.ErrorIs(t, driver.CuMemHostUnregister(unknown), driver.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
		return nil
	}))
}

// TestFactPrimaryContext needs a process in which no other code retains the context.
func TestFactPrimaryContext(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, driver.CuInit(0))
		var c, again driver.CUcontext
		require.NoError(t, driver.CuDevicePrimaryCtxRetain(&c, 0))
		assert.ErrorIs(t, driver.CuCtxDestroy(c), driver.CUDA_ERROR_INVALID_CONTEXT)
		needsID := driver.Find("cuCtxGetId")
		var before, after uint64
		if needsID == nil {
			require.NoError(t, driver.CuCtxGetId(c, &before))
		}
		require.NoError(t, driver.CuDevicePrimaryCtxRelease(0))
		require.NoError(t, driver.CuDevicePrimaryCtxRetain(&again, 0))
		assert.Equal(t, c, again)
		if needsID == nil {
			require.NoError(t, driver.CuCtxGetId(again, &after))
			assert.NotEqual(t, before, after)
		}
		require.NoError(t, driver.CuDevicePrimaryCtxRelease(0))
		assert.ErrorIs(t, driver.CuDevicePrimaryCtxRelease(0), driver.CUDA_ERROR_INVALID_CONTEXT, "it is not retained")
	})
}
