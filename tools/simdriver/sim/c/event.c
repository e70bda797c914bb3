#include "sim.h"

enum { DISABLE_TIMING = 2, INTERPROCESS = 4, EXTERNAL = 1 };

static struct event *events;

static void end(struct event *e)
{
	if ((*e->at = e->next))
		e->next->at = e->at;
	handle_end(e->handle);
	mark_drop(e->mark);
	edges_clear(&e->deps);
	free(e);
}

void events_end(struct context *c)
{
	for (struct event *e = events, *next; e; e = next) {
		next = e->next;
		if (e->context == c) {
			live_lost(1);
			end(e);
		}
	}
}

static CUresult get(CUevent handle, struct event **e)
{
	if (!(*e = handle_get(EVENT, handle)))
		return INVALID_HANDLE;
	return owner((*e)->context);
}

CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
	ENTER(CURRENT);
	struct event *e;

	if (!handle || flags > 7 || (flags & INTERPROCESS && !(flags & DISABLE_TIMING)))
		return INVALID_VALUE;
	e = calloc(1, sizeof *e);
	e->context = current();
	e->flags = flags;
	if ((e->next = events))
		e->next->at = &e->next;
	e->at = &events;
	events = e;
	e->handle = *handle = handle_new(EVENT, e);
	return OK;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
	ENTER(DEAD | CALLBACK, .does = DESTROYS, .event = handle);
	struct event *e;

	if (!(e = handle_get(EVENT, handle)))
		return INVALID_HANDLE;
	if (!sim.dead && owner(e->context))
		return owner(e->context);
	end(e);
	return sim.dead;
}

/* event_room is how much room a record takes, for the time. */
int event_room(const struct event *e) { return !(e->flags & DISABLE_TIMING); }

/* event_record puts a record on a stream that does not capture. */
CUresult event_record(struct event *e, struct stream *s)
{
	struct item *i = item_new(RECORD);

	i->room = event_room(e);
	i->mark = mark_new();
	i->mark->refs++; /* the event's and the item's */
	i->mark->stream = s->id;
	i->mark->releases = pools_releases();
	edges_clear(&e->deps);
	e->capture = 0;
	mark_drop(e->mark);
	e->mark = i->mark;
	return enqueue(s, i);
}

static CUresult record(CUevent event, CUstream stream, unsigned flags)
{
	struct stream *s;
	struct event *e;
	struct item *i;
	CUresult r = stream_get(stream, &s);

	if (r)
		return r;
	if (!(e = handle_get(EVENT, event)) || e->context != s->context)
		return INVALID_HANDLE;
	if (flags > EXTERNAL)
		return INVALID_VALUE;
	if (flags && !s->capture)
		return ILLEGAL_STATE;
	if (!s->capture)
		return event_record(e, s);
	if (!flags)
		return capture_record(s, e);
	i = item_new(RECORD);
	i->event = event;
	return enqueue(s, i);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	ENTER(CALLBACK, .does = RECORDS, .stream = stream, .event = event);
	return record(event, stream, 0);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
	ENTER(CALLBACK, .does = RECORDS, .stream = stream, .event = flags ? 0 : event);
	return record(event, stream, flags);
}

/* An event that was recorded in a capture has no state once that is over, until it is recorded anew. */
bool event_stale(struct event *e)
{
	return e->capture && !captured_event(e);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	ENTER(CALLBACK, .does = WAITS, .stream = stream, .event = flags ? 0 : event);
	struct stream *s;
	struct event *e;
	struct item *i;
	CUresult r = stream_get(stream, &s);

	if (r)
		return r;
	if (!(e = handle_get(EVENT, event)))
		return INVALID_HANDLE;
	if (!e->context->alive)
		return CONTEXT_DESTROYED;
	if (flags > EXTERNAL)
		return INVALID_VALUE;
	if (flags && !s->capture)
		return ILLEGAL_STATE;
	if (event_stale(e) && (s->capture || !flags)) {
		if (s->capture)
			capture_lose(s->capture);
		return INVALID_VALUE;
	}
	if (!flags && (s->capture || captured_event(e)))
		return capture_wait(s, e);
	if (s->capture) {
		i = item_new(WAIT);
		i->event = event;
		return enqueue(s, i);
	}
	if (!e->mark || e->mark->done)
		return OK;
	i = item_new(WAIT);
	i->mark = e->mark;
	i->mark->refs++;
	return enqueue(s, i);
}

/* asked is what a query and a wait have to find out first. */
static CUresult asked(CUevent handle, struct event **e)
{
	CUresult r = get(handle, e);

	if (r)
		return r;
	if (captured_event(*e)) {
		(*e)->capture->lost = true;
		return CAPTURED_EVENT;
	}
	if (event_stale(*e))
		return INVALID_VALUE;
	return unsafe_call();
}

CUresult cuEventQuery(CUevent handle)
{
	ENTER(CALLBACK, .does = ASKS_EVENT, .event = handle, .unsafe = true);
	struct event *e;
	CUresult r = asked(handle, &e);

	if (r)
		return r;
	return !e->mark || e->mark->done ? OK : NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle)
{
	ENTER(CALLBACK, .does = ASKS_EVENT, .event = handle, .unsafe = true);
	struct event *e;
	struct mark *m;
	CUresult r = asked(handle, &e);

	if (r || !(m = e->mark))
		return r;
	m->refs++;
	flight_rest();
	while (!m->done && !sim.dead)
		await_change();
	pools_notice_event(m);
	mark_drop(m);
	return sim.dead;
}

static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
	struct event *a, *b;
	CUresult r = get(from, &a);

	if (!r)
		r = get(to, &b);
	if (r)
		return r;
	if (!ms)
		return INVALID_VALUE;
	if (!a->mark || !b->mark || (a->flags | b->flags) & DISABLE_TIMING)
		return INVALID_HANDLE;
	if (!a->mark->done || !b->mark->done)
		return NOT_READY;
	*ms = (b->mark->time - a->mark->time) / 1e6f;
	return OK;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
	ENTER(CALLBACK);
	return elapsed(ms, from, to);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to)
{
	ENTER(CALLBACK);
	return elapsed(ms, from, to);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *ipc, CUevent handle)
{
	ENTER(0);
	struct event *e;
	CUresult r = get(handle, &e);

	if (r)
		return r;
	if (!ipc || !(e->flags & INTERPROCESS))
		return INVALID_VALUE;
	memset(ipc, 0, sizeof *ipc);
	memcpy(ipc, &e->handle, sizeof e->handle);
	return OK;
}

/* Other processes are not simulated, and the one that made an event may not open its handle. */
CUresult cuIpcOpenEventHandle(CUevent *handle, CUipcEventHandle ipc)
{
	ENTER(CURRENT);
	(void)ipc;
	return handle ? INVALID_CONTEXT : INVALID_VALUE;
}
