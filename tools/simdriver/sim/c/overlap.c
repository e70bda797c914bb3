#include "sim.h"

#include <stdatomic.h>

/* All flights that matter. Places are taken without the lock, and left with it. */
enum { PLACES_OF_FLIGHTS = 512 };
static _Atomic(struct flight *) flights[PLACES_OF_FLIGHTS];
static atomic_int high;        /* beyond it they are all free */
static _Atomic(int64_t) window;     /* us */

static __thread struct flight *mine;
static __thread unsigned turn;
static __thread int number;

/*
 * widen makes a call last longer than this driver needs, so that what may run at
 * once does. Most calls only let others go first.
 */
static void widen(void)
{
	int64_t us = atomic_load_explicit(&window, memory_order_relaxed);

	if (!us)
		return;
	turn = turn * 1103515245 + 12345 + os_thread();
	if (turn >> 16 & 15)
		os_yield();
	else
		os_sleep(us);
}

void flight_begin(struct flight *f)
{
	f->at = -1;
	mine = f;
	if (f->does == ALONE)
		return;
	f->thread = number ? number : (number = os_thread());
	f->mode = thread.mode;
	f->view = current_view();
	for (int i = 0; i < PLACES_OF_FLIGHTS; i++) {
		struct flight *none = 0;

		if (atomic_load_explicit(&flights[i], memory_order_relaxed) || !atomic_compare_exchange_strong(&flights[i], &none, f))
			continue;
		f->at = i;
		for (int h = atomic_load(&high); h <= i && !atomic_compare_exchange_weak(&high, &h, i + 1);)
			;
		break;
	}
	widen();
}

/* -- what a flight has to do with -- */

static void of_context(struct flight *f, struct sight *s)
{
	struct green *g = f->green ? handle_find(GREEN, f->green) : 0;

	if (g) {
		s->green = g;
		s->context = green_context(g);
		s->changes = context_captures(s->context, g);
	} else if (f->does == RESETS) {
		struct device *v = device_get(f->device);
		struct context *c = f->context ? handle_find(CONTEXT, f->context) : v ? &v->primary : 0;

		s->context = c && f->last && (c->refs > 1 || c->greens) ? 0 : c;
	} else if (f->does == SWEEPS) {
		s->context = context_behind(f->view);
		s->changes = s->context && context_captures(s->context, 0);
	}
}

static void of_graph(struct flight *f, struct sight *s)
{
	struct node *n = f->node ? handle_find(NODE, f->node) : 0;
	struct graph *g = n ? n->graph : f->graph ? handle_find(GRAPH, f->graph) : s->capture ? s->capture->graph : 0;

	s->graph = g;
	s->outermost = g ? graph_outermost(g) : 0;
	s->exec = f->exec ? handle_find(EXEC, f->exec) : 0;
	s->launched = s->exec && s->exec->last;
	s->source = s->exec ? exec_source(s->exec) : 0;
	s->family = s->exec ? s->exec->graph->family : g ? g->family : 0;
}

static void of_event(struct flight *f, struct sight *s)
{
	s->event = f->event ? handle_find(EVENT, f->event) : 0;
	if (!s->event)
		return;
	if (!s->context)
		s->context = s->event->context;
	if (captured_event(s->event) && f->does != DESTROYS)
		s->recorded = s->event->capture;
}

static bool about_stream(const struct flight *f)
{
	switch (f->does) {
	case LOOKS: case ASKS: case WORKS: case RECORDS: case WAITS: case LAUNCHES: case BEGINS: case ENDS:
		return true;
	case DESTROYS:
		return f->stream;
	default:
		return false;
	}
}

static void of_stream(struct flight *f, struct sight *s)
{
	struct context *c = context_behind(f->view);

	if ((uintptr_t)f->stream > 2)
		s->stream = handle_find(STREAM, f->stream);
	else if ((uintptr_t)f->stream < 2 && c && c->alive)
		s->stream = c->legacy;
	if (!s->stream)
		return;
	s->context = s->stream->context;
	s->capture = s->stream->capture;
	s->legacy = s->stream == s->context->legacy && f->does != LOOKS;
	s->changes = f->does == BEGINS || (s->capture && f->does != LOOKS) || (s->legacy && legacy_waits(s->context));
	s->blocking = !s->legacy && !(s->stream->flags & 1);
	s->green = s->stream->green;
}

/* look finds out what a flight has to do with now. */
static struct sight look(struct flight *f)
{
	struct sight s = {.does = f->does, .pooled = f->pooled, .waits = f->waits};

	s.filled = f->pool && pool_filled(f->pool);
	for (int i = 0; i < 2; i++)
		s.between[i] = f->between[i] ? handle_find(CONTEXT, f->between[i]) : 0;
	if (about_stream(f))
		of_stream(f, &s);
	else
		of_context(f, &s);
	of_event(f, &s);
	of_graph(f, &s);
	s.changes |= s.recorded != 0;
	s.blocking |= (s.capture && capture_blocks(s.capture, s.context)) || (s.recorded && capture_blocks(s.recorded, s.context));
	s.global = f->global || capture_global(s.capture) || capture_global(s.recorded);
	s.unsafe = f->unsafe && f->mode == 0;
	s.kills = s.unsafe && captures_global();
	return s;
}

/* -- which of them must not run at once -- */

/* sees tells whether a call sees a capture that another changes. */
static bool sees(const struct sight *x, const struct sight *y)
{
	if (y->kills && (x->unsafe || x->global))
		return true;
	if (!y->changes)
		return false;
	if (x->stream && x->stream == y->stream)
		return true;
	if (x->event && x->event == y->event)
		return true;
	if (x->capture && (x->capture == y->capture || x->capture == y->recorded))
		return true;
	if (x->recorded && (x->recorded == y->capture || x->recorded == y->recorded))
		return true;
	if (x->legacy && y->blocking && x->context == y->context)
		return true;
	if (x->unsafe && y->global)
		return true;
	return x->does == SWEEPS && x->context && x->context == y->context && (!x->green || x->green == y->green);
}

/* graphs tells whether two calls must not use a graph at once. */
static bool graphs(const struct sight *x, const struct sight *y)
{
	bool alters = x->does == ALTERS || x->changes;

	if (!x->graph || x->outermost != y->outermost)
		return false;
	return alters || (x->does == INSTANTIATES && y->does == INSTANTIATES);
}

/* destroys tells whether a call destroys what another uses. */
static bool destroys(const struct sight *x, const struct sight *y)
{
	if (x->does != DESTROYS)
		return false;
	if (x->launched && y->does == LAUNCHES) /* of any executable */
		return true;
	if (x->family && x->family == y->family && (y->does == CLONES || y->does == INSTANTIATES)) /* copies of a graph share parts of it */
		return true;
	if (x->source && x->source == y->outermost && (y->does == INSTANTIATES || y->does == ALTERS || y->changes))
		return true;
	return (x->stream && x->stream == y->stream) || (x->event && x->event == y->event) || (x->graph && x->graph == y->graph)
		|| (x->exec && x->exec == y->exec);
}

/* resets tells whether a context goes in which another call does something. */
static bool resets(const struct sight *x, const struct sight *y)
{
	if (x->does != RESETS || !x->context)
		return false;
	return (y->stream && x->context == y->context) || x->context == y->between[0] || x->context == y->between[1];
}

/*
 * pools tells whether a call, which goes through the pools for released memory, meets the destruction of one, or
 * frees the rest of a destroyed pool, while another call uses pools or does the same.
 */
static bool pools(const struct sight *x, const struct sight *y)
{
	return x->waits && ((y->does == DROPS && y->filled) || ((y->waits || y->pooled) && pools_doomed()));
}

/* grants tells whether a copy between devices begins while access to their memory changes. */
static bool grants(const struct sight *x, const struct sight *y)
{
	return x->does == GRANTS && (y->between[0] || y->between[1]);
}

static bool clash(const struct sight *x, const struct sight *y)
{
	return sees(x, y) || graphs(x, y) || destroys(x, y) || resets(x, y) || pools(x, y) || grants(x, y);
}

static void stop(const struct flight *a, const struct flight *b)
{
	crash("%s (thread %d) and %s (thread %d) ran at once", a->name, a->thread, b->name, b->thread);
}

static void compare(struct flight *f)
{
	struct sight theirs;
	int n = atomic_load(&high);

	for (int i = 0; i < n; i++) {
		struct flight *other = atomic_load(&flights[i]);

		if (!other || other == f)
			continue;
		theirs = look(other);
		if (clash(&f->sight, &theirs) || clash(&theirs, &f->sight))
			stop(f, other);
	}
}

void flight_check(struct flight *f)
{
	if (f->at < 0 || sim.dead)
		return;
	f->sight = look(f);
	compare(f);
}

static void forget(struct flight *f)
{
	atomic_store(&flights[f->at], 0);
	f->at = -1;
}

void flight_rest(void)
{
	if (mine && mine->at >= 0 && mine->does != RESETS)
		forget(mine);
}

void flight_harmless(void)
{
	if (mine && mine->at >= 0)
		forget(mine);
}

void flight_end(struct flight *f)
{
	if (f->at >= 0) {
		if (!sim.dead)
			compare(f);
		forget(f);
	}
	if (mine == f)
		mine = 0;
}

const char *flight_name(void) { return mine ? mine->name : 0; }

void simWiden(int64_t microseconds)
{
	atomic_store(&window, microseconds);
}

int simFlying(void)
{
	int n = 0;

	for (int i = 0; i < PLACES_OF_FLIGHTS; i++)
		n += atomic_load(&flights[i]) != 0;
	return n;
}

/* For programs that cannot say so themselves. */
static __attribute__((constructor)) void widen_from_outside(void)
{
	const char *us = getenv("SIMDRIVER_WIDEN");

	if (us)
		simWiden(atol(us));
}
