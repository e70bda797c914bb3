//go:build cgo && linux && (amd64 || arm64)

#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

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
	F(cuMemFreeAsync)

static struct {
#define MEMBER(name) fn_##name name;
	EVERY(MEMBER)
	fn_cuCtxGetId cuCtxGetId; /* from 12.0 on */
} cu;

/* rt_bind finds the functions in the driver, which is open, and names one that is missing. */
const char *rt_bind(const char *file)
{
	void *lib = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);

	if (!lib)
		return file;
#define FIND(name) \
	if (!(*(void **)&cu.name = dlsym(lib, #name))) \
		return #name;
	EVERY(FIND)
	*(void **)&cu.cuCtxGetId = dlsym(lib, "cuCtxGetId");
	return 0;
}

/* Context 0 means that the call needs none. */
static CUresult enter(struct rt_scope *s, uintptr_t context, unsigned relaxed)
{
	CUcontext before = 0;
	CUresult r;

	s->set = 0;
	s->mode = 2;
	if (context) {
		if ((r = cu.cuCtxGetCurrent(&before)))
			return r;
		if ((uintptr_t)before != context) {
			if ((r = cu.cuCtxSetCurrent((CUcontext)context)))
				return r;
			s->set = 1;
		}
	}
	s->before = (uintptr_t)before;
	if (relaxed)
		cu.cuThreadExchangeStreamCaptureMode(&s->mode);
	return 0;
}

static void leave(struct rt_scope *s)
{
	if (s->mode != 2)
		cu.cuThreadExchangeStreamCaptureMode(&s->mode);
	if (s->set)
		cu.cuCtxSetCurrent((CUcontext)s->before);
}

CUresult rt_enter(uintptr_t context, unsigned long long id, unsigned relaxed, unsigned char *scope)
{
	unsigned long long now = id;
	CUresult r = id && cu.cuCtxGetId ? cu.cuCtxGetId((CUcontext)context, &now) : 0;

	if (now != id || r == 201 || r == 709)
		return RT_RESET;
	if (r)
		return r;
	return enter((struct rt_scope *)scope, context, relaxed);
}

void rt_leave(unsigned char *scope)
{
	leave((struct rt_scope *)scope);
}

static CUresult capturing(CUstream stream)
{
	CUstreamCaptureStatus status = 0;
	CUresult r = cu.cuStreamIsCapturing(stream, &status);

	return r ? r : status ? RT_CAPTURING : 0;
}

/* rt_capturing tells whether work put on the stream now would be captured. */
unsigned rt_capturing(uintptr_t context, uintptr_t stream)
{
	struct rt_scope s;
	CUresult r = enter(&s, context, 0);

	if (!r) {
		r = capturing((CUstream)stream);
		leave(&s);
	}
	return r == RT_CAPTURING;
}

CUresult rt_query(uintptr_t context, uintptr_t stream)
{
	struct rt_scope s;
	CUresult r = enter(&s, context, 1);

	if (r)
		return r;
	if (!(r = capturing((CUstream)stream)))
		r = cu.cuStreamQuery((CUstream)stream);
	leave(&s);
	return r;
}

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* spins asks until the event is done, for so many nanoseconds at most. */
static CUresult spins(CUevent event, long spin)
{
	long end = spin ? now() + spin : 0;
	CUresult r;

	do
		r = cu.cuEventQuery(event);
	while (r == 600 && spin && now() < end);
	return r;
}

/* rt_point marks the end of what is on the stream now, and waits a moment for it. */
CUresult rt_point(uintptr_t context, uintptr_t stream, uintptr_t event, long spin)
{
	struct rt_scope s;
	CUresult r = enter(&s, context, 1);

	if (r)
		return r;
	if (!(r = capturing((CUstream)stream)) && (r = cu.cuStreamQuery((CUstream)stream)) == 600 &&
	    !(r = cu.cuEventRecord((CUevent)event, (CUstream)stream)))
		r = spins((CUevent)event, spin);
	leave(&s);
	return r;
}

CUresult rt_event_query(uintptr_t context, uintptr_t event, long spin)
{
	struct rt_scope s;
	CUresult r = enter(&s, context, 1);

	if (r)
		return r;
	r = spins((CUevent)event, spin);
	leave(&s);
	return r;
}

CUresult rt_record(uintptr_t context, uintptr_t event, uintptr_t stream, unsigned flags)
{
	struct rt_scope s;
	CUresult captured, r = enter(&s, context, 0);

	if (r)
		return r;
	captured = capturing((CUstream)stream);
	if (flags)
		r = cu.cuEventRecordWithFlags((CUevent)event, (CUstream)stream, flags);
	else
		r = cu.cuEventRecord((CUevent)event, (CUstream)stream);
	leave(&s);
	return r || captured != RT_CAPTURING ? r : RT_CAPTURED;
}

CUresult rt_wait_event(uintptr_t context, uintptr_t stream, uintptr_t event, unsigned flags)
{
	struct rt_scope s;
	CUresult r = enter(&s, context, 0);

	if (r)
		return r;
	r = cu.cuStreamWaitEvent((CUstream)stream, (CUevent)event, flags);
	leave(&s);
	return r;
}

CUresult rt_launch(unsigned char *launch, unsigned char *args)
{
	struct rt_launch *l = (struct rt_launch *)launch;
	struct rt_config *c = &l->config;
	struct rt_arg *a = (struct rt_arg *)args;
	void *params[l->args ? l->args : 1];
	struct rt_scope s;
	CUresult r = enter(&s, l->context, 0);

	if (r)
		return r;
	for (unsigned i = 0; i < l->args; i++)
		params[i] = a[i].kind == RT_FAR ? a[i].pointer : a[i].near;
	if (c->count)
		r = cu.cuLaunchKernelEx((const CUlaunchConfig *)c, (CUfunction)l->function, params, 0);
	else
		r = cu.cuLaunchKernel((CUfunction)l->function, c->grid[0], c->grid[1], c->grid[2],
			c->block[0], c->block[1], c->block[2], c->shared, c->stream, params, 0);
	leave(&s);
	return r;
}

static CUresult copy(struct rt_copy *c, void *host)
{
	CUstream stream = (CUstream)c->stream;

	switch (c->kind) {
	case RT_HTOD:
		return cu.cuMemcpyHtoDAsync_v2(c->dst, host, c->size, stream);
	case RT_DTOH:
		return cu.cuMemcpyDtoHAsync_v2(host, c->src, c->size, stream);
	case RT_DTOD:
		return cu.cuMemcpyDtoDAsync_v2(c->dst, c->src, c->size, stream);
	case RT_PEER:
		return cu.cuMemcpyPeerAsync(c->dst, (CUcontext)c->dst_context, c->src, (CUcontext)c->src_context, c->size, stream);
	case RT_SET8:
		return cu.cuMemsetD8Async(c->dst, c->src, c->size, stream);
	case RT_SET16:
		return cu.cuMemsetD16Async(c->dst, c->src, c->size, stream);
	default:
		return cu.cuMemsetD32Async(c->dst, c->src, c->size, stream);
	}
}

/* rt_copy enqueues a copy or a memset and, if asked to, waits for the stream. */
CUresult rt_copy(unsigned char *what, unsigned char *host)
{
	struct rt_copy *c = (struct rt_copy *)what;
	struct rt_scope s;
	CUresult r = enter(&s, c->context, c->wait);

	if (r)
		return r;
	r = copy(c, host);
	if (c->wait) {
		/* Also after an error: some of the copy may be under way. */
		CUresult w = cu.cuStreamSynchronize((CUstream)c->stream);
		r = r ? r : w;
	}
	leave(&s);
	return r;
}

CUresult rt_alloc_async(uintptr_t context, unsigned char *address, unsigned long long size, uintptr_t stream)
{
	struct rt_scope s;
	CUresult r = enter(&s, context, 1);

	if (r)
		return r;
	r = cu.cuMemAllocAsync((CUdeviceptr *)address, size, (CUstream)stream);
	leave(&s);
	return r;
}

CUresult rt_free_async(uintptr_t context, unsigned long long address, uintptr_t stream)
{
	struct rt_scope s;
	CUresult r = enter(&s, context, 1);

	if (r)
		return r;
	r = cu.cuMemFreeAsync(address, (CUstream)stream);
	leave(&s);
	return r;
}
