#include "sim.h"

/*
 * A stream has room for so much work that is not over. Who brings more waits,
 * and holds up some calls that have little to do with it meanwhile.
 */
#define ROOM 1020

/* fills is how much room an item takes. Those that take none never wait for it. */
static int fills(const struct item *i)
{
	switch (i->work) {
	case RUN: case COPY: case SET: case MEMOP: case SIGNAL: case AWAIT: case LAUNCH:
		return 1;
	default:
		return i->room;
	}
}

bool queue_room(struct stream *s, const struct item *i)
{
	if (!fills(i) || s->filled + fills(i) <= ROOM)
		return false;
	flight_rest();
	s->waiting++;
	s->blocked++;
	s->context->blocked++;
	while (s->filled + fills(i) > ROOM && !sim.dead)
		await_change();
	s->context->blocked--;
	s->blocked--;
	s->waiting--;
	changed(); /* for those whom this held up */
	return true;
}

void queue_add(struct stream *s, const struct item *i) { s->filled += fills(i); }
void queue_remove(struct stream *s, const struct item *i) { s->filled -= fills(i); }

void queue_pass(struct stream *s)
{
	s->waiting++;
	while (s->blocked && !sim.dead)
		await_change();
	s->waiting--;
}

void queue_pass_all(struct context *c)
{
	while (c && c->blocked && !sim.dead)
		await_change();
}
