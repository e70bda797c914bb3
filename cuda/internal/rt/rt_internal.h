/* Declarations shared by the C files of this package. */
#pragma once

#include "rt.h"

/* The driver's functions used here, by exported name, in the order of Go's names. */
#define EVERY(F) \
	F(cuCtxGetCurrent) \
	F(cuCtxSetCurrent) \
	F(cuThreadExchangeStreamCaptureMode) \
	F(cuStreamIsCapturing) \
	F(cuStreamQuery) \
	F(cuStreamSynchronize) \
	F(cuStreamWaitEvent) \
	F(cuStreamCreateWithPriority) \
	F(cuEventQuery) \
	F(cuEventRecord) \
	F(cuEventRecordWithFlags) \
	F(cuLaunchKernel) \
	F(cuLaunchKernelEx) \
	F(cuMemcpyHtoDAsync_v2) \
	F(cuMemcpyDtoHAsync_v2) \
	F(cuMemcpyDtoDAsync_v2) \
	F(cuMemcpyAsync) \
	F(cuMemcpyPeerAsync) \
	F(cuMemsetD8Async) \
	F(cuMemsetD16Async) \
	F(cuMemsetD32Async) \
	F(cuMemcpy3DAsync_v2) \
	F(cuMemcpy3DPeerAsync) \
	F(cuMemsetD2D8Async) \
	F(cuMemsetD2D16Async) \
	F(cuMemsetD2D32Async) \
	F(cuMemAllocAsync) \
	F(cuMemAllocFromPoolAsync) \
	F(cuMemFreeAsync) \
	F(cuMemImportFromShareableHandle) \
	F(cuMemPoolImportFromShareableHandle) \
	F(cuLaunchHostFunc) \
	F(cuStreamAddCallback) \
	F(cuStreamBeginCapture_v2) \
	F(cuGraphCreate) \
	F(cuGraphDestroy) \
	F(cuGraphGetNodes) \
	F(cuGraphNodeGetType) \
	F(cuGraphInstantiateWithFlags) \
	F(cuGraphExecDestroy) \
	F(cuGraphLaunch) \
	F(cuGraphUpload) \
	F(cuGraphAddKernelNode_v2) \
	F(cuGraphKernelNodeSetParams_v2) \
	F(cuGraphExecKernelNodeSetParams_v2) \
	F(cuCtxGetId) \
	F(cuGraphInstantiateWithParams)

#define RT_FN(name) number_##name
#define NUMBER(name) RT_FN(name),
enum { RT_FN(none), EVERY(NUMBER) RT_FUNCTIONS };

#pragma GCC visibility push(hidden) /* so that the compiler may put these functions into their callers */

/* Older drivers lack the last two functions, or have the three before without _v2: see Go's bind. */
union rt_cu {
	struct {
		uintptr_t none;
#define MEMBER(name) fn_##name name;
		EVERY(MEMBER)
	};
	uintptr_t address[RT_FUNCTIONS];
};
extern union rt_cu rt_cu;

/* rt_begin makes a context current unless it is 0, and sets the capture mode RELAXED if relaxed is set. */
CUresult rt_begin(struct rt_scope *s, uintptr_t context, unsigned relaxed);
/* rt_begin_home is rt_begin, if home still has the id. */
CUresult rt_begin_home(struct rt_scope *s, uintptr_t context, uintptr_t home, unsigned long long id, unsigned relaxed);
void rt_end(struct rt_scope *s);
void rt_end_other(struct rt_scope *s);
/* rt_check_capturing returns RT_CAPTURING if the stream is capturing. */
CUresult rt_check_capturing(CUstream stream);
/* rt_legacy is rt_check_capturing for the legacy stream, whose use invalidates captures of blocking streams, and 0 for others. */
CUresult rt_legacy(CUstream stream);
/* rt_fill makes params point to the arguments. */
void rt_fill(void **params, struct rt_arg *a, unsigned n);
/* rt_function calls a function with six arguments. */
CUresult rt_function(unsigned fn, const unsigned long long *args);
/* rt_enqueue_launch enqueues the launch of a list, from the word after its header on. */
CUresult rt_enqueue_launch(unsigned long long *words, CUstream stream);
/* 1 while the driver calls this thread, and between rt_enter with RT_FOREIGN and rt_leave. */
extern __thread unsigned rt_called_back;
/* rt_now returns CLOCK_MONOTONIC in nanoseconds. */
long rt_now(void);

#pragma GCC visibility pop
