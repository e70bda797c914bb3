#include "sim.h"

enum { PINNED = 1, MANAGED = 2 };
enum { NOWHERE, ON_DEVICE, ON_HOST, ON_NODE };
enum { NONE, READ_WRITE = 3 };

enum pool_attribute {
	FOLLOW = 1, INTERNAL = 3, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH,
	TYPE, SHAREABLE, LOCATION_ID, LOCATION, MAX, DECOMPRESS, DOMAIN,
};

#define GRAIN (32ul << 20) /* what a pool has of the system is a multiple of this */

static struct pool initial[MAX_DEVICES], *chosen[MAX_DEVICES];
static unsigned long long releases;
static struct { unsigned long long stream, last; } noticed; /* any stream if it is 0 */
static int doomed;

enum { STREAMS = sizeof(((struct pool *)0)->freed) / sizeof(((struct pool *)0)->freed[0]) };

struct pool *pool_get(CUmemoryPool handle)
{
	return handle_get(POOL, handle);
}

bool pool_on_host(const struct pool *p) { return p && (p->location == ON_HOST || p->location == ON_NODE) && p->type == PINNED; }

bool pool_managed(const struct pool *p) { return p && p->type == MANAGED; }

static struct pool *begin(struct pool *p, int device)
{
	p->device = device;
	p->access = 1u << device;
	p->location = ON_DEVICE;
	p->type = PINNED;
	for (int i = 0; i < 3; i++)
		p->reuse[i] = 1;
	p->handle = handle_new(POOL, p);
	return p;
}

struct pool *pool_new(int device)
{
	return begin(calloc(1, sizeof(struct pool)), device);
}

static struct pool *default_of(int device)
{
	struct pool *p = &initial[device];

	if (!p->handle) {
		p->initial = true;
		begin(p, device);
		live_count(POOL, -1);
	}
	return p;
}

struct pool *pool_current(int device)
{
	return chosen[device] ? chosen[device] : default_of(device);
}

static size_t grains(size_t size)
{
	return (size + GRAIN - 1) / GRAIN * GRAIN;
}

static void raise(size_t *high, size_t now)
{
	if (*high < now)
		*high = now;
}

static bool on_device(const struct pool *p) { return p->location == ON_DEVICE && p->type == PINNED; }

/* reserve sets how much a pool has of its device's memory, which others cannot have then. */
static bool reserve(struct pool *p, size_t size)
{
	size_t *used = &devices[p->device].used;

	if (on_device(p)) {
		if (size > p->reserved && *used + size - p->reserved > device_memory())
			return false;
		*used += size - p->reserved;
	}
	p->reserved = size;
	return true;
}

/* shrink releases unused memory, down to keep bytes. */
static void shrink(struct pool *p, size_t keep)
{
	size_t least = p->destroyed ? p->used : grains(p->used);

	if (keep < p->reserved && least < p->reserved)
		reserve(p, grains(keep) > least ? grains(keep) : least);
}

struct block *pool_block(struct pool *p, struct stream *s, size_t size)
{
	size_t least = grains(p->used + size), counted = on_device(p) ? size : 0;
	struct block *b;

	if (p->max && (size > p->max || p->used > p->max - size))
		return 0;
	if (least > p->reserved && !reserve(p, least))
		return 0;
	devices[p->device].used -= counted; /* the pool has it already */
	if (!(b = block_new(ASYNC_MEMORY, p->device, s->context, size))) {
		devices[p->device].used += counted;
		return 0;
	}
	b->pool = p;
	p->blocks++;
	p->used += size;
	raise(&p->used_high, p->used);
	raise(&p->reserved_high, p->reserved);
	return b;
}

static void collect(struct pool *p)
{
	if (p->destroyed && !p->blocks)
		free(p);
}

static bool unnoticed(const struct pool *p)
{
	for (int i = 0; i < STREAMS; i++)
		if (p->freed[i].stream)
			return true;
	return false;
}

/* pool_return takes a block back. The pool shrinks to its threshold once the program has waited for all releases. */
void pool_return(struct block *b)
{
	struct pool *p = b->pool;

	b->pool = 0;
	p->blocks--;
	p->used -= b->size;
	if (on_device(p))
		devices[p->device].used += b->size;
	if (p->destroyed || !unnoticed(p))
		shrink(p, p->destroyed ? 0 : p->threshold);
	collect(p);
}

void pool_freed(struct pool *p, const struct stream *s)
{
	int i = 0;

	while (i < STREAMS - 1 && p->freed[i].stream && p->freed[i].stream != s->id)
		i++;
	p->freed[i].stream = s->id;
	p->freed[i].last = ++releases;
}

static void notice(enum kind kind, void *handle, void *object)
{
	struct pool *p = object;

	(void)handle;
	if (kind != POOL)
		return;
	for (int i = 0; i < STREAMS; i++)
		if (!noticed.stream || (p->freed[i].stream == noticed.stream && p->freed[i].last <= noticed.last))
			p->freed[i].stream = 0;
	if (!unnoticed(p))
		shrink(p, p->threshold);
}

void pools_forget(const struct stream *s)
{
	noticed.stream = s ? s->id : 0;
	noticed.last = releases;
	handles_each(notice);
}

void pools_notice(const struct stream *s)
{
	pools_forget(s);
	doomed = 0;
}

void pools_notice_event(const struct mark *m)
{
	doomed = 0;
	if (!m->stream)
		return;
	noticed.stream = m->stream;
	noticed.last = m->releases;
	handles_each(notice);
}

unsigned long long pools_releases(void) { return releases; }

bool pool_filled(CUmemoryPool handle)
{
	const struct pool *p = handle_find(POOL, handle);

	return p && p->reserved_high;
}

bool pools_doomed(void) { return doomed > 0; }

static void end(struct pool *p)
{
	if (chosen[p->device] == p)
		chosen[p->device] = 0;
	handle_end(p->handle);
	p->destroyed = true;
	shrink(p, 0);
	collect(p);
}

static void end_one(enum kind kind, void *handle, void *object)
{
	struct pool *p = object;

	(void)handle;
	if (kind == POOL && !p->initial)
		end(p);
}

void pools_end(void) { handles_each(end_one); }

static CUresult tell(CUmemoryPool *pool, CUdevice d, struct pool *(*of)(int device))
{
	if (!pool)
		return INVALID_VALUE;
	if (!device_get(d))
		return INVALID_DEVICE;
	*pool = of(d)->handle;
	return OK;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice d)
{
	ENTER(0);
	return tell(pool, d, default_of);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice d)
{
	ENTER(0);
	return tell(pool, d, pool_current);
}

CUresult cuDeviceSetMemPool(CUdevice d, CUmemoryPool pool)
{
	ENTER(0);
	struct pool *p = pool_get(pool);

	if (!device_get(d))
		return INVALID_DEVICE;
	if (!p || p->imported || p->location != ON_DEVICE || p->type != PINNED || p->device != d)
		return INVALID_VALUE;
	chosen[d] = p;
	return OK;
}

/* wrong tells what a pool cannot have. */
static bool wrong(const CUmemPoolProps *w)
{
	bool host = w->location.type == ON_HOST;

	if (w->shareable & ~(FILES ? POOL_FILE : 0) || (SIM_VERSION < 12020 && w->max))
		return true;
	if (w->type == MANAGED)
		return SIM_VERSION < 13000 || w->shareable || w->max || w->location.type > ON_NODE;
	if (w->type != PINNED)
		return true;
	if (host)
		return SIM_VERSION < 13000 || w->shareable;
	return w->location.type != ON_DEVICE || !device_get(w->location.id);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *w)
{
	ENTER(0);
	bool device;
	struct pool *p;
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!pool || !w || wrong(w))
		return INVALID_VALUE;
	device = w->location.type == ON_DEVICE;
	p = pool_new(device ? w->location.id : 0);
	if (!device)
		p->access = 0;
	p->location = w->location.type;
	p->type = w->type;
	p->shareable = w->shareable;
	p->max = w->max;
	*pool = p->handle;
	return OK;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	ENTER(DEAD, .does = DROPS, .pool = pool, .pooled = true);
	struct pool *p = pool_get(pool);

	if (!p || p->initial)
		return INVALID_VALUE;
	doomed += unnoticed(p) && !sim.dead;
	end(p);
	return sim.dead;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	ENTER(0);
	struct pool *p = pool_get(pool);
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!p)
		return INVALID_VALUE;
	if (!unnoticed(p))
		shrink(p, keep);
	return OK;
}

/* narrow tells which attributes have 4 bytes. */
static bool narrow(enum pool_attribute a)
{
	return a < THRESHOLD || (a > USED_HIGH && a != MAX);
}

static bool unknown(enum pool_attribute a)
{
	return a < FOLLOW || a > (SIM_VERSION >= 13040 ? DOMAIN : SIM_VERSION >= 13020 ? DECOMPRESS : USED_HIGH);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER(0);
	struct pool *p = pool_get(pool);
	uint64_t v = 0;

	if (!p || !value || unknown(attribute))
		return INVALID_VALUE;
	switch ((enum pool_attribute)attribute) {
	case THRESHOLD: v = p->threshold; break;
	case RESERVED: v = p->reserved; break;
	case RESERVED_HIGH: v = p->reserved_high; break;
	case USED: v = p->used; break;
	case USED_HIGH: v = p->used_high; break;
	case TYPE: v = p->type; break;
	case SHAREABLE: v = p->shareable; break;
	case LOCATION_ID: v = p->device; break;
	case LOCATION: v = p->location; break;
	case MAX: v = p->max; break;
	case DECOMPRESS: break;
	case DOMAIN: v = -1; break;
	default: v = p->reuse[attribute - FOLLOW];
	}
	memcpy(value, &v, narrow(attribute) ? 4 : 8);
	return OK;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER(0);
	struct pool *p = pool_get(pool);
	uint64_t v = 0;
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!p || !value || unknown(attribute))
		return INVALID_VALUE;
	memcpy(&v, value, narrow(attribute) ? 4 : 8);
	if (attribute <= INTERNAL)
		p->reuse[attribute - FOLLOW] = v;
	else if (attribute == THRESHOLD)
		p->threshold = v;
	else if (attribute == RESERVED_HIGH && !v)
		p->reserved_high = p->reserved;
	else if (attribute == USED_HIGH && !v)
		p->used_high = p->used;
	else
		return INVALID_VALUE;
	return OK;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t n)
{
	ENTER(0, .does = GRANTS);
	struct pool *p = pool_get(pool);

	if (!p || !list || !n)
		return INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		bool own = p->location == ON_DEVICE && list[i].location.id == p->device;

		if (list[i].location.type != ON_DEVICE || (list[i].flags != NONE && list[i].flags != READ_WRITE))
			return INVALID_VALUE;
		if (!device_get(list[i].location.id))
			return INVALID_DEVICE;
		if (own && list[i].flags == NONE)
			return INVALID_VALUE;
	}
	for (size_t i = 0; i < n; i++) {
		unsigned bit = 1u << list[i].location.id;

		p->access = list[i].flags ? p->access | bit : p->access & ~bit;
	}
	return OK;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *where)
{
	ENTER(0);
	struct pool *p = pool_get(pool);
	bool may;

	if (!p || !flags || !where)
		return INVALID_VALUE;
	if (where->type == ON_HOST)
		may = p->location != ON_DEVICE;
	else if (where->type == ON_DEVICE && device_get(where->id))
		may = pool_managed(p) || p->access >> where->id & 1;
	else
		return INVALID_VALUE;
	*flags = may ? READ_WRITE : NONE;
	return OK;
}
