/* What the C files of this package share. */
#pragma once

#include "rt.h"

/* The functions used here, by the names that the driver exports. */
#define EVERY(F) \
	F(cuCtxGetCurrent) \
	F(cuCtxSetCurrent) \
	F(cuThreadExchangeStreamCaptureMode) \
	F(cuStreamIsCapturing) \
	F(cuStreamQuery) \
	F(cuStreamSynchronize) \
	F(cuStreamWaitEvent) \
	F(cuEventQuery) \
	F(cuEventRecord) \
	F(cuEventRecordWithFlags) \
	F(cuLaunchKernel) \
	F(cuLaunchKernelEx) \
	F(cuMemcpyHtoDAsync_v2) \
	F(cuMemcpyDtoHAsync_v2) \
	F(cuMemcpyDtoDAsync_v2) \
	F(cuMemcpyPeerAsync) \
	F(cuMemsetD8Async) \
	F(cuMemsetD16Async) \
	F(cuMemsetD32Async) \
	F(cuMemAllocAsync) \
	F(cuMemFreeAsync) \
	F(cuMemImportFromShareableHandle) \
	F(cuLaunchHostFunc) \
	F(cuStreamAddCallback) \
	F(cuGraphLaunch) \
	F(cuGraphUpload) \
	F(cuMemPoolImportFromShareableHandle)

struct rt_cu {
#define MEMBER(name) fn_##name name;
	EVERY(MEMBER)
	fn_cuCtxGetId cuCtxGetId;                   /* from 12.0 on */
	fn_cuLaunchHostFunc_v2 cuLaunchHostFunc_v2; /* from 13.2 on */
	/* from 12.0 on; before, the ones of that name without a suffix, which read less of the same */
	fn_cuGraphAddKernelNode_v2 cuGraphAddKernelNode_v2;
	fn_cuGraphKernelNodeSetParams_v2 cuGraphKernelNodeSetParams_v2;
	fn_cuGraphExecKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams_v2;
};
extern struct rt_cu rt_cu;

/* rt_begin makes a context current, if it is not 0, and the capture mode RELAXED if that is asked for. */
CUresult rt_begin(struct rt_scope *s, uintptr_t context, unsigned relaxed);
void rt_end(struct rt_scope *s);
/* rt_check_capturing is RT_CAPTURING for a stream that captures. */
CUresult rt_check_capturing(CUstream stream);
/* rt_legacy is that for the legacy stream, and 0 for others: what is put on it while a blocking stream captures destroys that capture. */
CUresult rt_legacy(CUstream stream);
/* Set while the driver calls this thread. */
extern __thread unsigned rt_called_back;
/* rt_now is in nanoseconds. */
long rt_now(void);
