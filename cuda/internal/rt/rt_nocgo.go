//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Without cgo and on Windows, the functions that programs call often make their calls of CUDA
// as a [list]. Others make them one by one, with the goroutine locked to its thread.

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
	if id == 0 || cu.ctxGetID == 0 || InCallback() {
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
	var l list
	l.in(context, true)
	l.notCapturing(stream)
	l.add(cu.streamQuery, uint64(stream))
	return l.do()
}

// Capturing returns whether the stream is capturing.
func Capturing(context driver.CUcontext, stream driver.CUstream) bool {
	var l list
	l.in(context, false)
	l.askCapturing(stream)
	l.do()
	return l.capturing()
}

// Mark records event after the stream's work and returns driver.CUDA_ERROR_NOT_READY, or
// 0 if the work has completed.
func Mark(context driver.CUcontext, stream driver.CUstream, event driver.CUevent) driver.CUresult {
	var l list
	l.in(context, true)
	return l.mark(stream, event)
}

// Mark is the function Mark.
func (h Home) Mark(stream driver.CUstream, event driver.CUevent) driver.CUresult {
	var l list
	l.inHome(h, h.CallContext)
	return l.mark(stream, event)
}

func (l *list) mark(stream driver.CUstream, event driver.CUevent) driver.CUresult {
	l.notCapturing(stream)
	l.call.words = [9]uint64{uint64(event), uint64(stream)}
	query := l.next().set(cu.streamQuery, unsafe.Pointer(&l.call.words[1]), 1)
	query.flags = anyResult
	l.next().set(cu.eventRecord, unsafe.Pointer(&l.call), 2).unless(&query.result, uint64(driver.CUDA_ERROR_NOT_READY)).flags = unlessEqual
	if r := l.do(); r != 0 {
		return r
	}
	return driver.CUresult(query.result)
}

// Record is cuEventRecord, unless the stream is capturing.
func Record(context driver.CUcontext, event driver.CUevent, stream driver.CUstream) driver.CUresult {
	var l list
	l.in(context, false)
	l.notCapturing(stream)
	l.add(cu.eventRecord, uint64(event), uint64(stream))
	return l.do()
}

// RecordWith is cuEventRecord, or cuEventRecordWithFlags with flags. It also records on a
// capturing stream, and then returns CodeCaptured.
func RecordWith(context driver.CUcontext, event driver.CUevent, stream driver.CUstream, flags uint32) driver.CUresult {
	var l list
	l.in(context, false)
	if stream <= 1 {
		l.notCapturing(stream)
	} else {
		l.askCapturing(stream).flags = anyResult
	}
	if flags != 0 {
		l.add(cu.eventRecordFlags, uint64(event), uint64(stream), uint64(flags))
	} else {
		l.add(cu.eventRecord, uint64(event), uint64(stream))
	}
	if r := l.do(); r != 0 || !l.capturing() {
		return r
	}
	return CodeCaptured
}

// WaitEvent is cuStreamWaitEvent. If outside is set, the event was recorded outside of
// captures, and a capturing stream cannot wait for it.
func WaitEvent(context driver.CUcontext, stream driver.CUstream, event driver.CUevent, flags uint32, outside bool) driver.CUresult {
	var l list
	l.in(context, false)
	l.admits(stream, outside)
	l.add(cu.streamWaitEvent, uint64(stream), uint64(event), uint64(flags))
	return l.do()
}

// EventQuery queries an event for up to spin nanoseconds.
func EventQuery(context driver.CUcontext, event driver.CUevent, spin int64) driver.CUresult {
	var start int64
	if spin != 0 {
		start = now()
	}
	for {
		var l list
		l.in(context, true)
		l.add(cu.eventQuery, uint64(event))
		r := l.do()
		if r != driver.CUDA_ERROR_NOT_READY || spin == 0 || now()-start >= spin {
			return r
		}
	}
}

// EventQuery queries an event.
func (h Home) EventQuery(event driver.CUevent) driver.CUresult {
	var l list
	l.inHome(h, h.CallContext)
	l.add(cu.eventQuery, uint64(event))
	return l.do()
}

// GraphLaunch is cuGraphLaunch, unless the stream is capturing.
func GraphLaunch(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return withGraph(context, exec, stream, cu.graphLaunch)
}

// GraphUpload is cuGraphUpload, unless the stream is capturing.
func GraphUpload(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return withGraph(context, exec, stream, cu.graphUpload)
}

func withGraph(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream, fn uintptr) driver.CUresult {
	var l list
	l.in(context, true)
	l.notCapturing(stream)
	l.add(fn, uint64(exec), uint64(stream))
	return l.do()
}
