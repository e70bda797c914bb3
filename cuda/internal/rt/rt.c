//go:build cgo && linux && (amd64 || arm64)

#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#include "rt_internal.h"

struct rt_cu rt_cu;

/* rt_bind finds the functions in the loaded driver, and returns the name of one that is missing. */
const char *rt_bind(const char *file)
{
	void *lib = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);

	if (!lib)
		return file;
#define FIND(name) \
	if (!(*(void **)&rt_cu.name = dlsym(lib, #name))) \
		return #name;
	EVERY(FIND)
	*(void **)&rt_cu.cuCtxGetId = dlsym(lib, "cuCtxGetId");
	*(void **)&rt_cu.cuGraphInstantiateWithParams = dlsym(lib, "cuGraphInstantiateWithParams");
	*(void **)&rt_cu.cuLaunchHostFunc_v2 = dlsym(lib, "cuLaunchHostFunc_v2");
#define FIND_EITHER(name) \
	if (!(*(void **)&rt_cu.name##_v2 = dlsym(lib, #name "_v2")) && !(*(void **)&rt_cu.name##_v2 = dlsym(lib, #name))) \
		return #name;
	FIND_EITHER(cuGraphAddKernelNode)
	FIND_EITHER(cuGraphKernelNodeSetParams)
	FIND_EITHER(cuGraphExecKernelNodeSetParams)
	return 0;
}

/* If context is 0, the call needs none. */
CUresult rt_begin(struct rt_scope *s, uintptr_t context, unsigned relaxed)
{
	CUcontext before = 0;
	CUresult r;

	if (rt_called_back)
		return RT_IN_CALLBACK;
	s->set = 0;
	s->mode = 2;
	if (context) {
		if ((r = rt_cu.cuCtxGetCurrent(&before)))
			return r;
		if ((uintptr_t)before != context) {
			if ((r = rt_cu.cuCtxSetCurrent((CUcontext)context)))
				return r;
			s->set = 1;
		}
	}
	s->before = (uintptr_t)before;
	if (relaxed)
		rt_cu.cuThreadExchangeStreamCaptureMode(&s->mode);
	return 0;
}

void rt_end(struct rt_scope *s)
{
	if (s->mode != 2)
		rt_cu.cuThreadExchangeStreamCaptureMode(&s->mode);
	if (s->set)
		rt_cu.cuCtxSetCurrent((CUcontext)s->before);
}

/* check_home returns RT_RESET if the context no longer has the id. An id of 0 is not compared. */
static CUresult check_home(uintptr_t context, unsigned long long id)
{
	unsigned long long now = id;
	CUresult r = id && rt_cu.cuCtxGetId && !rt_called_back ? rt_cu.cuCtxGetId((CUcontext)context, &now) : 0;

	return now != id || r == 201 || r == 709 ? RT_RESET : 0; /* the call itself returns any other error */
}

CUresult rt_begin_home(struct rt_scope *s, uintptr_t context, uintptr_t home, unsigned long long id)
{
	CUresult r = check_home(home, id);

	return r ? r : rt_begin(s, context, 1);
}

CUresult rt_enter(uintptr_t context, unsigned long long id, unsigned mode, unsigned char *scope)
{
	CUresult r = check_home(context, id);

	if (!r)
		r = rt_begin((struct rt_scope *)scope, context, mode != RT_OWN_MODE);
	if (!r && mode == RT_FOREIGN)
		rt_called_back = 1;
	return r;
}

void rt_leave(unsigned char *scope)
{
	struct rt_scope *s = (struct rt_scope *)scope;

	rt_called_back = 0; /* as rt_enter has found it */
	s->set = 1; /* the code in between may have made another context current */
	rt_end(s);
}

CUresult rt_check_home(uintptr_t home, unsigned long long id)
{
	return rt_called_back ? RT_IN_CALLBACK : check_home(home, id);
}

/* rt_create_stream creates a stream if the context still has the id. */
CUresult rt_create_stream(uintptr_t context, unsigned long long id, unsigned char *stream, unsigned flags, int priority)
{
	struct rt_scope s;
	CUresult r = rt_begin_home(&s, context, context, id);

	if (r)
		return r;
	r = rt_cu.cuStreamCreateWithPriority((CUstream *)stream, flags, priority);
	rt_end(&s);
	return r;
}

CUresult rt_check_capturing(CUstream stream)
{
	CUstreamCaptureStatus status = 0;
	CUresult r = rt_cu.cuStreamIsCapturing(stream, &status);

	if (r == 906) /* the legacy stream while a blocking stream captures */
		return RT_CAPTURING;
	return r ? r : status ? RT_CAPTURING : 0;
}

CUresult rt_legacy(CUstream stream)
{
	return (uintptr_t)stream > 1 ? 0 : rt_check_capturing(stream);
}

/* rt_capturing returns whether work enqueued on the stream now would be captured. */
unsigned rt_capturing(uintptr_t context, uintptr_t stream)
{
	struct rt_scope s;
	CUresult r = rt_begin(&s, context, 0);

	if (!r) {
		r = rt_check_capturing((CUstream)stream);
		rt_end(&s);
	}
	return r == RT_CAPTURING;
}

long rt_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* SPIN queries until the work has completed, for at most spin nanoseconds. */
#define SPIN(r, query, spin) do { \
	long end_ = (spin) ? rt_now() + (spin) : 0; \
	do \
		r = query; \
	while (r == 600 && (spin) && rt_now() < end_); \
} while (0)

static CUresult query_stream(CUstream stream)
{
	CUresult r = rt_check_capturing(stream);

	return r ? r : rt_cu.cuStreamQuery(stream);
}

CUresult rt_query(uintptr_t context, uintptr_t stream, long spin)
{
	struct rt_scope s;
	CUresult r = rt_begin(&s, context, 1);

	if (r)
		return r;
	SPIN(r, query_stream((CUstream)stream), spin);
	rt_end(&s);
	return r;
}

/* rt_mark records the event after the stream's current work, if there is any. */
CUresult rt_mark(uintptr_t context, uintptr_t stream, uintptr_t event)
{
	struct rt_scope s;
	CUresult r = rt_begin(&s, context, 1);

	if (r)
		return r;
	if ((r = query_stream((CUstream)stream)) == 600 && !(r = rt_cu.cuEventRecord((CUevent)event, (CUstream)stream)))
		r = 600;
	rt_end(&s);
	return r;
}

CUresult rt_home_mark(uintptr_t context, uintptr_t home, unsigned long long id, uintptr_t stream, uintptr_t event)
{
	CUresult r = check_home(home, id);

	return r ? r : rt_mark(context, stream, event);
}

CUresult rt_home_query(uintptr_t context, uintptr_t home, unsigned long long id, uintptr_t event)
{
	CUresult r = check_home(home, id);

	return r ? r : rt_event_query(context, event, 0);
}

CUresult rt_event_query(uintptr_t context, uintptr_t event, long spin)
{
	struct rt_scope s;
	CUresult r = rt_begin(&s, context, 1);

	if (r)
		return r;
	SPIN(r, rt_cu.cuEventQuery((CUevent)event), spin);
	rt_end(&s);
	return r;
}

/* rt_record records an event, unless the stream is capturing. */
CUresult rt_record(uintptr_t context, uintptr_t event, uintptr_t stream)
{
	struct rt_scope s;
	CUresult r = rt_begin(&s, context, 0);

	if (r)
		return r;
	if (!(r = rt_check_capturing((CUstream)stream)))
		r = rt_cu.cuEventRecord((CUevent)event, (CUstream)stream);
	rt_end(&s);
	return r;
}

/* rt_record_with also records an event on a capturing stream, and then returns RT_CAPTURED. */
CUresult rt_record_with(uintptr_t context, uintptr_t event, uintptr_t stream, unsigned flags)
{
	struct rt_scope s;
	CUresult captured, r = rt_begin(&s, context, 0);

	if (r)
		return r;
	captured = rt_check_capturing((CUstream)stream);
	if (captured && (uintptr_t)stream <= 1)
		r = captured;
	else if (flags)
		r = rt_cu.cuEventRecordWithFlags((CUevent)event, (CUstream)stream, flags);
	else
		r = rt_cu.cuEventRecord((CUevent)event, (CUstream)stream);
	rt_end(&s);
	return r || captured != RT_CAPTURING ? r : RT_CAPTURED;
}

/* rt_wait_event returns RT_CAPTURING if the stream is capturing and the event was recorded outside of captures. */
CUresult rt_wait_event(uintptr_t context, uintptr_t stream, uintptr_t event, unsigned flags, unsigned outside)
{
	struct rt_scope s;
	CUresult r = rt_begin(&s, context, 0);

	if (r)
		return r;
	if (!(r = outside ? rt_check_capturing((CUstream)stream) : rt_legacy((CUstream)stream)))
		r = rt_cu.cuStreamWaitEvent((CUstream)stream, (CUevent)event, flags);
	rt_end(&s);
	return r;
}

void rt_fill(void **params, struct rt_arg *a, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		params[i] = a[i].kind == RT_FAR ? a[i].pointer : a[i].near;
}

CUresult rt_launch(unsigned char *launch, unsigned char *args)
{
	struct rt_launch *l = (struct rt_launch *)launch;
	struct rt_config *c = &l->config;
	void *params[l->args ? l->args : 1];
	struct rt_scope s;
	CUresult r = rt_begin(&s, l->context, !l->prepared); /* else it could invalidate captures on other threads */

	if (r)
		return r;
	if ((r = rt_legacy(c->stream))) {
		rt_end(&s);
		return r;
	}
	rt_fill(params, (struct rt_arg *)args, l->args);
	if (c->count)
		r = rt_cu.cuLaunchKernelEx((const CUlaunchConfig *)c, (CUfunction)l->function, params, 0);
	else
		r = rt_cu.cuLaunchKernel((CUfunction)l->function, c->grid[0], c->grid[1], c->grid[2],
			c->block[0], c->block[1], c->block[2], c->shared, c->stream, params, 0);
	rt_end(&s);
	return r;
}

CUresult rt_enqueue_copy(struct rt_copy *c, void *host)
{
	CUstream stream = (CUstream)c->stream;

	switch (c->kind) {
	case RT_HTOD:
		return rt_cu.cuMemcpyHtoDAsync_v2(c->dst, host, c->size, stream);
	case RT_DTOH:
		return rt_cu.cuMemcpyDtoHAsync_v2(host, c->src, c->size, stream);
	case RT_DTOD:
		return rt_cu.cuMemcpyDtoDAsync_v2(c->dst, c->src, c->size, stream);
	case RT_PEER:
		return rt_cu.cuMemcpyPeerAsync(c->dst, (CUcontext)c->dst_context, c->src, (CUcontext)c->src_context, c->size, stream);
	case RT_HTOH: /* both ends are pinned, so that they have addresses of the device */
		return rt_cu.cuMemcpyAsync(c->dst, c->src, c->size, stream);
	case RT_SET8:
		return rt_cu.cuMemsetD8Async(c->dst, c->src, c->size, stream);
	case RT_SET16:
		return rt_cu.cuMemsetD16Async(c->dst, c->src, c->size, stream);
	case RT_SET32:
		return rt_cu.cuMemsetD32Async(c->dst, c->src, c->size, stream);
	default: /* RT_FILL_LAUNCH */
		return rt_enqueue_launch((unsigned long long *)host + 1, stream);
	}
}

/* rt_copy enqueues a copy, a memset or a launch, and waits for the stream if c->wait is set, unless it refuses the copy. */
CUresult rt_copy(unsigned char *what, unsigned char *host)
{
	struct rt_copy *c = (struct rt_copy *)what;
	struct rt_scope s;
	CUresult r = rt_begin_home(&s, c->context, c->home, c->id);

	if (r)
		return r;
	if ((r = rt_legacy((CUstream)c->stream))) { /* a wait would invalidate captures, too */
		rt_end(&s);
		return r;
	}
	r = rt_enqueue_copy(c, host);
	if (c->wait) {
		/* Even after an error: a part of the copy may be in flight. */
		CUresult w = rt_cu.cuStreamSynchronize((CUstream)c->stream);
		if (w)
			rt_cu.cuStreamSynchronize((CUstream)c->stream); /* the memory must not be freed during the copy */
		r = r ? r : w;
	}
	rt_end(&s);
	return r;
}

static CUresult allocate(struct rt_alloc *a)
{
	CUdeviceptr *address = (CUdeviceptr *)&a->address;
	CUstream stream = (CUstream)a->stream;
	CUresult r = a->pool ? rt_cu.cuMemAllocFromPoolAsync(address, a->size, (CUmemoryPool)a->pool, stream) :
		rt_cu.cuMemAllocAsync(address, a->size, stream);

	if (r || !a->complete)
		return r;
	if ((r = rt_cu.cuStreamQuery(stream)) == 600)
		r = rt_cu.cuStreamSynchronize(stream);
	if (r)
		rt_cu.cuMemFreeAsync(*address, stream);
	return r;
}

CUresult rt_alloc(unsigned char *alloc)
{
	struct rt_alloc *a = (struct rt_alloc *)alloc;
	struct rt_scope s;
	CUresult r = rt_begin_home(&s, a->context, a->home, a->id);

	if (r)
		return r;
	if (a->captured || a->complete || !(r = rt_check_capturing((CUstream)a->stream)))
		r = allocate(a);
	rt_end(&s);
	return r;
}

/* rt_free_async frees memory if its context still has the id and the stream, which perhaps captures, does not. */
CUresult rt_free_async(uintptr_t context, uintptr_t home, unsigned long long id, unsigned long long address, uintptr_t stream, unsigned captures)
{
	struct rt_scope s;
	CUresult r = rt_begin_home(&s, context, home, id);

	if (r)
		return r;
	if (!captures || !(r = rt_check_capturing((CUstream)stream)))
		r = rt_cu.cuMemFreeAsync(address, (CUstream)stream);
	rt_end(&s);
	return r;
}

/* rt_import_memory needs a current context. The driver takes the file descriptor as a pointer. */
CUresult rt_import_memory(unsigned char *memory, uintptr_t fd)
{
	enum { POSIX_FILE = 1 };

	return rt_cu.cuMemImportFromShareableHandle((CUmemGenericAllocationHandle *)memory, (void *)fd, POSIX_FILE);
}

/*
 * rt_import_pool imports a memory pool by its file descriptor, which the driver
 * takes as a pointer. In Go, such a small number must not be a pointer.
 */
CUresult rt_import_pool(unsigned char *pool, uintptr_t fd)
{
	const CUmemAllocationHandleType file_descriptor = 1;

	return rt_cu.cuMemPoolImportFromShareableHandle((CUmemoryPool *)pool, (void *)fd, file_descriptor, 0);
}
