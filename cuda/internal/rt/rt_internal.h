/* Declarations shared by the C files of this package. */
#pragma once

#include "rt.h"

/* The driver's functions used here, by exported name. */
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
	F(cuMemAllocAsync) \
	F(cuMemAllocFromPoolAsync) \
	F(cuMemFreeAsync) \
	F(cuMemImportFromShareableHandle) \
	F(cuLaunchHostFunc) \
	F(cuStreamAddCallback) \
	F(cuGraphCreate) \
	F(cuGraphDestroy) \
	F(cuGraphGetNodes) \
	F(cuGraphNodeGetType) \
	F(cuGraphInstantiateWithFlags) \
	F(cuGraphLaunch) \
	F(cuGraphUpload) \
	F(cuGraphExecDestroy) \
	F(cuStreamBeginCapture_v2) \
	F(cuStreamEndCapture) \
	F(cuMemPoolImportFromShareableHandle)

struct rt_cu {
#define MEMBER(name) fn_##name name;
	EVERY(MEMBER)
	fn_cuCtxGetId cuCtxGetId;                                     /* from 12.0 on */
	fn_cuGraphInstantiateWithParams cuGraphInstantiateWithParams; /* from 12.0 on */
	fn_cuLaunchHostFunc_v2 cuLaunchHostFunc_v2;                   /* from 13.2 on */
	/* from 12.0 on; before, the functions without suffix, which read a prefix of the same struct */
	fn_cuGraphAddKernelNode_v2 cuGraphAddKernelNode_v2;
	fn_cuGraphKernelNodeSetParams_v2 cuGraphKernelNodeSetParams_v2;
	fn_cuGraphExecKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams_v2;
};
extern struct rt_cu rt_cu;

/* rt_begin makes a context current unless it is 0, and sets the capture mode RELAXED if relaxed is set. */
CUresult rt_begin(struct rt_scope *s, uintptr_t context, unsigned relaxed);
/* rt_begin_home is rt_begin in the mode RELAXED, if home still has the id. */
CUresult rt_begin_home(struct rt_scope *s, uintptr_t context, uintptr_t home, unsigned long long id);
void rt_end(struct rt_scope *s);
/* rt_check_capturing returns RT_CAPTURING if the stream is capturing. */
CUresult rt_check_capturing(CUstream stream);
/* rt_legacy is rt_check_capturing for the legacy stream, whose use invalidates captures of blocking streams, and 0 for others. */
CUresult rt_legacy(CUstream stream);
/* rt_fill makes params point to the arguments. */
void rt_fill(void **params, struct rt_arg *a, unsigned n);
/* rt_enqueue_copy enqueues a copy or a memset. The context and the waits of c are the caller's. */
CUresult rt_enqueue_copy(struct rt_copy *c, void *host);
/* rt_enqueue_launch enqueues the launch of a list, from the word after its header on. */
CUresult rt_enqueue_launch(unsigned long long *words, CUstream stream);
/* rt_enqueue_host enqueues a host function. A negative mode selects cuLaunchHostFunc, which has no modes. */
CUresult rt_enqueue_host(CUstream stream, uintptr_t token, int mode);
/* 1 while the driver calls this thread, and between rt_enter with RT_FOREIGN and rt_leave. */
extern __thread unsigned rt_called_back;
/* rt_now returns CLOCK_MONOTONIC in nanoseconds. */
long rt_now(void);
