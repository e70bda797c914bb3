#include "sim.h"

static struct capture *captures;

enum { GLOBAL, THREAD_LOCAL, RELAXED };

void capture_lose(struct capture *c) { c->lost = true; }

/*
 * unsafe_call is for functions that a capture forbids: in mode global to every
 * thread that has not said otherwise, in mode thread local to the thread that
 * captures.
 */
CUresult unsafe_call(void)
{
	CUresult r = OK;

	if (thread.mode == RELAXED)
		return OK;
	for (struct capture *c = captures; c; c = c->next) {
		bool mine = c->thread == thread_id();

		if (c->mode == RELAXED || (!mine && (c->mode == THREAD_LOCAL || thread.mode == THREAD_LOCAL)))
			continue;
		capture_lose(c);
		r = CAPTURE_UNSUPPORTED;
	}
	return r;
}

CUresult on_stream(struct stream *s)
{
	if (!s->capture)
		return OK;
	capture_lose(s->capture);
	return CAPTURE_UNSUPPORTED;
}

/* The legacy stream would wait for a blocking stream that captures. */
CUresult on_legacy(struct context *c)
{
	CUresult r = OK;

	for (struct stream *s = c->streams; s; s = s->next)
		if (s->capture && !(s->flags & 1)) {
			capture_lose(s->capture);
			r = CAPTURE_IMPLICIT;
		}
	return r;
}

bool legacy_waits(struct context *c)
{
	for (struct stream *s = c->streams; s; s = s->next)
		if (s->capture && !(s->flags & 1))
			return true;
	return false;
}

bool capture_blocks(struct capture *c, struct context *of)
{
	for (struct stream *s = of->streams; s; s = s->next)
		if (s->capture == c && !(s->flags & 1))
			return true;
	return false;
}

bool context_captures(struct context *c, struct green *g)
{
	for (struct stream *s = c->streams; s; s = s->next)
		if (s->capture && (!g || s->green == g))
			return true;
	return false;
}

bool capture_global(struct capture *c) { return c && c->mode == GLOBAL; }

bool captures_global(void)
{
	for (struct capture *c = captures; c; c = c->next)
		if (c->mode == GLOBAL)
			return true;
	return false;
}

void captures_leave(struct context *c)
{
	for (struct stream *s = c->streams; s; s = s->next)
		for (struct capture *outer = captures; s->capture && outer; outer = outer->next)
			if (s->capture->graph != outer->graph && graph_within(s->capture->graph, outer->graph))
				crash("%s ends a context in which a stream captures into a graph inside of that of a capture", flight_name());
	capture_lose_context(c);
}

void capture_lose_context(struct context *c)
{
	for (struct stream *s = c->streams; s; s = s->next)
		if (s->capture)
			capture_lose(s->capture);
}

static void follow(struct stream *s, struct node *n)
{
	edges_clear(&s->deps);
	edges_add(&s->deps, n, 0);
}

CUresult capture_item(struct stream *s, struct item *i)
{
	struct capture *c = s->capture;
	struct node *n;
	CUresult r = c->lost ? CAPTURE_INVALIDATED : edges_fit(&s->deps, i) ? OK : INVALID_VALUE;

	if (!r && graph_takes(c->graph, i)) {
		capture_lose(c);
		r = CAPTURE_UNSUPPORTED;
	}
	if (r) {
		item_free(i);
		return r;
	}
	i->green = s->green;
	i->context = s->context;
	i->stream = s->handle;
	if (!c->again)
		n = graph_add(c->graph, i, &s->deps);
	else if ((r = recapture_item(c, &s->deps, i, &n)))
		capture_lose(c);
	if (!r)
		follow(s, n);
	return r;
}

CUresult capture_record(struct stream *s, struct event *e)
{
	if (s->capture->lost)
		return CAPTURE_INVALIDATED;
	edges_clear(&e->deps);
	edges_add_all(&e->deps, &s->deps);
	e->capture = s->capture;
	e->capture_id = s->capture->id;
	return OK;
}

/* captured_event tells whether an event stands for work of a capture that goes on. */
bool captured_event(struct event *e)
{
	for (struct capture *c = captures; c; c = c->next)
		if (c == e->capture && c->id == e->capture_id)
			return true;
	return false;
}

CUresult capture_wait(struct stream *s, struct event *e)
{
	if (s->capture && s->capture->lost)
		return CAPTURE_INVALIDATED;
	if (!captured_event(e)) {
		if (!e->mark)
			return OK;
		capture_lose(s->capture);
		return CAPTURE_ISOLATION;
	}
	if (s == s->context->legacy) { /* which cannot join */
		capture_lose(e->capture);
		return CAPTURE_IMPLICIT;
	}
	if (s->capture && s->capture != e->capture) {
		capture_lose(s->capture);
		capture_lose(e->capture);
		return CAPTURE_MERGE;
	}
	s->capture = e->capture;
	edges_add_all(&s->deps, &e->deps);
	return OK;
}

/* leave takes a stream out of its capture. */
static void leave(struct stream *s)
{
	s->capture = 0;
	edges_clear(&s->deps);
	free(s->told);
	free(s->told_data);
	s->told = 0;
	s->told_data = 0;
}

struct joined { struct capture *capture; bool all; };

static bool walk(struct node *from, struct node *to, unsigned long long walks)
{
	if (from == to)
		return true;
	if (from->walked == walks)
		return false;
	from->walked = walks;
	for (int i = 0; i < from->deps.n; i++)
		if (walk(from->deps.list[i].node, to, walks))
			return true;
	return false;
}

/* reaches tells whether a node depends on another one. There may be far more paths than nodes. */
static bool reaches(struct node *from, struct node *to)
{
	static unsigned long long walks;

	return walk(from, to, ++walks);
}

static void is_joined(struct stream *s, void *data)
{
	struct joined *j = data;
	struct stream *origin = j->capture->origin;

	if (s->capture != j->capture || s == origin)
		return;
	for (int i = 0; i < s->deps.n; i++) {
		bool found = false;

		for (int k = 0; k < origin->deps.n; k++)
			found |= reaches(origin->deps.list[k].node, s->deps.list[i].node);
		j->all &= found;
	}
}

static void leave_capture(struct stream *s, void *data)
{
	if (s->capture == data)
		leave(s);
}

void captures_lose(struct graph *g)
{
	for (struct capture *c = captures; c; c = c->next)
		if (graph_within(c->graph, g))
			capture_lose(c);
}

/* orphan leaves the captures into graphs in one that goes without these: CUDA crashes at their ends. */
static void orphan(struct graph *g)
{
	for (struct capture *c = captures; c; c = c->next) {
		if (c->graph == g || !graph_within(c->graph, g))
			continue;
		c->graph = graph_new();
		c->graph->capture = c;
		c->orphaned = flight_name();
	}
}

/* hole notes in the graphs around one that this call destroys it: CUDA destroys it again with them, and crashes. */
static void hole(struct graph *g)
{
	while (g->owner) {
		g = g->owner->graph;
		g->holed = flight_name();
	}
}

/*
 * drop ends a capture for all of its streams. The graph of one that failed goes,
 * also when it is the program's, but not the one that was captured once more.
 */
static void drop(struct capture *c, bool failed)
{
	if (c->orphaned)
		crash("%s destroyed the graph around that of a capture, which %s ends", c->orphaned, flight_name());
	c->graph->capture = 0;
	if (failed && !c->again) {
		graph_check(c->graph);
		hole(c->graph);
		orphan(c->graph);
		graph_lose(c->graph);
	}
	contexts_each(leave_capture, c);
	for (struct capture **at = &captures; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	free(c);
}

void capture_forget(struct stream *s)
{
	struct capture *c = s->capture;

	if (!c)
		return;
	capture_lose(c);
	leave(s);
	if (c->origin == s)
		drop(c, true);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	ENTER(BARE | DEAD | CALLBACK);
	unsigned before = thread.mode;

	if (!mode || *mode > RELAXED)
		return INVALID_VALUE;
	thread.mode = *mode;
	*mode = before;
	return OK;
}

CUresult capture_begin(CUstream handle, CUstreamCaptureMode mode, struct graph *g, const struct edges *deps)
{
	struct stream *s;
	struct capture *c;
	CUresult r;

	queue_pass_all(current());
	if ((r = stream_get(handle, &s)))
		return r;
	if (mode > RELAXED)
		return INVALID_VALUE;
	if (s == s->context->legacy)
		return CAPTURE_UNSUPPORTED;
	if (s->capture)
		return ILLEGAL_STATE;
	c = calloc(1, sizeof *c);
	c->id = ++sim.ids;
	c->mode = mode;
	c->thread = thread_id();
	c->origin = s;
	c->given = g;
	c->graph = g ? g : graph_new();
	c->graph->capture = c;
	c->next = captures;
	captures = c;
	s->capture = c;
	if (deps)
		edges_add_all(&s->deps, deps);
	return OK;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	ENTER(0, .does = BEGINS, .stream = handle, .global = !mode);
	return capture_begin(handle, mode, 0, 0);
}

/* end tells how a capture went. */
static CUresult end(struct stream *s)
{
	struct joined j = {s->capture, true};

	if (s->capture->mode != RELAXED && s->capture->thread != thread_id())
		return CAPTURE_WRONG_THREAD;
	if (s->capture->lost)
		return CAPTURE_INVALIDATED;
	if (s->capture->again && s->capture->at < s->capture->graph->n)
		return RECAPTURE_FAILURE;
	contexts_each(is_joined, &j);
	return j.all ? OK : CAPTURE_UNJOINED;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	ENTER_ANYWAY(0, .does = ENDS, .stream = handle);
	struct stream *s;
	struct capture *c;
	CUresult r;

	queue_pass_all(current());
	if ((r = stream_get(handle, &s)))
		return entered_ ? entered_ : r;
	if (!(c = s->capture))
		return entered_ ? entered_ : ILLEGAL_STATE;
	if (entered_)
		capture_lose(c);
	if (c->origin != s) {
		capture_lose(c);
		return CAPTURE_UNMATCHED;
	}
	r = entered_ ? entered_ : end(s);
	if (graph)
		*graph = r ? 0 : graph_handle(c->graph);
	drop(c, r); /* without a place for a new graph, CUDA keeps that */
	return r;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	ENTER(CALLBACK);
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (r == CONTEXT_DESTROYED)
		violation("cuStreamIsCapturing of a stream whose context was reset: CUDA crashes here");
	if (!r && s == s->context->legacy && legacy_waits(s->context))
		r = CAPTURE_IMPLICIT; /* and the capture goes on */
	if (r)
		return r;
	if (!status)
		return INVALID_VALUE;
	*status = !s->capture ? 0 : s->capture->lost ? 2 : 1;
	return OK;
}
