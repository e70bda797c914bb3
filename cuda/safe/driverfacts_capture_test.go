//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Which driver calls invalidate captures, by capture mode. Needs any driver, simulated or
// a GPU's.

package safe_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	globalMode  = driver.CU_STREAM_CAPTURE_MODE_GLOBAL
	localMode   = driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
	relaxedMode = driver.CU_STREAM_CAPTURE_MODE_RELAXED
)

var factModes = []struct {
	name string
	mode driver.CUstreamCaptureMode
	own  safe.CaptureMode // the constant of package safe
}{
	{"global", globalMode, safe.CaptureGlobal},
	{"thread local", localMode, safe.CaptureThreadLocal},
	{"relaxed", relaxedMode, safe.CaptureRelaxed},
}

// A factCall is made during a capture.
type factCall struct {
	name string
	do   func(w *facts) error
}

// An outcome has the results of a call during a capture, and of the capture.
type outcome struct{ call, end error }

// during makes a call on a thread with the given mode while another thread captures w.s.
func (w *facts) during(t *testing.T, capture, mode driver.CUstreamCaptureMode, do func(*facts) error) outcome {
	return w.capture(t, w.s, capture, func() error {
		return onThreadOf(w.x, func() error { return inMode(w, mode, do) })
	})
}

// within makes a call on the thread that captures.
func (w *facts) within(t *testing.T, capture, mode driver.CUstreamCaptureMode, do func(*facts) error) outcome {
	return w.capture(t, w.s, capture, func() error { return inMode(w, mode, do) })
}

func inMode(w *facts, mode driver.CUstreamCaptureMode, do func(*facts) error) error {
	if err := driver.CuThreadExchangeStreamCaptureMode(&mode); err != nil {
		return err
	}
	defer driver.CuThreadExchangeStreamCaptureMode(&mode)
	return do(w)
}

// capture calls do while a stream captures a launch, on the capturing thread.
func (w *facts) capture(t *testing.T, s driver.CUstream, mode driver.CUstreamCaptureMode, do func() error) (c outcome) {
	t.Helper()
	var graph driver.CUgraph
	assert.NoError(t, onThreadOf(w.x, func() error {
		return first(
			func() error { return driver.CuStreamBeginCapture(s, mode) },
			func() error { return w.launch(s) },
			func() error {
				c.call = do()
				c.end = driver.CuStreamEndCapture(s, &graph)
				return nil
			},
			func() error {
				assert.Equal(t, c.end == nil, graph != 0, "a graph where the capture succeeded")
				if graph == 0 {
					return nil
				}
				return driver.CuGraphDestroy(graph)
			},
			func() error { return driver.CuStreamSynchronize(s) }, // the stream works as before
		)
	}))
	return c
}

var captureLost = driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED

// unsafeCalls are rejected on every thread during a capture in mode global.
var unsafeCalls = []factCall{
	{"StreamQuery", func(w *facts) error { return driver.CuStreamQuery(w.other) }},
	{"StreamSynchronize", func(w *facts) error { return driver.CuStreamSynchronize(w.other) }},
	{"EventQuery", func(w *facts) error { return driver.CuEventQuery(w.recorded) }},
	{"EventSynchronize", func(w *facts) error { return driver.CuEventSynchronize(w.recorded) }},
	{"MemAlloc", func(w *facts) error { return driver.CuMemAlloc(&w.more, factSize) }},
	{"MemFree", func(w *facts) error { return gone(&w.memory, driver.CuMemFree(w.memory)) }},
	{"MemHostAlloc", func(w *facts) error { return driver.CuMemHostAlloc(&w.moreHost, factSize, 0) }},
	{"MemFreeHost", func(w *facts) error { return gone(&w.host, driver.CuMemFreeHost(w.host)) }},
	{"MemAllocAsync", func(w *facts) error { return driver.CuMemAllocAsync(&w.more, factSize, w.other) }},
	{"MemFreeAsync", func(w *facts) error { return gone(&w.async, driver.CuMemFreeAsync(w.async, w.other)) }},
	{"MemHostRegister", func(w *facts) error {
		return driver.CuMemHostRegister(unsafe.Pointer(&w.unregistered[0]), factSize, 0)
	}},
	{"MemHostUnregister", func(w *facts) error { return driver.CuMemHostUnregister(unsafe.Pointer(&w.registered[0])) }},
	{"ModuleUnload", func(w *facts) error { return gone(&w.module, driver.CuModuleUnload(w.module)) }},
	{"CtxSetLimit", func(w *facts) error { return driver.CuCtxSetLimit(driver.CU_LIMIT_STACK_SIZE, w.stack) }},
}

func TestFactCaptureForbids(t *testing.T) {
	for _, c := range unsafeCalls {
		for _, m := range factModes {
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				w := newFacts(t)
				got := w.during(t, globalMode, m.mode, c.do)
				if m.mode == globalMode {
					assert.Equal(t, outcome{driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, captureLost}, got)
				} else {
					assert.Equal(t, outcome{}, got)
				}
			})
		}
	}
}

// TestFactCaptureModes: the modes of the capture and of the thread decide together. A
// capture in mode thread-local does not affect other threads.
func TestFactCaptureModes(t *testing.T) {
	query := func(w *facts) error { return driver.CuStreamQuery(w.other) }
	for _, capture := range factModes {
		for _, thread := range factModes {
			t.Run(capture.name+" capture, "+thread.name+" thread", func(t *testing.T) {
				w := newFacts(t)
				killed := outcome{driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, captureLost}
				var same, another outcome
				if capture.mode != relaxedMode && thread.mode != relaxedMode {
					same = killed
				}
				if capture.mode == globalMode && thread.mode == globalMode {
					another = killed
				}
				assert.Equal(t, another, w.during(t, capture.mode, thread.mode, query), "another thread")
				assert.Equal(t, same, w.within(t, capture.mode, thread.mode, query), "the thread that captures")
			})
		}
	}
}

func TestFactCaptureAllows(t *testing.T) {
	for _, c := range []factCall{
		{"StreamIsCapturing", func(w *facts) error {
			var status driver.CUstreamCaptureStatus
			return driver.CuStreamIsCapturing(w.other, &status)
		}},
		{"EventRecord", func(w *facts) error { return driver.CuEventRecord(w.recorded, w.other) }},
		{"StreamWaitEvent", func(w *facts) error { return driver.CuStreamWaitEvent(w.other, w.recorded, 0) }},
		{"LaunchKernel", func(w *facts) error { return w.launch(w.other) }},
		{"MemsetD8Async", func(w *facts) error { return driver.CuMemsetD8Async(w.memory, 1, factSize, w.other) }},
		{"EventCreate", func(w *facts) error { return driver.CuEventCreate(&w.moreEvent, 0) }},
		{"EventDestroy", func(w *facts) error { return gone(&w.fresh, driver.CuEventDestroy(w.fresh)) }},
		{"StreamCreate", func(w *facts) error { return driver.CuStreamCreate(&w.moreStream, 0) }},
		{"StreamDestroy", func(w *facts) error { return gone(&w.other, driver.CuStreamDestroy(w.other)) }},
		{"MemGetInfo", func(w *facts) error { var a, b uint64; return driver.CuMemGetInfo(&a, &b) }},
		{"ModuleLoadData", (*facts).load},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFacts(t)
			assert.Equal(t, outcome{}, w.during(t, globalMode, globalMode, c.do), "another thread")
			assert.NoError(t, w.x.Synchronize())
		})
	}
}

// TestFactCapturingStream: queries that a capturing stream rejects in every mode.
func TestFactCapturingStream(t *testing.T) {
	record := func(w *facts) error { return driver.CuEventRecord(w.fresh, w.s) }
	for _, c := range []struct {
		name, needs string
		want        error
		do          func(w *facts) error
	}{
		{"StreamQuery", "", driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, func(w *facts) error { return driver.CuStreamQuery(w.s) }},
		{"StreamSynchronize", "", driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, func(w *facts) error { return driver.CuStreamSynchronize(w.s) }},
		{"StreamGetFlags", "", driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, func(w *facts) error {
			var flags driver.CUstream_flags
			return driver.CuStreamGetFlags(w.s, &flags)
		}},
		{"StreamGetId", "cuStreamGetId", driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, func(w *facts) error {
			var id uint64
			return driver.CuStreamGetId(w.s, &id)
		}},
		{"StreamAddCallback", "", driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, func(w *facts) error {
			return driver.CuStreamAddCallback(w.s, driver.CUstreamCallback(drivertest.StreamCallback()), 0, 0)
		}},
		{"CtxSynchronize", "", driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, func(*facts) error { return driver.CuCtxSynchronize() }},
		{"EventQuery", "", driver.CUDA_ERROR_CAPTURED_EVENT, func(w *facts) error {
			return first(func() error { return record(w) }, func() error { return driver.CuEventQuery(w.fresh) })
		}},
		{"EventSynchronize", "", driver.CUDA_ERROR_CAPTURED_EVENT, func(w *facts) error {
			return first(func() error { return record(w) }, func() error { return driver.CuEventSynchronize(w.fresh) })
		}},
	} {
		for _, m := range factModes {
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				w := newFacts(t)
				if err := driver.Find(c.needs); c.needs != "" && err != nil {
					t.Skip(err)
				}
				assert.Equal(t, outcome{c.want, captureLost}, w.within(t, m.mode, m.mode, c.do))
				assert.Equal(t, outcome{c.want, captureLost}, w.within(t, m.mode, relaxedMode, c.do), "a relaxed thread")
			})
		}
	}
}

// TestFactEndElsewhere: only the thread that began a capture can end it, except in mode
// relaxed. A failed try invalidates the capture.
func TestFactEndElsewhere(t *testing.T) {
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			w := newFacts(t)
			require.NoError(t, onThreadOf(w.x, func() error {
				if err := driver.CuStreamBeginCapture(w.s, m.mode); err != nil {
					return err
				}
				var graph driver.CUgraph
				err := onThreadOf(w.x, func() error { return driver.CuStreamEndCapture(w.s, &graph) })
				if m.mode == relaxedMode {
					return first(func() error { return err }, func() error { return driver.CuGraphDestroy(graph) })
				}
				assert.ErrorIs(t, err, driver.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
				assert.Zero(t, graph)
				var status driver.CUstreamCaptureStatus
				assert.NoError(t, driver.CuStreamIsCapturing(w.s, &status))
				assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_NONE, status)
				return driver.CuStreamSynchronize(w.s)
			}))
		})
	}
}

func TestFactEndWithoutBegin(t *testing.T) {
	w := newFacts(t)
	var graph driver.CUgraph
	err := onThreadOf(w.x, func() error { return driver.CuStreamEndCapture(w.s, &graph) })
	assert.ErrorIs(t, err, driver.CUDA_ERROR_ILLEGAL_STATE)
	assert.Zero(t, graph)
}

// TestFactLegacyStream: the legacy stream waits for blocking streams, which a capture
// does not allow.
func TestFactLegacyStream(t *testing.T) {
	for _, c := range []factCall{
		{"MemcpyHtoD", (*facts).copyIn},
		{"LaunchKernel", func(w *facts) error { return w.launch(0) }},
		{"StreamQuery", func(w *facts) error { return driver.CuStreamQuery(driver.CU_STREAM_LEGACY) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFacts(t)
			elsewhere := func() error { return onThreadOf(w.x, func() error { return c.do(w) }) }
			assert.Equal(t, outcome{driver.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, captureLost}, w.capture(t, w.blocking, relaxedMode, elsewhere), "a blocking stream captures")
			assert.Equal(t, outcome{}, w.capture(t, w.s, relaxedMode, elsewhere), "a non-blocking stream captures")
		})
	}
}
