package rt

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A call is a call of CUDA's with what comes before and after it. With cgo, rt_call in rt.c makes
// it, in one crossing. Without, and on Windows, it becomes a [list].
type call struct {
	Home                   // CallContext is made current; CodeReset if Context has another ID
	stream driver.CUstream // that check and flags are about
	fn     function        // none: nothing but the check
	check  check
	flags  callFlags
	words  uint32 // of args
	spin   int64  // for how many nanoseconds to make check and call again while not ready

	args    [6]uint64
	host    unsafe.Pointer // takes the place of args[at], unless nil; a list with the launch for fnLaunchKernel
	at      uint64
	created uint64 // args[0] points here if the call creates something
	event   driver.CUevent
}

var _ = [1]struct{}{}[unsafe.Sizeof(call{})-136] // C has the same layout

// A check says what a capture of the stream does to a call.
type check uint32

const (
	unchecked    check = iota
	notLegacy          // the legacy stream, whose use invalidates captures of blocking streams: CodeCapturing
	notCapturing       // CodeCapturing
	tell               // CodeCaptured after the call; notLegacy for the legacy stream
)

type callFlags uint32

const (
	relaxed callFlags = 1 << iota // in the capture mode RELAXED
	creates                       // see created
	waits                         // if the call was made, wait for the stream, even after an error: a part of a copy may be in flight
	settles                       // after success, wait for the stream, or free what was created
	marks                         // if the result is not ready, record event on stream
)

// here returns a home whose context itself is made current.
func (h Home) here() Home {
	h.CallContext = h.Context
	return h
}

// Check returns CodeReset if the context has another ID.
func (h Home) Check() driver.CUresult {
	h.CallContext = 0
	var c call
	c.Home = h
	return c.do()
}

// CreateStream is cuStreamCreateWithPriority in h.Context.
func (h Home) CreateStream(stream *driver.CUstream, flags driver.CUstream_flags, priority int) driver.CUresult {
	var c call
	c.Home, c.flags, c.fn, c.words = h.here(), relaxed|creates, fnStreamCreate, 3
	c.args[1], c.args[2] = uint64(flags), uint64(uint32(priority))
	r := c.do()
	*stream = driver.CUstream(c.created)
	return r
}

// CreateGraph is cuGraphCreate in h.Context.
func (h Home) CreateGraph(graph *driver.CUgraph) driver.CUresult {
	var c call
	c.Home, c.flags, c.fn, c.words = h.here(), relaxed|creates, fnGraphCreate, 2
	r := c.do()
	*graph = driver.CUgraph(c.created)
	return r
}

// DestroyGraph is cuGraphDestroy in h.Context.
func (h Home) DestroyGraph(graph driver.CUgraph) driver.CUresult {
	var c call
	c.Home, c.flags, c.fn, c.words = h.here(), relaxed, fnGraphDestroy, 1
	c.args[0] = uint64(graph)
	return c.do()
}

// DestroyExec is cuGraphExecDestroy in h.Context.
func (h Home) DestroyExec(exec driver.CUgraphExec) driver.CUresult {
	var c call
	c.Home, c.flags, c.fn, c.words = h.here(), relaxed, fnExecDestroy, 1
	c.args[0] = uint64(exec)
	return c.do()
}

// BeginCapture is cuStreamBeginCapture in h.Context, unless the stream is capturing.
func (h Home) BeginCapture(stream driver.CUstream, mode driver.CUstreamCaptureMode) driver.CUresult {
	var c call
	c.Home, c.flags, c.stream, c.check, c.fn, c.words = h.here(), relaxed, stream, notCapturing, fnBeginCapture, 2
	c.args[0], c.args[1] = uint64(stream), uint64(mode)
	return c.do()
}

// EndCapture is cuStreamEndCapture in h.Context, or in the thread's own context if that
// cannot be made current.
func (h Home) EndCapture(stream driver.CUstream, graph *driver.CUgraph) driver.CUresult {
	var s Scope
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	switch Enter(&s, h.Context, h.ID, Relaxed, 0) {
	case 0:
		defer Leave(&s)
	case CodeReset:
		return CodeReset
	}
	return code(driver.CuStreamEndCapture(stream, graph))
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

// Query queries for up to spin nanoseconds whether the stream's work has completed. It does
// not query a capturing stream, which would invalidate the capture.
func Query(context driver.CUcontext, stream driver.CUstream, spin int64) driver.CUresult {
	var c call
	c.CallContext, c.flags, c.stream, c.check, c.fn, c.words, c.spin = context, relaxed, stream, notCapturing, fnStreamQuery, 1, spin
	c.args[0] = uint64(stream)
	return c.do()
}

// Capturing returns whether the stream is capturing.
func Capturing(context driver.CUcontext, stream driver.CUstream) bool {
	var c call
	c.CallContext, c.stream, c.check = context, stream, notCapturing
	return c.do() == CodeCapturing
}

// Mark records event after the stream's work and returns driver.CUDA_ERROR_NOT_READY, or
// 0 if the work has completed.
func Mark(context driver.CUcontext, stream driver.CUstream, event driver.CUevent) driver.CUresult {
	return Home{CallContext: context}.Mark(stream, event)
}

// Mark is the function Mark.
func (h Home) Mark(stream driver.CUstream, event driver.CUevent) driver.CUresult {
	var c call
	c.Home, c.flags, c.stream, c.check, c.fn, c.words, c.event = h, relaxed|marks, stream, notCapturing, fnStreamQuery, 1, event
	c.args[0] = uint64(stream)
	return c.do()
}

// Record is cuEventRecord, unless the stream is capturing.
func Record(context driver.CUcontext, event driver.CUevent, stream driver.CUstream) driver.CUresult {
	var c call
	c.CallContext, c.stream, c.check, c.fn, c.words = context, stream, notCapturing, fnEventRecord, 2
	c.args[0], c.args[1] = uint64(event), uint64(stream)
	return c.do()
}

// RecordWith is cuEventRecord, or cuEventRecordWithFlags with flags. It also records on a
// capturing stream, and then returns CodeCaptured.
func RecordWith(context driver.CUcontext, event driver.CUevent, stream driver.CUstream, flags uint32) driver.CUresult {
	var c call
	c.CallContext, c.stream, c.check, c.fn, c.words = context, stream, tell, fnEventRecord, 2
	c.args[0], c.args[1], c.args[2] = uint64(event), uint64(stream), uint64(flags)
	if flags != 0 {
		c.fn, c.words = fnEventRecordWithFlags, 3
	}
	return c.do()
}

// WaitEvent is cuStreamWaitEvent. If outside is set, the event was recorded outside of
// captures, and a capturing stream cannot wait for it.
func WaitEvent(context driver.CUcontext, stream driver.CUstream, event driver.CUevent, flags uint32, outside bool) driver.CUresult {
	var c call
	c.CallContext, c.stream, c.check, c.fn, c.words = context, stream, notLegacy, fnStreamWaitEvent, 3
	c.args[0], c.args[1], c.args[2] = uint64(stream), uint64(event), uint64(flags)
	if outside {
		c.check = notCapturing
	}
	return c.do()
}

// EventQuery queries an event for up to spin nanoseconds.
func EventQuery(context driver.CUcontext, event driver.CUevent, spin int64) driver.CUresult {
	var c call
	c.CallContext, c.flags, c.fn, c.words, c.spin = context, relaxed, fnEventQuery, 1, spin
	c.args[0] = uint64(event)
	return c.do()
}

// EventQuery queries an event.
func (h Home) EventQuery(event driver.CUevent) driver.CUresult {
	var c call
	c.Home, c.flags, c.fn, c.words = h, relaxed, fnEventQuery, 1
	c.args[0] = uint64(event)
	return c.do()
}

// GraphLaunch is cuGraphLaunch, unless the stream is capturing.
func GraphLaunch(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return withGraph(context, exec, stream, fnGraphLaunch)
}

// GraphUpload is cuGraphUpload, unless the stream is capturing.
func GraphUpload(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream) driver.CUresult {
	return withGraph(context, exec, stream, fnGraphUpload)
}

func withGraph(context driver.CUcontext, exec driver.CUgraphExec, stream driver.CUstream, fn function) driver.CUresult {
	var c call
	c.CallContext, c.flags, c.stream, c.check, c.fn, c.words = context, relaxed, stream, notCapturing, fn, 2
	c.args[0], c.args[1] = uint64(exec), uint64(stream)
	return c.do()
}

// Do enqueues a copy, a memset or a launch, and waits for the stream if c.Wait is set, also after
// an error, but not if it has refused the copy. host is the host side of the copy, or the list
// with the launch.
func (c *Copy) Do(host unsafe.Pointer) driver.CUresult {
	var k call
	k.CallContext, k.Context, k.ID = c.Context, c.Home, c.ID
	k.stream, k.check, k.flags, k.host = c.Stream, notLegacy, relaxed, host
	k.fn, k.words = c.arguments(&k.args)
	if c.Kind == HostToDevice {
		k.at = 1
	}
	if c.Wait != 0 {
		k.flags = relaxed | waits
	}
	r := k.do()
	runtime.KeepAlive(host)
	return r
}

// arguments returns the function of a copy, a memset or a launch, and the number of its arguments,
// which it sets, but for those of a launch.
func (c *Copy) arguments(a *[6]uint64) (fn function, n uint32) {
	switch {
	case c.Kind == Peer:
		a[0], a[1], a[2], a[3], a[4], a[5] = uint64(c.Dst), uint64(c.DstContext), uint64(c.Src), uint64(c.SrcContext), c.Size, uint64(c.Stream)
		return fnCopyPeer, 6
	case c.Kind >= CopyRows:
		a[1] = uint64(c.Stream)
		return copies[c.Kind], 2
	case c.Kind >= SetRows8:
		a[0], a[1], a[2], a[3], a[4], a[5] = uint64(c.Dst), c.Pitch, uint64(c.Src), c.Size, c.Rows, uint64(c.Stream)
		return copies[c.Kind], 6
	}
	a[0], a[1], a[2], a[3] = uint64(c.Dst), uint64(c.Src), c.Size, uint64(c.Stream)
	return copies[c.Kind], 4
}

var copies = [...]function{
	HostToDevice: fnCopyHtoD, DeviceToHost: fnCopyDtoH, DeviceToDevice: fnCopyDtoD,
	HostToHost: fnCopy, // both ends are pinned, so that they have addresses of the device
	Set8:       fnSet8, Set16: fnSet16, Set32: fnSet32, FillLaunch: fnLaunchKernel,
	SetRows8: fnSetRows8, SetRows16: fnSetRows16, SetRows32: fnSetRows32, CopyRows: fnCopyRows, CopyRowsPeer: fnCopyRowsPeer,
}

// Do is cuMemAllocAsync or cuMemAllocFromPoolAsync, and sets a.Address.
func (a *Alloc) Do() driver.CUresult {
	var c call
	c.Home, c.flags, c.stream, c.fn, c.words = a.Home, relaxed|creates, a.Stream, fnAlloc, 3
	c.args[1], c.args[2] = a.Size, uint64(a.Stream)
	if a.Pool != 0 {
		c.fn, c.words, c.args[2], c.args[3] = fnAllocFromPool, 4, uint64(a.Pool), uint64(a.Stream)
	}
	switch {
	case a.Complete != 0:
		c.flags |= settles
	case a.Captured == 0:
		c.check = notCapturing
	}
	r := c.do()
	a.Address = driver.CUdeviceptr(c.created)
	return r
}

// FreeAsync is cuMemFreeAsync, unless the stream is capturing.
func (h Home) FreeAsync(address driver.CUdeviceptr, stream driver.CUstream) driver.CUresult {
	var c call
	c.Home, c.flags, c.stream, c.check, c.fn, c.words = h, relaxed, stream, notCapturing, fnFree, 2
	c.args[0], c.args[1] = uint64(address), uint64(stream)
	return c.do()
}

// Free is cuMemFreeAsync on a stream that never captures.
func (h Home) Free(address driver.CUdeviceptr, stream driver.CUstream) driver.CUresult {
	var c call
	c.Home, c.flags, c.fn, c.words = h, relaxed, fnFree, 2
	c.args[0], c.args[1] = uint64(address), uint64(stream)
	return c.do()
}

// HostFunc is cuLaunchHostFunc. The driver's thread will call OnHostFunc with the token.
func HostFunc(context driver.CUcontext, stream driver.CUstream, token uintptr) driver.CUresult {
	var c call
	c.CallContext, c.flags, c.stream, c.check = context, relaxed, stream, notLegacy
	c.fn, c.words = fnLaunchHostFunc, 3
	c.args[0], c.args[1], c.args[2] = uint64(stream), uint64(HostFunction()), uint64(token)
	return c.do()
}

// AddCallback is cuStreamAddCallback, unless the stream is capturing. The driver's thread
// will call OnStatus with the token.
func AddCallback(context driver.CUcontext, stream driver.CUstream, token uintptr) driver.CUresult {
	var c call
	c.CallContext, c.flags, c.stream, c.check, c.fn, c.words = context, relaxed, stream, notCapturing, fnAddCallback, 4
	c.args[0], c.args[1], c.args[2] = uint64(stream), uint64(statusFunction()), uint64(token)
	return c.do()
}

const fileDescriptor = uint64(driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)

// ImportMemory is cuMemImportFromShareableHandle for a file descriptor. The driver takes it as a
// pointer, but such a small number must never be one in Go. It needs a current context. Windows
// has no file descriptors.
func ImportMemory(memory *driver.CUmemGenericAllocationHandle, fd uintptr) driver.CUresult {
	created, r := importFile(fnImportMemory, 3, fd)
	*memory = driver.CUmemGenericAllocationHandle(created)
	return r
}

// ImportPool is cuMemPoolImportFromShareableHandle for a file descriptor, as [ImportMemory].
func ImportPool(pool *driver.CUmemoryPool, fd uintptr) driver.CUresult {
	created, r := importFile(fnImportPool, 4, fd)
	*pool = driver.CUmemoryPool(created)
	return r
}

// importFile calls a function of so many arguments that makes an object of a file descriptor.
func importFile(fn function, words uint32, fd uintptr) (created uint64, r driver.CUresult) {
	if runtime.GOOS == "windows" {
		return 0, driver.CUDA_ERROR_NOT_SUPPORTED
	}
	var c call
	c.flags, c.fn, c.words = creates, fn, words
	c.args[1], c.args[2] = uint64(fd), fileDescriptor
	r = c.do()
	return c.created, r
}
