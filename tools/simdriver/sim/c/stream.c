#include "sim.h"

struct item *item_new(enum work work)
{
	struct item *i = calloc(1, sizeof *i);

	i->work = work;
	return i;
}

struct mark *mark_new(void)
{
	struct mark *m = calloc(1, sizeof *m);

	m->refs = 1;
	return m;
}

void mark_drop(struct mark *m)
{
	if (m && !--m->refs)
		free(m);
}

void item_free(struct item *i)
{
	if (i->work == LAUNCH)
		launch_end(i);
	mark_drop(i->mark);
	block_drop(i->block);
	free(i->params);
	free(i->rest);
	free(i->ops);
	free(i->semaphores);
	free(i->box);
	free(i->alloc);
	free(i->attributes);
	free(i->bodies);
	free(i->staged);
	inner_free(i);
	free(i);
}

void item_block(struct item *i, struct block *b)
{
	i->block = b;
	b->refs++;
}

static void *copy_of(const void *from, size_t size)
{
	return from ? memcpy(malloc(size), from, size) : 0;
}

/* A copy of what a graph holds, which may be other graphs. Their nodes get handles if they are for the program. */
struct item *item_copy(const struct item *i, bool handles)
{
	struct item *copy = item_new(i->work);

	*copy = *i;
	copy->next = copy->queued = 0;
	copy->params = params_copy(i);
	copy->rest = 0;
	if (copy->mark)
		copy->mark->refs++;
	if (copy->block)
		copy->block->refs++;
	copy->ops = copy_of(i->ops, i->n * sizeof *i->ops);
	copy->semaphores = copy_of(i->semaphores, i->n * sizeof *i->semaphores);
	copy->box = copy_of(i->box, sizeof *i->box);
	copy->alloc = alloc_copy(i->alloc);
	copy->attributes = copy_of(i->attributes, i->nattributes * sizeof *i->attributes);
	copy->bodies = 0;
	inner_copy(copy, handles);
	return copy;
}

struct stream *stream_new(struct context *c, unsigned flags, int priority)
{
	struct stream *s = calloc(1, sizeof *s);

	s->context = c;
	s->flags = flags;
	s->priority = priority;
	s->id = ++sim.ids;
	s->tail = &s->head;
	attributes_begin(s);
	s->next = c->streams;
	c->streams = s;
	return s;
}

/* stream_collect frees a stream that nothing needs any more. */
void stream_collect(struct stream *s)
{
	struct stream **at = &s->context->streams;

	if (!s->destroyed || s->head || s->listed || s->waiting)
		return;
	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	pools_forget(s);
	free(s);
}

/* stream_end takes a stream from the program. Its work goes on. */
void stream_end(struct stream *s)
{
	if (s->destroyed)
		return;
	capture_forget(s);
	if (s->handle)
		handle_end(s->handle);
	s->destroyed = true;
	stream_collect(s);
}

CUresult stream_get(CUstream handle, struct stream **s)
{
	if ((uintptr_t)handle <= 1) {
		if (!current())
			return INVALID_CONTEXT;
		*s = current()->legacy;
		return *s ? OK : CONTEXT_DESTROYED;
	}
	if ((uintptr_t)handle == 2) /* the default stream of a thread is not simulated */
		return NOT_SUPPORTED;
	if (!(*s = handle_get(STREAM, handle)))
		return INVALID_HANDLE;
	if ((*s)->detached)
		return SIM_VERSION < 13010 ? CONTEXT_DESTROYED : STREAM_DETACHED;
	return owner((*s)->context);
}

bool stream_busy(struct stream *s)
{
	if (s->head)
		return true;
	if (s == s->context->legacy)
		for (struct stream *t = s->context->streams; t; t = t->next)
			if (!(t->flags & 1) && t->head)
				return true;
	return false;
}

/* stream_wait waits for all work enqueued on the stream so far. */
void stream_wait(struct stream *s)
{
	unsigned long long all;

	if (s == s->context->legacy && stream_busy(s))
		enqueue(s, item_new(NOTHING));
	all = s->enqueued;
	flight_rest();
	s->waiting++;
	while (s->executed < all && !sim.dead)
		await_change();
	s->waiting--;
	stream_collect(s);
}

/* context_wait waits for all work enqueued on the streams of a context so far. */
void context_wait(struct context *c)
{
	unsigned long long last = sim.order;

	for (struct stream *s = c->streams; s && !sim.dead;) {
		if (!s->head || s->head->order > last) {
			s = s->next;
			continue;
		}
		flight_rest();
		await_change();
		s = c->streams; /* the list may be another now */
	}
}

/* crowd is how many streams there are before the driver waits for work to create another. */
#define CROWD 34

static void await_crowd(struct context *c)
{
	int n = 0;

	for (struct stream *s = c->streams; s; s = s->next)
		n += s->handle && !s->destroyed;
	if (n >= CROWD)
		context_wait(c);
}

static CUresult create(CUstream *handle, unsigned flags, int priority)
{
	struct green *green = current_view()->green;
	struct stream *s;

	if (!handle || flags > 1 || (green && !flags))
		return INVALID_VALUE;
	await_crowd(current());
	priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	s = stream_new(current(), flags, priority);
	s->handle = *handle = handle_new(STREAM, s);
	if (green)
		green_join(s, green);
	return OK;
}

CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
	ENTER(CURRENT);
	return create(handle, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
	ENTER(CURRENT);
	return create(handle, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
	ENTER(DEAD | CALLBACK, .does = DESTROYS, .stream = handle);
	struct stream *s;

	if ((uintptr_t)handle <= 2 || !(s = handle_get(STREAM, handle)))
		return INVALID_HANDLE;
	if (s->detached && SIM_VERSION < 13010)
		return CONTEXT_DESTROYED;
	if (!sim.dead && owner(s->context))
		return owner(s->context);
	stream_end(s);
	return sim.dead;
}

/* uncaptured finds a stream for a call that a capture does not survive. */
static CUresult uncaptured(CUstream handle, struct stream **s)
{
	CUresult r = stream_get(handle, s);

	return r ? r : on_stream(*s);
}

/* waited finds a stream that is asked whether it is done, or waited for. */
static CUresult waited(CUstream handle, struct stream **s)
{
	CUresult r = stream_get(handle, s);

	if (!r && *s == (*s)->context->legacy)
		r = on_legacy((*s)->context);
	if (!r)
		r = on_stream(*s);
	return r ? r : unsafe_call();
}

CUresult cuStreamQuery(CUstream handle)
{
	ENTER(CALLBACK, .does = ASKS, .stream = handle, .unsafe = true);
	struct stream *s;
	CUresult r = waited(handle, &s);
	bool busy;

	if (r)
		return r;
	queue_pass(s);
	busy = stream_busy(s);
	stream_collect(s);
	return sim.dead ? sim.dead : busy ? NOT_READY : OK;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	ENTER(CALLBACK, .does = ASKS, .stream = handle, .unsafe = true, .waits = true);
	struct stream *s;
	CUresult r = waited(handle, &s);

	if (r)
		return r;
	stream_wait(s);
	pools_notice(s);
	return sim.dead;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	ENTER(CALLBACK, .does = ASKS, .stream = handle);
	struct stream *s;
	CUresult r = uncaptured(handle, &s);

	if (r)
		return r;
	if (!flags)
		return INVALID_VALUE;
	*flags = s->flags;
	return OK;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = handle);
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (!r && s == s->context->legacy)
		r = on_legacy(s->context);
	if (r)
		return r;
	if (!priority)
		return INVALID_VALUE;
	*priority = s->priority;
	return OK;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *c)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = handle);
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (r)
		return r;
	if (!c)
		return INVALID_VALUE;
	*c = s == s->context->legacy ? current_view()->handle : s->green ? green_view(s->green) : s->context->handle;
	return OK;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	ENTER(CALLBACK, .does = ASKS, .stream = handle);
	struct stream *s;
	CUresult r = uncaptured(handle, &s);

	if (r)
		return r;
	if (!id)
		return INVALID_VALUE;
	*id = s->id;
	return OK;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *d)
{
	ENTER(CALLBACK, .does = ASKS, .stream = handle);
	struct stream *s;
	CUresult r = uncaptured(handle, &s);

	if (r)
		return r;
	if (!d)
		return INVALID_VALUE;
	*d = s->context->device;
	return OK;
}
