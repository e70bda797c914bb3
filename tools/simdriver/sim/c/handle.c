#include "sim.h"

/*
 * A handle is no address, so that a wrong one is found out instead of followed:
 * it tells its place in this table, which keeps what was destroyed in mind. As
 * CUDA's, the handle of what was destroyed last is that of the next of its kind.
 */
static struct {
	void *object;
	enum kind kind;
	size_t older; /* that is free too: its place and 1 */
} *table;
static size_t used, room;
static size_t free_of[KINDS]; /* the newest one: its place and 1 */

#define BASE 0x51d0000000ull
#define STEP 64

/* take finds a place in the table. */
static size_t take(enum kind kind)
{
	size_t at = free_of[kind];

	if (at--) {
		free_of[kind] = table[at].older;
		return at;
	}
	if (used == room) {
		room = room ? 2 * room : 1024;
		table = realloc(table, room * sizeof *table);
	}
	return used++;
}

void *handle_new(enum kind kind, void *object)
{
	size_t at = take(kind);

	table[at].object = object;
	table[at].kind = kind;
	live_count(kind, 1);
	return (void *)(BASE + STEP * at);
}

static size_t place(const void *handle)
{
	uintptr_t h = (uintptr_t)handle;

	if (h < BASE || h % STEP || (h - BASE) / STEP >= used)
		return used;
	return (h - BASE) / STEP;
}

void *handle_find(enum kind kind, const void *handle)
{
	size_t at = place(handle);

	return at < used && table[at].kind == kind ? table[at].object : 0;
}

static const char *const names[] = {
	"nothing", "context", "stream", "event", "module", "library", "function", "kernel", "graph", "node", "executable graph", "user object",
	"conditional handle", "green context", "description of resources", "piece of physical memory", "linker", "memory pool",
	"CUDA array", "texture", "surface", "piece of external memory", "external semaphore",
};

void *handle_get(enum kind kind, const void *handle)
{
	size_t at = place(handle);

	if (!handle || (at < used && !table[at].kind))
		return 0;
	if (at == used)
		violation("%p is no handle of a %s", handle, names[kind]);
	else if (table[at].kind != kind)
		violation("the handle of a %s is used for a %s", names[table[at].kind], names[kind]);
	else if (!table[at].object)
		violation("a %s is used that was destroyed", names[kind]);
	else
		return table[at].object;
	return 0;
}

void handle_end(void *handle)
{
	size_t at = place(handle);
	enum kind kind = table[at].kind;

	table[at].object = 0;
	table[at].older = free_of[kind];
	free_of[kind] = at + 1;
	live_count(kind, -1);
}

void handle_lose(void *handle)
{
	handle_end(handle);
	table[place(handle)].kind = NO_KIND;
}

void handles_each(void (*f)(enum kind kind, void *handle, void *object))
{
	for (size_t i = 0; i < used; i++)
		if (table[i].object)
			f(table[i].kind, (void *)(BASE + STEP * i), table[i].object);
}
