//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Without cgo and on Windows, a call of this package makes several calls of CUDA, and each
// enters C by itself. The goroutine is locked to its thread meanwhile.

// hasContextID means that the driver has cuCtxGetId: from CUDA 12.0 on.
var hasContextID bool

// required are the driver's functions used here.
var required = []string{
	"cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode",
	"cuStreamIsCapturing", "cuStreamQuery", "cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamCreateWithPriority",
	"cuEventQuery", "cuEventRecord", "cuEventRecordWithFlags", "cuLaunchKernel", "cuLaunchKernelEx",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyAsync", "cuMemcpyPeerAsync",
	"cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async",
	"cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync",
	"cuMemImportFromShareableHandle", "cuMemPoolImportFromShareableHandle",
	"cuLaunchHostFunc", "cuStreamAddCallback",
	"cuGraphCreate", "cuGraphDestroy", "cuGraphLaunch", "cuGraphUpload",
}

// bind returns the name of a function that the loaded driver lacks.
func bind(file string) (missing string) {
	for _, name := range required {
		if driver.Find(name) != nil {
			return name
		}
	}
	hasContextID = driver.Find("cuCtxGetId") == nil
	if missing := bindNodes(); missing != "" {
		return missing
	}
	return bindSystem(file)
}

// code returns the code of a call of the raw package.
func code(err error) driver.CUresult {
	if err == nil {
		return 0
	}
	if code, ok := err.(driver.CUresult); ok {
		return code
	}
	return driver.CUDA_ERROR_NOT_SUPPORTED // bind has found the function
}

// Bits of Scope.set.
const (
	setContext = 1 << iota // the context was made current
	isForeign
)

// unchanged in Scope.mode means that there is no capture mode to restore: the thread has
// kept its own, or that was RELAXED.
const unchanged = uint32(driver.CU_STREAM_CAPTURE_MODE_RELAXED)

// begin locks the goroutine to its thread, makes a context current unless it is 0, and
// sets the capture mode RELAXED if relaxed is set. If it returns no error, call end.
func (s *Scope) begin(context driver.CUcontext, relaxed bool) driver.CUresult {
	if InCallback() {
		return CodeCallback
	}
	*s = Scope{mode: unchanged}
	runtime.LockOSThread()
	if context != 0 {
		if r := s.enter(context); r != 0 {
			runtime.UnlockOSThread()
			return r
		}
	}
	if relaxed {
		s.exchange()
	}
	return 0
}

// beginHome is begin in RELAXED mode, if h.Context still has the id.
func (s *Scope) beginHome(h Home, context driver.CUcontext) driver.CUresult {
	if r := checkHome(h.Context, h.ID); r != 0 {
		return r
	}
	return s.begin(context, true)
}

func (s *Scope) enter(context driver.CUcontext) driver.CUresult {
	var before driver.CUcontext
	if r := code(driver.CuCtxGetCurrent(&before)); r != 0 {
		return r
	}
	s.before = uintptr(before)
	if before == context {
		return 0
	}
	s.set = setContext
	return code(driver.CuCtxSetCurrent(context))
}

func (s *Scope) exchange() {
	mode := driver.CUstreamCaptureMode(s.mode)
	_ = driver.CuThreadExchangeStreamCaptureMode(&mode)
	s.mode = uint32(mode)
}

func (s *Scope) end() {
	if s.mode != unchanged {
		s.exchange()
	}
	if s.set&setContext != 0 {
		_ = driver.CuCtxSetCurrent(driver.CUcontext(s.before))
	}
	runtime.UnlockOSThread()
}

// checkHome returns CodeReset if the context no longer has the id. An id of 0 is not
// compared.
func checkHome(context driver.CUcontext, id uint64) driver.CUresult {
	if id == 0 || !hasContextID || InCallback() {
		return 0
	}
	now := id
	r := code(driver.CuCtxGetId(context, &now))
	if now != id || r == driver.CUDA_ERROR_INVALID_CONTEXT || r == driver.CUDA_ERROR_CONTEXT_IS_DESTROYED {
		return CodeReset
	}
	return 0 // the call itself returns any other error
}

// checkCapturing returns CodeCapturing if the stream is capturing.
func checkCapturing(stream driver.CUstream) driver.CUresult {
	var status driver.CUstreamCaptureStatus
	r := code(driver.CuStreamIsCapturing(stream, &status))
	if r == driver.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || r == 0 && status != 0 { // the former: the legacy stream while a blocking stream captures
		return CodeCapturing
	}
	return r
}

// checkLegacy is checkCapturing for the legacy stream, whose use invalidates captures of
// blocking streams, and 0 for others.
func checkLegacy(stream driver.CUstream) driver.CUresult {
	if stream > 1 {
		return 0
	}
	return checkCapturing(stream)
}

// Enter makes a context current on this thread, to which the goroutine must be locked,
// until [Leave]. It returns CodeReset if id is not 0 and the context has another id.
func Enter(s *Scope, context driver.CUcontext, id uint64, mode Mode) driver.CUresult {
	if r := checkHome(context, id); r != 0 {
		return r
	}
	if r := s.begin(context, mode != OwnMode); r != 0 {
		return r
	}
	if mode == Foreign {
		s.set |= isForeign
		mark()
	}
	return 0
}

// Leave restores the state before [Enter].
func Leave(s *Scope) {
	if s.set&isForeign != 0 {
		unmark()
	}
	s.set |= setContext // the code in between may have made another context current
	s.end()
}

// Check returns CodeReset if the context has another ID.
func (h Home) Check() driver.CUresult {
	if InCallback() {
		return CodeCallback
	}
	return checkHome(h.Context, h.ID)
}

// CreateStream is cuStreamCreateWithPriority in h.Context.
func (h Home) CreateStream(stream *driver.CUstream, flags driver.CUstream_flags, priority int) driver.CUresult {
	var s Scope
	if r := s.beginHome(h, h.Context); r != 0 {
		return r
	}
	defer s.end()
	return code(driver.CuStreamCreateWithPriority(stream, uint32(flags), int32(priority)))
}

// CreateGraph is cuGraphCreate in h.Context.
func (h Home) CreateGraph(graph *driver.CUgraph) driver.CUresult {
	var s Scope
	if r := s.beginHome(h, h.Context); r != 0 {
		return r
	}
	defer s.end()
	return code(driver.CuGraphCreate(graph, 0))
}

// DestroyGraph is cuGraphDestroy in h.Context.
func (h Home) DestroyGraph(graph driver.CUgraph) driver.CUresult {
	var s Scope
	if r := s.beginHome(h, h.Context); r != 0 {
		return r
	}
	defer s.end()
	return code(driver.CuGraphDestroy(graph))
}

// Query returns whether the stream's work has completed. It does not query a capturing
// stream, which would invalidate the capture.
func Query(context driver.CUcontext, stream driver.CUstream) driver.CUresult {
	var s Scope
	if r := s.begin(context, true); r != 0 {
		return r
	}
	defer s.end()
	if r := checkCapturing(stream); r != 0 {
		return r
	}
	return code(driver.CuStreamQuery(stream))
}

// Capturing returns whether the stream is capturing.
func Capturing(context driver.CUcontext, stream driver.CUstream) bool {
	var s Scope
	if s.begin(context, false) != 0 {
		return false
	}
	defer s.end()
	return checkCapturing(stream) == CodeCapturing
}

// Mark records event after the stream's work and returns driver.CUDA_ERROR_NOT_READY, or
// 0 if the work has completed.
func Mark(context driver.CUcontext, stream driver.CUstream, event driver.CUevent) driver.CUresult {
	var s Scope
	if r := s.begin(context, true); r != 0 {
		return r
	}
	defer s.end()
	if r := checkCapturing(stream); r != 0 {
		return r
	}
	r := code(driver.CuStreamQuery(stream))
	if r != driver.CUDA_ERROR_NOT_READY {
		return r
	}
	if r := code(driver.CuEventRecord(event, stream)); r != 0 {
		return r
	}
	return driver.CUDA_ERROR_NOT_READY
}

// Record is cuEventRecord, unless the stream is capturing.
func Record(context driver.CUcontext, event driver.CUevent, stream driver.CUstream) driver.CUresult {
	var s Scope
	if r := s.begin(context, false); r != 0 {
		return r
	}
	defer s.end()
	if r := checkCapturing(stream); r != 0 {
		return r
	}
	return code(driver.CuEventRecord(event, stream))
}

// RecordWith is cuEventRecord, or cuEventRecordWithFlags with flags. It also records on a
// capturing stream, and then returns CodeCaptured.
func RecordWith(context driver.CUcontext, event driver.CUevent, stream driver.CUstream, flags uint32) driver.CUresult {
	var s Scope
	if r := s.begin(context, false); r != 0 {
		return r
	}
	defer s.end()
	captured := checkCapturing(stream)
	if captured != 0 && stream <= 1 {
		return captured
	}
	var r driver.CUresult
	if flags != 0 {
		r = code(driver.CuEventRecordWithFlags(event, stream, flags))
	} else {
		r = code(driver.CuEventRecord(event, stream))
	}
	if r == 0 && captured == CodeCapturing {
		return CodeCaptured
	}
	return r
}

// WaitEvent is cuStreamWaitEvent. If outside is set, the event was recorded outside of
// captures, and a capturing stream cannot wait for it.
func WaitEvent(context driver.CUcontext, stream driver.CUstream, event driver.CUevent, flags uint32, outside bool) driver.CUresult {
	var s Scope
	if r := s.begin(context, false); r != 0 {
		return r
	}
	defer s.end()
	if r := checkStream(stream, outside); r != 0 {
		return r
	}
	return code(driver.CuStreamWaitEvent(stream, event, flags))
}

// checkStream is checkCapturing for work outside of captures, else checkLegacy.
func checkStream(stream driver.CUstream, outside bool) driver.CUresult {
	if outside {
		return checkCapturing(stream)
	}
	return checkLegacy(stream)
}

// EventQuery queries an event for up to spin nanoseconds.
func EventQuery(context driver.CUcontext, event driver.CUevent, spin int64) driver.CUresult {
	var s Scope
	if r := s.begin(context, true); r != 0 {
		return r
	}
	defer s.end()
	var start int64
	if spin != 0 {
		start = now()
	}
	for {
		r := code(driver.CuEventQuery(event))
		if r != driver.CUDA_ERROR_NOT_READY || spin == 0 || now()-start >= spin {
			return r
		}
	}
}

// Mark is the function Mark.
func (h Home) Mark(stream driver.CUstream, event driver.CUevent) driver.CUresult {
	if r := checkHome(h.Context, h.ID); r != 0 {
		return r
	}
	return Mark(h.CallContext, stream, event)
}

// EventQuery queries an event.
func (h Home) EventQuery(event driver.CUevent) driver.CUresult {
	if r := checkHome(h.Context, h.ID); r != 0 {
		return r
	}
	return EventQuery(h.CallContext, event, 0)
}

// GraphLaunch is cuGraphLaunch, unless the stream is capturing.
func GraphLaunch(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return withGraph(context, exec, stream, driver.CuGraphLaunch)
}

// GraphUpload is cuGraphUpload, unless the stream is capturing.
func GraphUpload(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return withGraph(context, exec, stream, driver.CuGraphUpload)
}

func withGraph(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream, call func(driver.CUgraphExec, driver.CUstream) error) driver.CUresult {
	var s Scope
	if r := s.begin(context, true); r != 0 {
		return r
	}
	defer s.end()
	if r := checkCapturing(stream); r != 0 {
		return r
	}
	return code(call(exec, stream))
}
