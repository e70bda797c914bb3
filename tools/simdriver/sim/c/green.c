#include "sim.h"

/*
 * Green contexts. What they have lives in the primary context: their streams are
 * streams of that one, which know where they belong. No kernel needs a
 * multiprocessor here.
 */

struct green {
	CUgreenCtx handle;
	struct green *next;
	struct context view; /* it, as a context */
	struct z_CUdevResource part;
	struct stream *records; /* ordered after all of its streams */
	struct stream *waits;   /* before those that are made later */
};

static struct green *greens; /* for good: other threads may have one current when it is destroyed */

static struct green *get(CUgreenCtx handle)
{
	return handle_get(GREEN, handle);
}

CUcontext green_view(struct green *g) { return g->view.handle; }
struct context *green_context(struct green *g) { return g->view.of; }

/* drain waits for the work of a primary context. Work enqueued meanwhile begins afterwards. */
static void drain(struct context *c)
{
	while (c->barrier && !sim.dead)
		await_change();
	c->barrier = sim.order + 1;
	context_wait(c);
	c->barrier = 0;
	changed();
	engine_wake();
}

CUresult cuGreenCtxCreate(CUgreenCtx *handle, CUdevResourceDesc description, CUdevice d, unsigned flags)
{
	ENTER(0, .waits = true);
	struct z_CUdevResource *part = handle_get(DESC, description);
	struct context *c;
	struct green *g;

	if (!handle || !part || flags > 1 || (!flags && SIM_VERSION < 13030))
		return INVALID_VALUE;
	if (!device_get(d) || part->inner.device != (unsigned)d)
		return INVALID_DEVICE;
	c = context_retain(device_get(d));
	drain(c);
	c->greens++;
	g = calloc(1, sizeof *g);
	g->part = *part;
	g->records = stream_new(c, 1, 0);
	g->waits = stream_new(c, 1, 0);
	g->view = (struct context){.green = g, .of = c, .device = d, .alive = true, .id = ++sim.contexts};
	g->view.handle = handle_new(CONTEXT, &g->view);
	live_count(CONTEXT, -1);
	g->handle = *handle = handle_new(GREEN, g);
	g->next = greens;
	greens = g;
	return OK;
}

/* lose ends a green context, but none of its streams. */
static void lose(struct green *g)
{
	g->view.alive = false;
	g->view.of->greens--;
	live_count(CONTEXT, 1);
	handle_end(g->view.handle);
	handle_end(g->handle);
}

void greens_end(struct context *c)
{
	for (struct green *g = greens; g; g = g->next)
		if (g->view.alive && g->view.of == c) {
			live_lost(1);
			lose(g);
		}
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle)
{
	ENTER(DEAD, .does = SWEEPS, .green = handle);
	struct green *g = get(handle);

	if (!g)
		return INVALID_CONTEXT;
	for (struct stream *s = g->view.of->streams; s; s = s->next)
		if (s->green == g && !s->destroyed) {
			if (SIM_VERSION < 13010)
				violation("a green context is destroyed before its streams");
			if (s->capture)
				capture_lose(s->capture);
			s->detached = true;
		}
	stream_end(g->records);
	stream_end(g->waits);
	lose(g);
	context_release(g->view.of);
	return sim.dead;
}

CUresult cuCtxFromGreenCtx(CUcontext *c, CUgreenCtx handle)
{
	ENTER(0);
	struct green *g = get(handle);

	if (!c)
		return INVALID_VALUE;
	if (!g)
		return INVALID_CONTEXT;
	*c = g->view.handle;
	return OK;
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *to, CUdevResourceType type)
{
	ENTER(0);
	struct context *c = handle_get(CONTEXT, handle);

	return c ? resource_tell(to, type, c->green ? &c->green->part : 0, c->device) : INVALID_CONTEXT;
}

CUresult cuStreamGetDevResource(CUstream handle, CUdevResource *to, CUdevResourceType type)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = handle);
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	return r ? r : resource_tell(to, type, s->green ? &s->green->part : 0, s->context->device);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *to, CUdevResourceType type)
{
	ENTER(0);
	struct green *g = get(handle);

	return g ? resource_tell(to, type, &g->part, 0) : INVALID_CONTEXT;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id)
{
	ENTER(0);
	struct green *g = handle ? get(handle) : current_view() ? current_view()->green : 0;

	if (!id)
		return INVALID_VALUE;
	if (!g)
		return INVALID_CONTEXT;
	*id = g->view.id;
	return OK;
}

/* -- their streams -- */

/* wait_for_stream makes a stream wait for the work on another one, where that takes some room. */
static CUresult wait_for_stream(struct stream *s, struct stream *other, int room)
{
	struct item *record = item_new(RECORD), *wait = item_new(WAIT);
	CUresult r;

	record->room = room;
	record->mark = wait->mark = mark_new();
	wait->mark->refs++;
	r = enqueue(other, record);
	if (!r)
		return enqueue(s, wait);
	item_free(wait);
	return r;
}

void green_join(struct stream *s, struct green *g)
{
	s->green = g;
	if (stream_busy(g->waits))
		wait_for_stream(s, g->waits, 0);
}

CUresult cuGreenCtxStreamCreate(CUstream *handle, CUgreenCtx green, unsigned flags, int priority)
{
	ENTER(0);
	struct green *g = get(green);
	struct stream *s;

	if (!handle || flags != 1)
		return INVALID_VALUE;
	if (!g)
		return INVALID_CONTEXT;
	s = stream_new(g->view.of, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
	s->handle = *handle = handle_new(STREAM, s);
	green_join(s, g);
	return OK;
}

/* captures tells whether a stream captures, and has all that do lose that. */
static bool captures(struct green *g)
{
	bool some = false;

	for (struct stream *s = g->view.of->streams; s; s = s->next)
		if (s->green == g && s->capture) {
			capture_lose(s->capture);
			some = true;
		}
	return some;
}

/* await_room waits until a record in all streams of a green context has room. */
static void await_room(struct green *g, int room)
{
	struct item record = {.work = RECORD, .room = room};

	for (struct stream *s = g->view.of->streams; s;)
		if (s->green == g && queue_room(s, &record))
			s = g->view.of->streams; /* the list may be another now */
		else
			s = s->next;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event)
{
	ENTER(0, .does = SWEEPS, .green = handle, .event = event);
	struct green *g = get(handle);
	struct event *e = handle_get(EVENT, event);
	CUresult r = OK;
	int room;

	if (!g)
		return INVALID_CONTEXT;
	if (!e || e->context != g->view.of)
		return INVALID_HANDLE;
	if (captures(g))
		return CAPTURE_UNSUPPORTED;
	await_room(g, room = event_room(e));
	for (struct stream *s = g->view.of->streams; s && !r; s = s->next)
		if (s->green == g && stream_busy(s))
			r = wait_for_stream(g->records, s, room);
	return r ? r : event_record(e, g->records);
}

static CUresult wait_for(struct stream *s, struct mark *m)
{
	struct item *i = item_new(WAIT);

	i->mark = m;
	m->refs++;
	return enqueue(s, i);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event)
{
	ENTER(0, .does = SWEEPS, .green = handle, .event = event);
	struct green *g = get(handle);
	struct event *e = handle_get(EVENT, event);
	CUresult r;

	if (!g)
		return INVALID_CONTEXT;
	if (!e)
		return INVALID_HANDLE;
	if (captured_event(e)) {
		capture_lose(e->capture);
		captures(g);
		return CAPTURE_UNSUPPORTED;
	}
	if (captures(g))
		return CAPTURE_UNSUPPORTED;
	if (event_stale(e))
		return INVALID_VALUE;
	if (!e->mark || e->mark->done)
		return OK;
	r = wait_for(g->waits, e->mark);
	for (struct stream *s = g->view.of->streams; s && !r; s = s->next)
		if (s->green == g && !s->destroyed)
			r = wait_for(s, e->mark);
	return r;
}

/* green_of is the green context of a stream, the current one for the legacy stream. */
static CUgreenCtx green_of(struct stream *s)
{
	struct green *g = s == s->context->legacy ? current_view()->green : s->green;

	return g ? g->handle : 0;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = handle);
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (r)
		return r;
	if (!green)
		return INVALID_VALUE;
	*green = green_of(s);
	return OK;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *c, CUgreenCtx *green)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = handle);
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (r)
		return r;
	if (!c || !green)
		return INVALID_VALUE;
	*c = s->context->handle;
	*green = green_of(s);
	return OK;
}
