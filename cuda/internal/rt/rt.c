//go:build cgo && linux && (amd64 || arm64)

#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#include "rt_internal.h"

enum { NOT_READY = 600 };

union rt_cu rt_cu;

/* rt_library returns a handle of a library that is loaded, or 0. */
uintptr_t rt_library(const char *file)
{
	return (uintptr_t)dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
}

/* rt_find makes a function the library's with this name, and returns whether there is one. */
unsigned rt_find(unsigned function, uintptr_t library, const char *name)
{
	return (rt_cu.address[function] = (uintptr_t)dlsym((void *)library, name)) != 0;
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

/* rt_end_other is rt_end after code that may have made another context current. */
void rt_end_other(struct rt_scope *s)
{
	CUcontext now = 0;

	if (!s->set)
		s->set = rt_cu.cuCtxGetCurrent(&now) || (uintptr_t)now != s->before;
	rt_end(s);
}

/* check_home returns RT_RESET if the context no longer has the id. An id of 0 is not compared. */
static CUresult check_home(uintptr_t context, unsigned long long id)
{
	unsigned long long now = id;
	CUresult r = id && rt_cu.cuCtxGetId && !rt_called_back ? rt_cu.cuCtxGetId((CUcontext)context, &now) : 0;

	return now != id || r == 201 || r == 709 ? RT_RESET : 0; /* the call itself returns any other error */
}

CUresult rt_begin_home(struct rt_scope *s, uintptr_t context, uintptr_t home, unsigned long long id, unsigned relaxed)
{
	CUresult r = check_home(home, id);

	return r ? r : rt_begin(s, context, relaxed);
}

CUresult rt_enter(uintptr_t context, unsigned long long id, unsigned mode, uintptr_t stream, unsigned char *scope)
{
	struct rt_scope *s = (struct rt_scope *)scope;
	CUstreamCaptureStatus status = 0;
	CUresult r = check_home(context, id);

	if (!r)
		r = rt_begin(s, context, mode != RT_OWN_MODE);
	if (r)
		return r;
	if (stream && !rt_cu.cuStreamIsCapturing((CUstream)stream, &status))
		s->status = 1 + status;
	if (mode == RT_FOREIGN)
		rt_called_back = 1;
	return 0;
}

void rt_leave(unsigned char *scope)
{
	struct rt_scope *s = (struct rt_scope *)scope;

	rt_called_back = 0; /* as rt_enter has found it */
	rt_end_other(s);
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

long rt_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
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

/* rt_function ignores the arguments that the function does not have: C's conventions of calls on amd64 and arm64 allow them. */
CUresult rt_function(unsigned fn, const unsigned long long *a)
{
	typedef CUresult (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

	return ((any)rt_cu.address[fn])(a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* make makes the call itself. */
static CUresult make(struct rt_call *c)
{
	if (c->host) {
		if (c->fn == RT_FN(cuLaunchKernel))
			return rt_enqueue_launch((unsigned long long *)c->host + 1, (CUstream)c->stream);
		c->args[c->at] = (uintptr_t)c->host;
	}
	if (c->flags & RT_CREATES)
		c->args[0] = (uintptr_t)&c->created;
	return rt_function(c->fn, c->args);
}

/* check returns an error if the call must not be made. */
static CUresult check(struct rt_call *c, CUresult *captured)
{
	CUstream stream = (CUstream)c->stream;

	if (c->check == RT_NOT_CAPTURING)
		return rt_check_capturing(stream);
	if (c->check == RT_TELL && c->stream > 1)
		*captured = rt_check_capturing(stream); /* the call itself returns another error */
	return c->check == RT_UNCHECKED ? 0 : rt_legacy(stream);
}

/* again makes the check and the call again until the work has completed, for at most spin nanoseconds. */
static CUresult again(struct rt_call *c)
{
	CUresult captured, r;

	for (long end = rt_now() + c->spin; !(r = check(c, &captured)) && (r = make(c)) == NOT_READY && rt_now() < end;)
		;
	return r;
}

/* finish does what follows the call that has returned r. */
static CUresult finish(struct rt_call *c, CUresult r)
{
	CUstream stream = (CUstream)c->stream;
	CUresult w;

	if (r == NOT_READY && c->flags & RT_MARKS && !(r = rt_cu.cuEventRecord((CUevent)c->event, stream)))
		r = NOT_READY;
	if (c->flags & RT_WAITS) {
		if ((w = rt_cu.cuStreamSynchronize(stream)))
			rt_cu.cuStreamSynchronize(stream); /* the memory must not be freed during the copy */
		r = r ? r : w;
	}
	if (c->flags & RT_SETTLES && !r) {
		if ((r = rt_cu.cuStreamQuery(stream)) == NOT_READY)
			r = rt_cu.cuStreamSynchronize(stream);
		if (r)
			rt_cu.cuMemFreeAsync(c->created, stream);
	}
	return r;
}

CUresult rt_call(unsigned char *call)
{
	struct rt_call *c = (struct rt_call *)call;
	struct rt_scope s;
	CUresult captured = 0, r;

	if (rt_called_back)
		return RT_IN_CALLBACK;
	if ((r = rt_begin_home(&s, c->context, c->home, c->id, c->flags & RT_RELAX)))
		return r;
	if (!(r = check(c, &captured)) && c->fn) {
		r = make(c);
		if (r == NOT_READY && c->spin)
			r = again(c);
		if (c->flags & (RT_WAITS | RT_SETTLES | RT_MARKS))
			r = finish(c, r);
	}
	rt_end(&s);
	return r || captured != RT_CAPTURING ? r : RT_CAPTURED;
}
