#include "sim.h"

__thread struct thread thread;

int thread_id(void)
{
	static int threads;

	if (!thread.id)
		thread.id = ++threads;
	return thread.id;
}

/* A primary context that was destroyed comes back to life when it is retained. */
static void begin(struct context *c, int device)
{
	static const size_t limits[] = {1024, 7 << 20, 8 << 20, 2, 2048};

	c->device = device;
	c->alive = true;
	c->id = ++sim.contexts;
	c->peers = 1u << device;
	memcpy(c->limits, limits, sizeof limits);
	c->legacy = stream_new(c, 0, 0);
}

/* context_end ends what lives in a context, and it. */
void context_end(struct context *c)
{
	c->ending = true;
	callbacks_await();
	greens_end(c);
	captures_leave(c);
	context_wait(c);
	for (struct stream *s = c->streams, *next; s; s = next) {
		next = s->next;
		live_lost(s->handle && !s->destroyed);
		stream_end(s);
	}
	c->legacy = 0;
	links_end(c);
	modules_end(c);
	textures_end(c);
	arrays_end(c);
	externals_end(c);
	memory_end(c);
	events_end(c);
	c->alive = c->ending = false;
	c->peers = 0;
	changed();
}

struct context *current_view(void)
{
	return thread.depth ? thread.stack[thread.depth - 1] : 0;
}

struct context *context_behind(struct context *c)
{
	return c && c->of && c->alive ? c->of : c;
}

struct context *current(void)
{
	return context_behind(current_view());
}

static struct context *created; /* those that are no primary ones */

void contexts_end(void)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		devices[i].primary.refs = 0;
		if (devices[i].primary.alive)
			context_end(&devices[i].primary);
	}
	for (struct context *c = created; c; c = c->next)
		if (c->alive) {
			context_end(c);
			handle_end(c->handle);
		}
}

void contexts_each(void (*f)(struct stream *, void *), void *data)
{
	for (int i = 0; i < MAX_DEVICES; i++)
		for (struct stream *s = devices[i].primary.streams; s; s = s->next)
			f(s, data);
	for (struct context *c = created; c; c = c->next)
		for (struct stream *s = c->streams; s; s = s->next)
			f(s, data);
}

CUresult owner(struct context *c)
{
	if (!c->alive)
		return CONTEXT_DESTROYED;
	return sim.strict && current() != c ? INVALID_CONTEXT : OK;
}

static struct context *get(CUcontext handle)
{
	return handle_get(CONTEXT, handle);
}

struct context *context_of(CUcontext handle)
{
	return context_behind(get(handle));
}

struct context *context_retain(struct device *v)
{
	struct context *c = &v->primary;

	if (!c->handle) {
		c->handle = handle_new(CONTEXT, c);
		live_count(CONTEXT, -1);
		c->primary = true;
	}
	while (c->ending) /* waits for its work just now */
		await_change();
	if (!c->alive)
		callbacks_await();
	if (!c->alive) /* another thread may have been faster */
		begin(c, v - devices);
	return c;
}

void context_release(struct context *c)
{
	if (!c->refs && !c->greens && c->alive)
		context_end(c);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice d)
{
	ENTER(0);
	struct device *v = device_get(d);
	struct context *c;

	if (!handle)
		return INVALID_VALUE;
	if (!v)
		return INVALID_DEVICE;
	c = context_retain(v);
	c->refs++;
	*handle = c->handle;
	return OK;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
	ENTER(DEAD, .does = RESETS, .device = d, .last = true);
	struct device *v = device_get(d);

	if (!v)
		return INVALID_DEVICE;
	if (!v->primary.refs)
		return INVALID_CONTEXT;
	if (--v->primary.refs)
		flight_harmless();
	context_release(&v->primary);
	return sim.dead;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice d)
{
	ENTER(DEAD, .does = RESETS, .device = d);
	struct device *v = device_get(d);

	if (!v)
		return INVALID_DEVICE;
	if (v->primary.greens)
		return NOT_PERMITTED;
	if (v->primary.alive)
		context_end(&v->primary);
	return OK;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags)
{
	ENTER(0);
	struct device *v = device_get(d);

	if (!v)
		return INVALID_DEVICE;
	if (flags > 0xff)
		return INVALID_VALUE;
	v->primary.flags = flags;
	return OK;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active)
{
	ENTER(DEAD);
	struct device *v = device_get(d);

	if (!flags || !active)
		return INVALID_VALUE;
	if (!v)
		return INVALID_DEVICE;
	*flags = v->primary.flags;
	*active = v->primary.alive;
	return OK;
}

static CUresult create(CUcontext *handle, unsigned flags, CUdevice d)
{
	struct context *c;

	if (!handle || flags > 0xff || thread.depth == 64)
		return INVALID_VALUE;
	if (!device_get(d))
		return INVALID_DEVICE;
	callbacks_await();
	c = calloc(1, sizeof *c);
	c->handle = *handle = handle_new(CONTEXT, c);
	c->flags = flags;
	c->next = created;
	created = c; /* for good: other threads may have it current when it is destroyed */
	begin(c, d);
	thread.stack[thread.depth++] = c;
	return OK;
}

CUresult cuCtxCreate_v2(CUcontext *handle, unsigned flags, CUdevice d)
{
	ENTER(0);
	return create(handle, flags, d);
}

CUresult cuCtxCreate_v4(CUcontext *handle, CUctxCreateParams *params, unsigned flags, CUdevice d)
{
	ENTER(0);
	return params ? NOT_SUPPORTED : create(handle, flags, d);
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
	ENTER(DEAD, .does = RESETS, .context = handle);
	struct context *c = get(handle);

	if (!c || c->primary || c->of)
		return INVALID_CONTEXT;
	context_end(c);
	if (current() == c)
		thread.depth--;
	handle_end(handle);
	return sim.dead;
}

CUresult cuCtxGetCurrent(CUcontext *handle)
{
	ENTER(BARE | DEAD);
	if (!handle)
		return INVALID_VALUE;
	*handle = current_view() ? current_view()->handle : 0;
	return OK;
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
	ENTER(BARE | DEAD);
	struct context *c = 0;

	if (handle && !(c = get(handle)))
		return INVALID_CONTEXT;
	if (!c)
		thread.depth -= thread.depth > 0;
	else
		thread.stack[thread.depth ? thread.depth - 1 : thread.depth++] = c;
	return OK;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
	ENTER(BARE | DEAD);
	struct context *c = get(handle);

	if (!c || thread.depth == 64)
		return INVALID_CONTEXT;
	thread.stack[thread.depth++] = c;
	return OK;
}

CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
	ENTER(BARE | DEAD);
	if (!current_view())
		return INVALID_CONTEXT;
	if (handle)
		*handle = current_view()->handle;
	thread.depth--;
	return OK;
}

CUresult cuCtxGetDevice(CUdevice *d)
{
	ENTER(CURRENT | DEAD);
	if (!d)
		return INVALID_VALUE;
	*d = current()->device;
	return OK;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
	ENTER(CURRENT);
	if (!flags)
		return INVALID_VALUE;
	*flags = current()->flags;
	return OK;
}

/* which is the context of a handle, or the current one for 0. */
static struct context *which(CUcontext handle)
{
	return handle ? get(handle) : current_view();
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	ENTER(DEAD);
	struct context *c = which(handle);

	if (!id)
		return INVALID_VALUE;
	if (!c)
		return INVALID_CONTEXT;
	if (!c->alive)
		return c->primary ? INVALID_CONTEXT : CONTEXT_DESTROYED;
	*id = c->id;
	return OK;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
	ENTER(0);
	if (!version)
		return INVALID_VALUE;
	if (!which(handle))
		return INVALID_CONTEXT;
	*version = 3020;
	return OK;
}

#define LIMITS 7

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	ENTER(CURRENT);
	if (!value || limit >= LIMITS)
		return INVALID_VALUE;
	*value = current()->limits[limit];
	return OK;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	ENTER(CURRENT);
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (limit >= LIMITS)
		return INVALID_VALUE;
	current()->limits[limit] = value;
	return OK;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	ENTER(CURRENT);
	return OK; /* there is no cache */
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER(CURRENT);
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return OK;
}

CUresult cuCtxSynchronize(void)
{
	ENTER(CURRENT, .does = SWEEPS, .waits = true);
	CUresult r = unsafe_call();

	for (struct stream *s = current()->streams; s; s = s->next)
		if (s->capture)
			r = CAPTURE_UNSUPPORTED;
	capture_lose_context(current());
	if (r)
		return r;
	context_wait(current());
	pools_notice(0);
	return sim.dead;
}

/* There is no tool that would record. */
CUresult cuProfilerStart(void)
{
	ENTER(CURRENT);
	return OK;
}

CUresult cuProfilerStop(void)
{
	ENTER(CURRENT);
	return OK;
}

static CUresult peer(CUcontext handle, bool allow)
{
	struct context *c = current(), *other = context_of(handle);
	unsigned bit;

	if (!other)
		return INVALID_CONTEXT;
	if (other == c || other->device == c->device)
		return INVALID_DEVICE;
	bit = 1u << other->device;
	if (allow == !!(c->peers & bit))
		return allow ? PEER_ENABLED : PEER_NOT_ENABLED;
	c->peers ^= bit;
	return OK;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
	ENTER(CURRENT, .does = GRANTS);
	return flags ? INVALID_VALUE : peer(handle, true);
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
	ENTER(CURRENT, .does = GRANTS);
	return peer(handle, false);
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
	ENTER(CURRENT);
	if (!left || !total)
		return INVALID_VALUE;
	*total = device_memory();
	*left = *total - devices[current()->device].used;
	return OK;
}
