//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Without cgo and on Windows, the functions that programs call often make their calls of CUDA
// as a [list]. Others prepare the thread by one, and make further calls one by one.

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

// begin locks the goroutine to its thread and makes the calls of l. If it returns no error,
// the thread stays as they have left it until end.
func (s *Scope) begin(l *list) driver.CUresult {
	if InCallback() {
		return CodeCallback
	}
	runtime.LockOSThread()
	r := l.make()
	*s = Scope{before: uintptr(l.before), mode: uint32(l.mode)}
	if l.before != l.context {
		s.set = setContext
	}
	if r != 0 {
		s.end()
	}
	return r
}

func (s *Scope) end() {
	if s.mode != unchanged {
		mode := driver.CUstreamCaptureMode(s.mode)
		_ = driver.CuThreadExchangeStreamCaptureMode(&mode)
	}
	if s.set&setContext != 0 {
		_ = driver.CuCtxSetCurrent(driver.CUcontext(s.before))
	}
	runtime.UnlockOSThread()
}

// Enter makes a context current on this thread, to which the goroutine must be locked,
// until [Leave]. It returns CodeReset if id is not 0 and the context has another id.
func Enter(s *Scope, context driver.CUcontext, id uint64, mode Mode) driver.CUresult {
	var l list
	l.at(Home{Context: context, ID: id})
	l.in(context, mode != OwnMode)
	if r := s.begin(&l); r != 0 {
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
	var l list
	l.at(h)
	return l.do()
}

// CreateStream is cuStreamCreateWithPriority in h.Context.
func (h Home) CreateStream(stream *driver.CUstream, flags driver.CUstream_flags, priority int) driver.CUresult {
	var l list
	l.inHome(h, h.Context)
	l.create(cu.streamCreate, uint64(flags), uint64(uint32(priority)))
	r := l.do()
	*stream = driver.CUstream(l.created)
	return r
}

// CreateGraph is cuGraphCreate in h.Context.
func (h Home) CreateGraph(graph *driver.CUgraph) driver.CUresult {
	var l list
	l.inHome(h, h.Context)
	l.create(cu.graphCreate, 0)
	r := l.do()
	*graph = driver.CUgraph(l.created)
	return r
}

// DestroyGraph is cuGraphDestroy in h.Context.
func (h Home) DestroyGraph(graph driver.CUgraph) driver.CUresult {
	var l list
	l.inHome(h, h.Context)
	l.add(cu.graphDestroy, uint64(graph))
	return l.do()
}

// BeginCapture is cuStreamBeginCapture in h.Context, unless the stream is capturing.
func (h Home) BeginCapture(stream driver.CUstream, mode driver.CUstreamCaptureMode) driver.CUresult {
	var l list
	l.inHome(h, h.Context)
	l.notCapturing(stream)
	l.add(cu.beginCapture, uint64(stream), uint64(mode))
	return l.do()
}

// EndCapture is cuStreamEndCapture in h.Context, or in the thread's own context if that
// cannot be made current.
func (h Home) EndCapture(stream driver.CUstream, graph *driver.CUgraph) driver.CUresult {
	var s Scope
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	switch Enter(&s, h.Context, h.ID, Relaxed) {
	case 0:
		defer Leave(&s)
	case CodeReset:
		return CodeReset
	}
	return code(driver.CuStreamEndCapture(stream, graph))
}

// Do counts the graph's nodes and is cuGraphInstantiateWithParams in i.Context, before CUDA
// 12.0 cuGraphInstantiateWithFlags.
func (i *Instantiation) Do() driver.CUresult {
	var s Scope
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r := Enter(&s, i.CallContext, i.ID, Relaxed); r != 0 {
		return r
	}
	defer Leave(&s)
	if err := i.count(); err != nil {
		return code(err)
	}
	p := driver.CUDA_GRAPH_INSTANTIATE_PARAMS{Flags: i.Flags}
	r := code(driver.CuGraphInstantiateWithParams(&i.Exec, i.Graph, &p))
	if r == driver.CUDA_ERROR_NOT_SUPPORTED {
		r = code(driver.CuGraphInstantiateWithFlags(&i.Exec, i.Graph, i.Flags))
	}
	i.Failed, i.Result = p.HErrNode_out, p.Result_out
	return r
}

// count counts the nodes of the graph.
func (i *Instantiation) count() error {
	var n uint64
	if err := driver.CuGraphGetNodes(i.Graph, nil, &n); err != nil || n == 0 {
		return err
	}
	nodes := make([]driver.CUgraphNode, n)
	if err := driver.CuGraphGetNodes(i.Graph, &nodes[0], &n); err != nil {
		return err
	}
	i.Nodes = uint32(n)
	for _, node := range nodes {
		var kind driver.CUgraphNodeType
		if err := driver.CuGraphNodeGetType(node, &kind); err != nil {
			return err
		}
		switch kind {
		case driver.CU_GRAPH_NODE_TYPE_KERNEL:
			i.Kernels++
		case driver.CU_GRAPH_NODE_TYPE_GRAPH, driver.CU_GRAPH_NODE_TYPE_CONDITIONAL:
			i.Graphs++
		}
	}
	return nil
}

// DestroyExec is cuGraphExecDestroy in h.Context.
func (h Home) DestroyExec(exec driver.CUgraphExec) driver.CUresult {
	var l list
	l.inHome(h, h.Context)
	l.add(cu.execDestroy, uint64(exec))
	return l.do()
}

// Query queries for up to spin nanoseconds whether the stream's work has completed. It does
// not query a capturing stream, which would invalidate the capture.
func Query(context driver.CUcontext, stream driver.CUstream, spin int64) driver.CUresult {
	return spinning(spin, func() driver.CUresult {
		var l list
		l.in(context, true)
		l.notCapturing(stream)
		l.add(cu.streamQuery, uint64(stream))
		return l.do()
	})
}

// spinning queries until the work has completed, for at most spin nanoseconds.
func spinning(spin int64, query func() driver.CUresult) driver.CUresult {
	var start int64
	if spin != 0 {
		start = now()
	}
	for {
		r := query()
		if r != driver.CUDA_ERROR_NOT_READY || spin == 0 || now()-start >= spin {
			return r
		}
	}
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
	return spinning(spin, func() driver.CUresult {
		var l list
		l.in(context, true)
		l.add(cu.eventQuery, uint64(event))
		return l.do()
	})
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
