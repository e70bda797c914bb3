//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package rt

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
)

// notingDriver is a driver in C that notes the calls with their arguments, a pointer as p: CuGetErrorString returns
// the note. Context 3 is current, and a context is its own id. Streams 1 and 6 capture. Work on stream 9, and
// event 9, are not ready. Every call with 13 as first argument fails with code 13, a copy of 13 bytes with code 14, and
// a wait for stream 13 with code 13. A handle that is created is 77.
func notingDriver() string {
	text := `#include <stdio.h>
#include <string.h>
static char text[4096];
static int note(const char *name, int skip, int n, long a, long b, long c, long d, long e, long f, long g, long h, long i) {
	long all[] = {a, b, c, d, e, f, g, h, i};
	sprintf(text + strlen(text), *text ? ", %s" : "%s", name);
	if (skip) *(long *)a = 77;
	for (int k = skip; k < n; k++)
		sprintf(text + strlen(text), all[k] >> 20 ? " p" : " %ld", all[k]);
	return skip ? 0 : a == 13 ? 13 : 0;
}
#define NOTE(name, skip, n) note(name, skip, n, a, b, c, d, e, f, g, h, i)
#define ARGUMENTS long a, long b, long c, long d, long e, long f, long g, long h, long i
int cuGetErrorString(int code, char **p) {
	static char last[sizeof text];
	strcpy(last, text), *text = 0, *p = last;
	return 0;
}
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuInit(unsigned flags) { return 0; }
int cuCtxGetId(ARGUMENTS) { *(long *)b = a; return NOTE("id", 0, 1); }
static long current = 3;
int cuCtxGetCurrent(long *now) { *now = current; return 0; }
int cuCtxSetCurrent(ARGUMENTS) { current = a; return NOTE("CtxSetCurrent", 0, 1); }
int cuThreadExchangeStreamCaptureMode(unsigned *mode) { unsigned m = *mode; *mode = 0; ARGUMENTS_OF(m) return 0; }
int cuStreamIsCapturing(ARGUMENTS) { *(unsigned *)b = a == 1 || a == 6; return NOTE("capturing", 0, 1); }
int cuStreamQuery(ARGUMENTS) { NOTE("query", 0, 1); return a == 9 ? 600 : a == 13 ? 13 : 0; }
int cuEventQuery(ARGUMENTS) { NOTE("eventquery", 0, 1); return a == 9 ? 600 : a == 13 ? 13 : 0; }
int cuLaunchKernel(long a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h, long i) {
	return NOTE("LaunchKernel", 0, 9); /* unlike those in registers, arguments on the stack have no defined upper half */
}
int cuMemcpyDtoDAsync_v2(ARGUMENTS) { NOTE("dtod", 0, 4); return c == 13 ? 14 : 0; }
`
	text = strings.Replace(text, "ARGUMENTS_OF(m)", `note("mode", 0, 1, m, 0, 0, 0, 0, 0, 0, 0, 0);`, 1)
	for name, n := range map[string]int{
		"StreamSynchronize": 1, "StreamWaitEvent": 3, "StreamBeginCapture_v2": 2, "StreamEndCapture": 1,
		"EventRecord": 2, "EventRecordWithFlags": 3, "LaunchKernelEx": 2, "LaunchHostFunc": 3,
		"StreamAddCallback": 4, "MemcpyHtoDAsync_v2": 4, "MemcpyDtoHAsync_v2": 4, "MemcpyAsync": 4, "MemcpyPeerAsync": 6,
		"MemsetD8Async": 4, "MemsetD16Async": 4, "MemsetD32Async": 4, "MemsetD2D8Async": 6, "MemsetD2D16Async": 6, "MemsetD2D32Async": 6,
		"Memcpy3DAsync_v2": 2, "Memcpy3DPeerAsync": 2, "MemFreeAsync": 2, "GraphDestroy": 1, "GraphGetNodes": 1,
		"GraphNodeGetType": 1, "GraphInstantiateWithFlags": 1, "GraphLaunch": 2, "GraphUpload": 2, "GraphExecDestroy": 1,
		"GraphAddKernelNode": 1, "GraphKernelNodeSetParams": 1, "GraphExecKernelNodeSetParams": 1,
	} {
		text += fmt.Sprintf("int cu%s(ARGUMENTS) { return NOTE(%q, 0, %d); }\n", name, strings.TrimSuffix(name, "_v2"), n)
	}
	for name, n := range map[string]int{
		"StreamCreateWithPriority": 3, "GraphCreate": 2, "MemAllocAsync": 3, "MemAllocFromPoolAsync": 4,
		"MemImportFromShareableHandle": 3, "MemPoolImportFromShareableHandle": 4,
	} {
		text += fmt.Sprintf("int cu%s(ARGUMENTS) { return NOTE(%q, 1, %d); }\n", name, name, n)
	}
	return text
}

// TestCalls: what each function calls, in every way of calling. Between "in" and "out", the context is current and the
// capture mode is RELAXED; between "set" and "back", only the context is.
func TestCalls(t *testing.T) {
	const context, stream, legacy, capturing, busy, broken = 8, 5, 1, 6, 9, 13
	const unready = driver.CUDA_ERROR_NOT_READY
	var (
		made    uint64
		value   uint64
		home    = Home{CallContext: context, Context: context, ID: context}
		reset   = Home{CallContext: context, Context: context, ID: 4}
		handles = Home{Context: context, ID: context}
		launch  = (&Launch{Function: 21, Config: driver.CUlaunchConfig{GridDimX: 1, GridDimY: 2, GridDimZ: 3, BlockDimX: 4, BlockDimY: 5, BlockDimZ: 6, SharedMemBytes: 7}, Args: 1}).Append(nil, &Arg{Tag: Tag(Near, 8)})
	)
	copying := func(kind CopyKind, stream driver.CUstream, size uint64, wait uint32, host unsafe.Pointer) func() driver.CUresult {
		return func() driver.CUresult {
			return (&Copy{Context: context, Stream: stream, Dst: 31, Src: 32, Size: size, DstContext: 33, SrcContext: 34, Pitch: 35, Rows: 36, Kind: kind, Wait: wait, Home: context, ID: context}).Do(host)
		}
	}
	allocating := func(h Home, stream driver.CUstream, pool driver.CUmemoryPool, captured, complete uint32) func() driver.CUresult {
		return func() driver.CUresult {
			a := Alloc{Home: h, Stream: stream, Pool: pool, Size: 64, Captured: captured, Complete: complete}
			r := a.Do()
			made = uint64(a.Address)
			return r
		}
	}
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, driver.Open(build(t, notingDriver())))
		require.NoError(t, Init())
		calls := func() string {
			var p *byte
			require.NoError(t, driver.CuGetErrorString(0, &p))
			s := unsafe.String(p, strings.IndexByte(unsafe.String(p, 4096), 0))
			s = strings.ReplaceAll(strings.Clone(s), "CtxSetCurrent 8, mode 2", "in")
			s = strings.ReplaceAll(s, "mode 0, CtxSetCurrent 3", "out")
			s = strings.ReplaceAll(s, "CtxSetCurrent 8", "set")
			return strings.ReplaceAll(s, "CtxSetCurrent 3", "back")
		}
		calls()
		for _, c := range []struct {
			name    string
			call    func() driver.CUresult
			code    driver.CUresult
			created bool
			calls   string
		}{
			{"Check", home.Check, 0, false, "id 8"},
			{"Check of a reset context", reset.Check, CodeReset, false, "id 8"},
			{"CreateStream", func() driver.CUresult {
				var s driver.CUstream
				defer func() { made = uint64(s) }()
				return home.CreateStream(&s, 1, 2)
			}, 0, true, "id 8, in, StreamCreateWithPriority 1 2, out"},
			{"CreateGraph", func() driver.CUresult {
				var g driver.CUgraph
				defer func() { made = uint64(g) }()
				return home.CreateGraph(&g)
			}, 0, true, "id 8, in, GraphCreate 0, out"},
			{"CreateGraph of a reset context", func() driver.CUresult { var g driver.CUgraph; return reset.CreateGraph(&g) }, CodeReset, false, "id 8"},
			{"DestroyGraph", func() driver.CUresult { return home.DestroyGraph(22) }, 0, false, "id 8, in, GraphDestroy 22, out"},
			{"DestroyExec", func() driver.CUresult { return home.DestroyExec(22) }, 0, false, "id 8, in, GraphExecDestroy 22, out"},
			{"BeginCapture", func() driver.CUresult { return home.BeginCapture(stream, 2) }, 0, false, "id 8, in, capturing 5, StreamBeginCapture 5 2, out"},
			{"BeginCapture once more", func() driver.CUresult { return home.BeginCapture(capturing, 2) }, CodeCapturing, false, "id 8, in, capturing 6, out"},
			{"EndCapture", func() driver.CUresult { var g driver.CUgraph; return home.EndCapture(capturing, &g) }, 0, false, "id 8, in, StreamEndCapture 6, out"},
			{"EndCapture of a reset context", func() driver.CUresult { var g driver.CUgraph; return reset.EndCapture(capturing, &g) }, CodeReset, false, "id 8"},

			{"Query", func() driver.CUresult { return Query(context, stream, 0) }, 0, false, "in, capturing 5, query 5, out"},
			{"Query without context", func() driver.CUresult { return Query(0, stream, 0) }, 0, false, "mode 2, capturing 5, query 5, mode 0"},
			{"Query in the current context", func() driver.CUresult { return Query(3, stream, 0) }, 0, false, "mode 2, capturing 5, query 5, mode 0"},
			{"Query of a busy stream", func() driver.CUresult { return Query(context, busy, 0) }, unready, false, "in, capturing 9, query 9, out"},
			{"Query of a stream that becomes ready", func() driver.CUresult { return Query(context, stream, 1e6) }, 0, false, "in, capturing 5, query 5, out"},
			{"Query of a capturing stream", func() driver.CUresult { return Query(context, capturing, 1e6) }, CodeCapturing, false, "in, capturing 6, out"},
			{"Capturing", func() driver.CUresult { assert.False(t, Capturing(context, stream)); return 0 }, 0, false, "set, capturing 5, back"},
			{"Capturing of a capture", func() driver.CUresult { assert.True(t, Capturing(context, capturing)); return 0 }, 0, false, "set, capturing 6, back"},
			{"Mark", func() driver.CUresult { return Mark(context, busy, 23) }, unready, false, "in, capturing 9, query 9, EventRecord 23 9, out"},
			{"Mark fails", func() driver.CUresult { return Mark(context, busy, broken) }, broken, false, "in, capturing 9, query 9, EventRecord 13 9, out"},
			{"Mark of an idle stream", func() driver.CUresult { return home.Mark(stream, 23) }, 0, false, "id 8, in, capturing 5, query 5, out"},
			{"Mark of a capturing stream", func() driver.CUresult { return home.Mark(capturing, 23) }, CodeCapturing, false, "id 8, in, capturing 6, out"},
			{"EventQuery", func() driver.CUresult { return EventQuery(context, 23, 0) }, 0, false, "in, eventquery 23, out"},
			{"EventQuery of a Home", func() driver.CUresult { return handles.EventQuery(9) }, unready, false, "id 8, mode 2, eventquery 9, mode 0"},

			{"Record", func() driver.CUresult { return Record(context, 23, stream) }, 0, false, "set, capturing 5, EventRecord 23 5, back"},
			{"Record fails", func() driver.CUresult { return Record(context, broken, stream) }, broken, false, "set, capturing 5, EventRecord 13 5, back"},
			{"Record in a capture", func() driver.CUresult { return Record(context, 23, capturing) }, CodeCapturing, false, "set, capturing 6, back"},
			{"RecordWith", func() driver.CUresult { return RecordWith(context, 23, stream, 1) }, 0, false, "set, capturing 5, EventRecordWithFlags 23 5 1, back"},
			{"RecordWith in a capture", func() driver.CUresult { return RecordWith(context, 23, capturing, 0) }, CodeCaptured, false, "set, capturing 6, EventRecord 23 6, back"},
			{"RecordWith beside a capture", func() driver.CUresult { return RecordWith(context, 23, legacy, 0) }, CodeCapturing, false, "set, capturing 1, back"},
			{"RecordWith asks in vain", func() driver.CUresult { return RecordWith(context, 23, broken, 0) }, 0, false, "set, capturing 13, EventRecord 23 13, back"},
			{"WaitEvent", func() driver.CUresult { return WaitEvent(context, capturing, 23, 1, false) }, 0, false, "set, StreamWaitEvent 6 23 1, back"},
			{"WaitEvent outside", func() driver.CUresult { return WaitEvent(context, capturing, 23, 1, true) }, CodeCapturing, false, "set, capturing 6, back"},
			{"WaitEvent beside a capture", func() driver.CUresult { return WaitEvent(context, legacy, 23, 1, false) }, CodeCapturing, false, "set, capturing 1, back"},
			{"GraphLaunch", func() driver.CUresult { return GraphLaunch(context, 24, stream) }, 0, false, "in, capturing 5, GraphLaunch 24 5, out"},
			{"GraphUpload", func() driver.CUresult { return GraphUpload(context, 24, capturing) }, CodeCapturing, false, "in, capturing 6, out"},
			{"HostFunc", func() driver.CUresult { return HostFunc(context, capturing, 25) }, 0, false, "in, LaunchHostFunc 6 p 25, out"},
			{"HostFunc beside a capture", func() driver.CUresult { return HostFunc(context, legacy, 25) }, CodeCapturing, false, "in, capturing 1, out"},
			{"AddCallback", func() driver.CUresult { return AddCallback(context, stream, 25) }, 0, false, "in, capturing 5, StreamAddCallback 5 p 25 0, out"},

			{"Copy to the device", copying(HostToDevice, stream, 8, 0, unsafe.Pointer(&value)), 0, false, "id 8, in, MemcpyHtoDAsync 31 p 8 5, out"},
			{"Copy to the host", copying(DeviceToHost, stream, 8, 1, unsafe.Pointer(&value)), 0, false, "id 8, in, MemcpyDtoHAsync p 32 8 5, StreamSynchronize 5, out"},
			{"Copy on the device", copying(DeviceToDevice, stream, 8, 1, nil), 0, false, "id 8, in, dtod 31 32 8 5, StreamSynchronize 5, out"},
			{"Copy fails", copying(DeviceToDevice, stream, 13, 1, nil), 14, false, "id 8, in, dtod 31 32 13 5, StreamSynchronize 5, out"},
			{"Copy fails without wait", copying(DeviceToDevice, stream, 13, 0, nil), 14, false, "id 8, in, dtod 31 32 13 5, out"},
			{"Copy whose wait fails", copying(DeviceToDevice, broken, 8, 1, nil), broken, false, "id 8, in, dtod 31 32 8 13, StreamSynchronize 13, StreamSynchronize 13, out"},
			{"Copy beside a capture", copying(DeviceToDevice, legacy, 8, 1, nil), CodeCapturing, false, "id 8, in, capturing 1, out"},
			{"Copy between devices", copying(Peer, stream, 8, 0, nil), 0, false, "id 8, in, MemcpyPeerAsync 31 33 32 34 8 5, out"},
			{"Copy of pinned memory", copying(HostToHost, stream, 8, 0, nil), 0, false, "id 8, in, MemcpyAsync 31 32 8 5, out"},
			{"Memset of bytes", copying(Set8, stream, 8, 0, nil), 0, false, "id 8, in, MemsetD8Async 31 32 8 5, out"},
			{"Memset of words", copying(Set16, stream, 8, 0, nil), 0, false, "id 8, in, MemsetD16Async 31 32 8 5, out"},
			{"Memset of double words", copying(Set32, stream, 8, 0, nil), 0, false, "id 8, in, MemsetD32Async 31 32 8 5, out"},
			{"Memset of rows of bytes", copying(SetRows8, stream, 8, 0, nil), 0, false, "id 8, in, MemsetD2D8Async 31 35 32 8 36 5, out"},
			{"Memset of rows of words", copying(SetRows16, stream, 8, 0, nil), 0, false, "id 8, in, MemsetD2D16Async 31 35 32 8 36 5, out"},
			{"Memset of rows of double words", copying(SetRows32, stream, 8, 1, nil), 0, false, "id 8, in, MemsetD2D32Async 31 35 32 8 36 5, StreamSynchronize 5, out"},
			{"Copy of rows", copying(CopyRows, stream, 8, 1, unsafe.Pointer(&value)), 0, false, "id 8, in, Memcpy3DAsync p 5, StreamSynchronize 5, out"},
			{"Copy of rows between devices", copying(CopyRowsPeer, stream, 8, 0, unsafe.Pointer(&value)), 0, false, "id 8, in, Memcpy3DPeerAsync p 5, out"},
			{"Fill", copying(FillLaunch, stream, 8, 1, unsafe.Pointer(&launch[0])), 0, false, "id 8, in, LaunchKernel 21 1 2 3 4 5 6 7 5, StreamSynchronize 5, out"},

			{"Alloc", allocating(home, stream, 0, 0, 0), 0, true, "id 8, in, capturing 5, MemAllocAsync 64 5, out"},
			{"Alloc beside a capture", allocating(home, capturing, 0, 0, 0), CodeCapturing, false, "id 8, in, capturing 6, out"},
			{"Alloc in a capture", allocating(home, capturing, 26, 1, 0), 0, true, "id 8, in, MemAllocFromPoolAsync 64 26 6, out"},
			{"Alloc for every stream", allocating(home, stream, 26, 0, 1), 0, true, "id 8, in, MemAllocFromPoolAsync 64 26 5, query 5, out"},
			{"Alloc for every stream, later", allocating(home, busy, 26, 0, 1), 0, true, "id 8, in, MemAllocFromPoolAsync 64 26 9, query 9, StreamSynchronize 9, out"},
			{"FreeAsync", func() driver.CUresult { return handles.FreeAsync(27, stream) }, 0, false, "id 8, mode 2, capturing 5, MemFreeAsync 27 5, mode 0"},
			{"FreeAsync beside a capture", func() driver.CUresult { return home.FreeAsync(27, capturing) }, CodeCapturing, false, "id 8, in, capturing 6, out"},
			{"Free", func() driver.CUresult { return home.Free(27, stream) }, 0, false, "id 8, in, MemFreeAsync 27 5, out"},
			{"ImportMemory", func() driver.CUresult {
				var m driver.CUmemGenericAllocationHandle
				defer func() { made = uint64(m) }()
				return ImportMemory(&m, 4)
			}, 0, true, "MemImportFromShareableHandle 4 1"},
			{"ImportPool", func() driver.CUresult {
				var p driver.CUmemoryPool
				defer func() { made = uint64(p) }()
				return ImportPool(&p, 4)
			}, 0, true, "MemPoolImportFromShareableHandle 4 1 0"},
		} {
			t.Run(c.name, func(t *testing.T) {
				made = 0
				assert.Equal(t, c.code, c.call())
				assert.Equal(t, c.calls, calls())
				if c.created {
					assert.EqualValues(t, 77, made)
				} else {
					assert.Zero(t, made)
				}
			})
		}
		t.Run("Batch", func(t *testing.T) {
			var list []uint64
			for _, c := range []Copy{
				{Kind: HostToDevice, Dst: 31, Src: 32, Size: 8}, {Kind: DeviceToHost, Dst: 32, Src: 31, Size: 8},
				{Kind: Peer, Dst: 31, Src: 32, Size: 8, DstContext: 33, SrcContext: 34}, {Kind: Set32, Dst: 31, Src: 32, Size: 8},
			} {
				list = c.Append(list, nil)
			}
			list = (&Copy{Kind: FillLaunch}).Append(list, unsafe.Pointer(&launch[0]))
			list = AppendRecord(AppendNothing(list), 23)
			list = AppendGraph(AppendWait(list, 23), 24)
			list = AppendHost(list, 25)
			list = AppendRecord(AppendRecord(list, broken), 23)
			code, done := Batch(context, capturing, list, 13, false)
			assert.EqualValues(t, broken, code)
			assert.Equal(t, 10, done)
			assert.Equal(t, "in, MemcpyHtoDAsync 31 32 8 6, MemcpyDtoHAsync 32 31 8 6, MemcpyPeerAsync 31 33 32 34 8 6, MemsetD32Async 31 32 8 6, "+
				"LaunchKernel 21 1 2 3 4 5 6 7 6, EventRecord 23 6, StreamWaitEvent 6 23 0, GraphLaunch 24 6, LaunchHostFunc 6 p 25, "+
				"EventRecord 13 6, out", calls())
			code, done = Batch(context, capturing, list, 13, true)
			assert.Equal(t, CodeCapturing, code)
			assert.Zero(t, done)
			assert.Equal(t, "in, capturing 6, out", calls())
		})
		t.Run("Alloc whose wait fails", func(t *testing.T) {
			assert.EqualValues(t, broken, allocating(home, broken, 26, 0, 1)())
			assert.Regexp(t, "MemAllocFromPoolAsync 64 26 13, query 13, .*MemFreeAsync 77 13", calls())
		})
		t.Run("in a callback", func(t *testing.T) {
			var s Scope
			require.Zero(t, Enter(&s, context, 0, Foreign, 0))
			calls()
			assert.Equal(t, CodeCallback, copying(DeviceToDevice, stream, 8, 1, nil)())
			assert.Empty(t, calls())
			Leave(&s)
		})
	})
}

// TestFunctions: Go and C give a function the same number.
func TestFunctions(t *testing.T) {
	header, err := os.ReadFile("rt_internal.h")
	require.NoError(t, err)
	var inC []string
	for _, m := range regexp.MustCompile(`(?m)^\tF\((\w+)\)`).FindAllStringSubmatch(string(header), -1) {
		inC = append(inC, m[1])
	}
	assert.Equal(t, inC, names[1:])
}
