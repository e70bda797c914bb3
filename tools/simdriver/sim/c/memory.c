#include "sim.h"

/*
 * Each device has a range of addresses, and the host's pinned memory one more.
 * An array tells for every unit of it whose it is or was, so that the block of
 * any address is found at once, also when it is freed. As with CUDA, the address of
 * what was freed last is tried first for what comes next.
 */
#define UNIT 512
#define SPAN (16ull << 30)
#define UNITS (SPAN / UNIT)
#define GUARD 0xfd
#define POISON 0xa5
#define SHORT (64 << 10) /* bytes worth poisoning */

struct arena {
	unsigned char *base;
	struct block **of; /* for every unit */
	size_t next;       /* unit to look at first */
};
static struct arena arenas[MAX_DEVICES + 1]; /* the last is the host's */
static struct block *blocks;
static int alive[PLACES];
static unsigned long long made;

#define HOST_ARENA MAX_DEVICES

static struct arena *arena(int device)
{
	struct arena *a = &arenas[device];

	if (!a->base) {
		a->base = os_reserve(SPAN);
		a->of = os_memory(UNITS * sizeof *a->of);
		if (!a->base || !a->of) {
			fprintf(stderr, "simulated driver: no address space\n");
			abort();
		}
	}
	return a;
}

static size_t whole(struct block *b);

/* The units of a block are two more than its whole: the guards. */
static size_t start_of(struct arena *a, struct block *b) { return (b->address - (uintptr_t)a->base) / UNIT - 1; }
static size_t end_of(struct arena *a, struct block *b) { return start_of(a, b) + whole(b) + 2; }

/* room finds so many units in a row that nothing alive is in, or returns UNITS. */
static size_t room(struct arena *a, size_t units)
{
	size_t at = a->next, found = 0;

	for (size_t tried = 0; tried < UNITS + units;) {
		struct block *b;
		size_t before = at;

		if (at == UNITS)
			before = at = found = 0;
		b = a->of[at];
		if (b && !b->gone) {
			at = end_of(a, b);
			found = 0;
		} else {
			at++;
			found++;
		}
		tried += at - before;
		if (found == units) {
			a->next = at;
			return at - units;
		}
	}
	return UNITS;
}

static struct arena *arena_of(struct block *b) { return arena(b->place == HOST_MEMORY ? HOST_ARENA : b->device); }

static unsigned char *bytes(struct block *b)
{
	return (unsigned char *)(uintptr_t)b->address;
}

/* whole is the size of a block without its guards, in units. */
static size_t whole(struct block *b)
{
	return (b->size + UNIT - 1) / UNIT;
}

struct block *block_new(enum place place, int device, struct context *c, size_t size)
{
	bool host = place == HOST_MEMORY;
	struct arena *a = arena(host ? HOST_ARENA : device);
	struct block *b;
	size_t units = (size + UNIT - 1) / UNIT + 2, at;

	if (!host && devices[device].used + size > device_memory())
		return 0;
	if (size > SPAN / 2 || (at = room(a, units)) == UNITS)
		return 0;
	b = calloc(1, sizeof *b);
	b->address = (uintptr_t)(a->base + (at + 1) * UNIT);
	b->size = size;
	b->place = place;
	b->device = device;
	b->context = c;
	b->id = ++made;
	for (size_t i = 0; i < units; i++)
		a->of[at + i] = b;
	os_commit(bytes(b) - UNIT, units * UNIT);
	memset(bytes(b) - UNIT, GUARD, UNIT);
	memset(bytes(b) + size, GUARD, whole(b) * UNIT - size + UNIT);
	memset(bytes(b), POISON, size < SHORT ? size : SHORT);
	if (!host)
		devices[device].used += size;
	if ((b->next = blocks))
		b->next->before = b;
	blocks = b;
	alive[place]++;
	return b;
}

static bool filled(const unsigned char *p, size_t n)
{
	while (n && *p == GUARD)
		p++, n--;
	return !n;
}

static void check_guard(struct block *b)
{
	if (!filled(bytes(b) - UNIT, UNIT))
		violation("something wrote before a block of %zu bytes", b->size);
	if (!filled(bytes(b) + b->size, whole(b) * UNIT - b->size + UNIT))
		violation("something wrote past the end of a block of %zu bytes", b->size);
}

void check_guards(void)
{
	for (struct block *b = blocks; b; b = b->next)
		check_guard(b);
}

/* forget takes back the room of a block: of what no other block has a part of, on any system. */
static void forget(struct block *b)
{
	uintptr_t page = 1 << 16, from = (b->address + page - 1) / page * page, to = (b->address + b->size) / page * page;

	if (from < to)
		os_forget((void *)from, to - from);
}

/* block_free gives a block back. What was it stays known, for those who use it still. */
void block_free(struct block *b)
{
	check_guard(b);
	block_uncount(b);
	b->freed = b->gone = true;
	arena_of(b)->next = start_of(arena_of(b), b);
	if (b->place != HOST_MEMORY)
		devices[b->device].used -= b->size;
	if (b->size > SHORT)
		forget(b);
	else
		memset(bytes(b), POISON, b->size);
	free(b->pages);
	b->pages = 0;
	if (b->next)
		b->next->before = b->before;
	*(b->before ? &b->before->next : &blocks) = b->next;
	alive[b->place]--;
	if (b->pool)
		pool_return(b);
}

void block_drop(struct block *b)
{
	if (!b || --b->refs || b->place != GRAPH_MEMORY || b->freed)
		return;
	if (!b->given) {
		block_free(b);
		return;
	}
	alive[b->place]--;
	b->place = ASYNC_MEMORY;
	alive[b->place]++;
}

struct block *block_at(CUdeviceptr address)
{
	for (int i = 0; i <= HOST_ARENA; i++) {
		struct arena *a = &arenas[i];
		CUdeviceptr from = (uintptr_t)a->base;

		if (a->base && address >= from && address < from + SPAN)
			return a->of[(address - from) / UNIT];
	}
	return 0;
}

static bool inside(struct block *b, CUdeviceptr address, size_t size)
{
	return address >= b->address && size <= b->size && address - b->address <= b->size - size;
}

bool block_managed(const struct block *b)
{
	return b->place == MANAGED_MEMORY || b->managed || pool_managed(b->pool);
}

bool usable(CUdeviceptr address, size_t size, const char *who)
{
	struct block *b = block_at(address);

	if (virtual_known(address))
		return virtual_usable(address, size, -1);
	if (!b)
		return pinned((void *)(uintptr_t)address, size);
	if (b->freed)
		violation("%s memory of %zu bytes that was freed", who, b->size);
	return !b->freed && inside(b, address, size);
}

int blocks_alive(enum place place) { return alive[place]; }

/* -- host memory that is registered -- */

static struct range { uintptr_t from, to; } *ranges;
static int nranges;

int registered_alive(void) { return nranges; }
void registered_end(void) { nranges = 0; }

static int overlapping(uintptr_t from, uintptr_t to)
{
	for (int i = 0; i < nranges; i++)
		if (from < ranges[i].to && to > ranges[i].from)
			return i;
	return -1;
}

bool pinned(const void *host, size_t size)
{
	uintptr_t from = (uintptr_t)host;
	struct block *b = block_at(from);
	int i;

	if (b)
		return !b->freed && inside(b, from, size);
	if (external_usable(from, size))
		return true;
	i = overlapping(from, from + size);
	return i >= 0 && from >= ranges[i].from && from + size <= ranges[i].to;
}

bool registered(CUdeviceptr address, CUdeviceptr *from, size_t *size)
{
	int i = overlapping(address, address + 1);

	if (i < 0)
		return false;
	*from = ranges[i].from;
	*size = ranges[i].to - ranges[i].from;
	return true;
}

/* reachable returns the memory, or 0 after a fault. Memory that is unknown is the host's own. */
void *reachable(CUdeviceptr address, size_t size, const char *who)
{
	struct block *b = block_at(address);

	if (b && !b->absent && !b->gone && inside(b, address, size))
		return (void *)(uintptr_t)address;
	if (virtual_known(address)) {
		if (virtual_usable(address, size, -1))
			return (void *)(uintptr_t)address;
		violation("%s %zu bytes of virtual memory that is not mapped or not accessible", who, size);
	} else if (b) {
		violation("%s %zu bytes, %s of a block of %zu", who, size,
			b->absent ? "while it is not allocated" : b->gone ? "after the release" : "outside", b->size);
	} else if (pinned((void *)(uintptr_t)address, size) || !strncmp(who, "a copy", 6)) {
		return (void *)(uintptr_t)address;
	}
	sim.faulted = ILLEGAL_ADDRESS;
	return 0;
}

/* memory_end frees what lives in a context. */
void memory_end(struct context *c)
{
	for (struct block *b = blocks, *next; b; b = next) {
		next = b->next;
		if (b->context == c) {
			live_lost(b->place != GLOBAL_MEMORY && b->place != GRAPH_MEMORY);
			block_free(b);
		}
	}
}

CUresult cuMemHostRegister_v2(void *host, size_t size, unsigned flags)
{
	enum { READ_ONLY = 8 };
	ENTER(CURRENT);
	uintptr_t from = (uintptr_t)host;
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!host || !size || flags > 15)
		return INVALID_VALUE;
	if (overlapping(from, from + size) >= 0)
		return HOST_REGISTERED;
	if (!(flags & READ_ONLY) && os_read_only(from, size))
		return INVALID_VALUE;
	if (flags & READ_ONLY && os_private_file(from, size)) {
		fprintf(stderr, "simulated driver: read-only registration of a file on a disk that is mapped with MAP_PRIVATE: CUDA hangs here\n");
		abort();
	}
	ranges = realloc(ranges, (nranges + 1) * sizeof *ranges);
	ranges[nranges++] = (struct range){from, from + size};
	return OK;
}

CUresult cuMemHostUnregister(void *host)
{
	ENTER(CURRENT | DEAD);
	CUresult r = unsafe_call();

	if (r)
		return r;
	context_wait(current());
	for (int i = 0; i < nranges; i++)
		if (ranges[i].from == (uintptr_t)host) {
			ranges[i] = ranges[--nranges];
			return sim.dead;
		}
	return HOST_NOT_REGISTERED;
}
