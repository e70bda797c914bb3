#include "sim.h"

/*
 * One thread runs the work of all streams: of each that has some, the oldest
 * item in turn. An item that cannot go on, such as a wait for an event, leaves
 * the others alone.
 */
static struct stream *active; /* that have work */

void engine_wake(void)
{
	pthread_cond_signal(&sim.work);
}

void changed(void)
{
	if (sim.waiters)
		pthread_cond_broadcast(&sim.changed);
}

/* before tells whether a stream has work that was put on it before an item. */
static bool before(struct stream *s, struct item *i)
{
	return s->head && s->head->order < i->order;
}

/* of_pool tells whether an item is about memory of a pool, which is no work for the device. */
static bool of_pool(const struct item *i)
{
	return (i->work == APPEAR || i->work == VANISH) && i->block->place == ASYNC_MEMORY;
}

/* ready tells whether an item may begin: the legacy stream and the blocking ones wait for each other. */
static bool ready(struct stream *s, struct item *i)
{
	struct context *c = s->context;

	if (i->started)
		return true;
	if ((sim.held || (c->barrier && i->order >= c->barrier)) && !of_pool(i))
		return false;
	if (s->flags & 1)
		return true;
	if (s != c->legacy)
		return !c->legacy || !before(c->legacy, i);
	for (struct stream *t = c->streams; t; t = t->next)
		if (t != s && !(t->flags & 1) && before(t, i))
			return false;
	return true;
}

/* each calls f for every row of a copy or a memset. */
static void each(struct item *i, void (*f)(struct item *i, size_t dst, size_t src))
{
	struct rows *r = &i->rows;

	for (size_t z = 0; z == 0 || z < r->depth; z++)
		for (size_t y = 0; (y == 0 || y < r->height) && !sim.faulted; y++)
			f(i, z * r->dst_slice + y * r->dst_pitch, z * r->src_slice + y * r->src_pitch);
}

static void copies(struct item *i, size_t to, size_t from)
{
	void *dst = reachable(i->dst + to, i->size, "a copy to");
	void *src = i->staged ? (char *)i->staged + from : reachable(i->src + from, i->size, "a copy from");

	if (dst && src)
		memmove(dst, src, i->size);
}

static void sets(struct item *i, size_t to, size_t unused)
{
	unsigned char *dst = reachable(i->dst + to, i->size * i->width, "a memset of");

	(void)unused;
	for (size_t n = 0; dst && n < i->size; n++)
		memcpy(dst + n * i->width, &i->src, i->width);
}

bool run(struct item *i)
{
	bool first = !i->started;

	i->started = true;
	switch (i->work) {
	case NOTHING:
		return true;
	case RUN:
		return i->kernel->run(i);
	case COPY:
		each(i, copies);
		return true;
	case SET:
		each(i, sets);
		return true;
	case RECORD:
		if (i->mark) { /* the event of a graph may be gone */
			i->mark->done = true;
			i->mark->time = now_ns();
		}
		return true;
	case WAIT:
		return !i->mark || i->mark->done;
	case HOST:
	case STATUS:
		if (first)
			elsewhere_push(i);
		return i->finished;
	case APPEAR:
		block_present(i->block, true);
		return true;
	case VANISH:
		if (i->block->place == GRAPH_MEMORY)
			block_present(i->block, false);
		else
			block_free(i->block);
		return true;
	case MEMOP:
		return memop_run(i);
	case SIGNAL:
	case AWAIT:
		return semaphores_run(i);
	case LAUNCH:
		return launch_run(i);
	case CONDITION:
		return condition_run(i);
	case CHILD: /* its nodes are steps of the launch */
	case DESTROY: /* is on no stream */
		break;
	}
	return true;
}

static void pop(struct stream *s)
{
	struct item *i = s->head;

	if (!(s->head = i->next))
		s->tail = &s->head;
	s->executed++;
	queue_remove(s, i);
	item_free(i);
}

/* pass gives each stream a turn, and tells when to look again: 0 now, -1 when something comes. */
static int64_t pass(void)
{
	int64_t again = -1;

	if (sim.fault_at && now_ns() >= sim.fault_at) {
		fault(sim.fault_code);
		return 0;
	}
	for (struct stream **at = &active, *s; (s = *at);) {
		struct item *i = s->head;
		bool over;

		if (!i) {
			*at = s->active;
			s->listed = false;
			stream_collect(s);
			continue;
		}
		at = &s->active;
		if (!ready(s, i))
			continue;
		if (i->stuck)
			continue;
		over = run(i);
		if (sim.faulted) {
			i->stuck = true;
			fault_later(sim.faulted);
			again = 0;
		} else if (over) {
			pop(s);
			again = 0;
		} else if (i->until && (again < 0 || i->until < again)) {
			again = i->until;
		}
	}
	return sim.fault_at && (again < 0 || sim.fault_at < again) ? sim.fault_at : again;
}

static void *engine(void *unused)
{
	pthread_mutex_lock(&sim.lock);
	for (;;) {
		int64_t again = pass();

		if (!again) {
			changed();
			pthread_mutex_unlock(&sim.lock); /* let others in */
			pthread_mutex_lock(&sim.lock);
		} else if (again < 0) {
			pthread_cond_wait(&sim.work, &sim.lock);
		} else {
			os_wait_until(&sim.work, &sim.lock, again);
		}
	}
	return unused;
}

void engine_start(void)
{
	os_timed(&sim.work);
	os_start(engine, 0);
	elsewhere_start();
}

/* enqueue puts an item on a stream, or into the graph that the stream captures. */
CUresult enqueue(struct stream *s, struct item *i)
{
	CUresult r = OK;

	if (s->capture)
		return capture_item(s, i);
	if (s == s->context->legacy)
		r = on_legacy(s->context);
	if (!r)
		queue_room(s, i);
	if (r || sim.dead) {
		item_free(i);
		return r ? r : sim.dead;
	}
	i->order = ++sim.order;
	i->stream = s->handle;
	i->context = s->context;
	*s->tail = i;
	s->tail = &i->next;
	s->enqueued++;
	queue_add(s, i);
	if (!s->listed) {
		s->listed = true;
		s->active = active;
		active = s;
	}
	engine_wake();
	return OK;
}

/* A fault shows late. What had it is not over until then, and the rest goes on. */
void fault_later(CUresult code)
{
	sim.faulted = OK;
	if (sim.fault_at || sim.dead)
		return;
	sim.fault_code = code;
	sim.fault_at = now_ns() + sim.fault_delay;
	engine_wake();
}

/*
 * fault ends all work of the process. Host functions do not run any more,
 * callbacks with a status do and get the code. Those enqueued directly after a
 * running one go on as if nothing had happened.
 */
void fault(CUresult code)
{
	sim.faulted = OK;
	sim.fault_at = 0;
	sim.dead = code;
	for (struct stream *s = active; s; s = s->active) {
		bool spared = s->head && s->head->started;

		for (struct item *i = s->head, *next; i; i = next) {
			bool calls = i->work == HOST || i->work == STATUS;

			next = i->next;
			i->orphan = true;
			i->spared = spared = spared && calls;
			if (elsewhere(i))
				continue; /* that thread frees it */
			if (!i->finished && (spared || i->work == STATUS))
				elsewhere_push(i);
			else
				item_free(i);
		}
		s->head = 0;
		s->tail = &s->head;
		s->executed = s->enqueued;
		s->filled = 0;
	}
	changed();
	engine_wake();
}
