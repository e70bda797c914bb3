#include "sim.h"

/*
 * What the program says about managed memory is kept for every page and told again.
 * The memory itself stays where it is.
 */
#define PAGE 4096

enum { DEVICE_TYPE = 1, HOST_TYPE, NUMA_TYPE };
enum { SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED, UNSET_ACCESSED };
enum {
	READ_MOSTLY = 1, PREFERRED, ACCESSED_BY, PREFETCHED,
	PREFERRED_TYPE, PREFERRED_ID, PREFETCHED_TYPE, PREFETCHED_ID, /* since 12.2 */
};
#define CPU (-1)
#define NOWHERE (-2)

/* A range is pages of managed memory. */
struct range { struct advice *from, *to; };

static bool range(CUdeviceptr address, size_t size, struct range *r)
{
	struct block *b = block_at(address);

	if (!size || !b || (b->place != MANAGED_MEMORY && !b->managed) || !usable(address, size, "managed"))
		return false;
	if (!b->pages)
		b->pages = calloc((b->size + PAGE - 1) / PAGE, sizeof *b->pages);
	r->from = b->pages + (address - b->address) / PAGE;
	r->to = b->pages + (address - b->address + size + PAGE - 1) / PAGE;
	return true;
}

static CUresult place(CUmemLocation *l)
{
	if (l->type == DEVICE_TYPE && !device_get(l->id))
		return INVALID_DEVICE;
	if (l->type == NUMA_TYPE && l->id)
		return INVALID_DEVICE; /* there is one node */
	if (l->type == HOST_TYPE)
		l->id = 0;
	return l->type >= DEVICE_TYPE && l->type <= NUMA_TYPE ? OK : INVALID_VALUE;
}

/* location is a place as drivers before 12.2 call it. */
static CUmemLocation location(CUdevice d)
{
	return d == CPU ? (CUmemLocation){.type = HOST_TYPE} : (CUmemLocation){.type = DEVICE_TYPE, .id = d};
}

static CUresult prefetch(CUdeviceptr address, size_t size, CUmemLocation to, CUstream stream)
{
	struct stream *s;
	struct range pages;
	struct item *i;
	CUresult r = stream_get(stream, &s);

	if (r || (r = on_stream(s)) || (r = place(&to)))
		return r;
	if (!range(address, size, &pages))
		return INVALID_VALUE;
	for (struct advice *a = pages.from; a < pages.to; a++)
		a->prefetched = to;
	i = item_new(NOTHING);
	i->room = 18;
	return enqueue(s, i);
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice to, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return prefetch(address, size, location(to), stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation to, unsigned flags, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return flags ? INVALID_VALUE : prefetch(address, size, to, stream);
}

/* A batch is work of a stream. Discarded memory is filled with bytes that no program may rely on. */
struct batch {
	CUdeviceptr *at;
	size_t *sizes, n;
	CUmemLocation *to;
	size_t *from, nto; /* 0 for a batch that moves nothing */
	bool discards;
};

static CUresult batch_check(const struct batch *b)
{
	struct range pages;
	CUresult r = OK;

	if (!b->n || !b->at || !b->sizes || (b->to && (!b->from || !b->nto || b->nto > b->n || b->from[0])))
		return INVALID_VALUE;
	for (size_t i = 0; !r && i < b->nto; i++)
		r = b->from[i] >= b->n || (i && b->from[i] <= b->from[i - 1]) ? INVALID_VALUE : place(&b->to[i]);
	for (size_t i = 0; !r && i < b->n; i++)
		r = range(b->at[i], b->sizes[i], &pages) ? OK : INVALID_VALUE;
	return r;
}

static CUresult discard(struct stream *s, CUdeviceptr address, size_t size)
{
	enum { UNREADABLE = 0xdd };
	struct item *i = item_new(SET);

	i->dst = address;
	i->src = UNREADABLE;
	i->width = 1;
	i->size = size;
	return enqueue(s, i);
}

static CUresult batch(CUstream stream, const struct batch *b, unsigned long long flags)
{
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	if (r || (r = on_stream(s)))
		return r;
	if (s == s->context->legacy || flags)
		return INVALID_VALUE;
	r = batch_check(b);
	for (size_t i = 0; !r && b->discards && i < b->n; i++)
		r = discard(s, b->at[i], b->sizes[i]);
	for (size_t i = 0, k = 0; !r && b->to && i < b->n; i++) {
		while (k + 1 < b->nto && b->from[k + 1] <= i)
			k++;
		r = prefetch(b->at[i], b->sizes[i], b->to[k], stream);
	}
	return r;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t n, CUmemLocation *to, size_t *from, size_t nto,
	unsigned long long flags, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return to ? batch(stream, &(struct batch){at, sizes, n, to, from, nto, false}, flags) : INVALID_VALUE;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *at, size_t *sizes, size_t n, unsigned long long flags, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return batch(stream, &(struct batch){at, sizes, n, 0, 0, 0, true}, flags);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t n, CUmemLocation *to, size_t *from, size_t nto,
	unsigned long long flags, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return to ? batch(stream, &(struct batch){at, sizes, n, to, from, nto, true}, flags) : INVALID_VALUE;
}

static CUresult advise(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation at)
{
	struct range pages;
	bool matters = advice == SET_PREFERRED || advice == SET_ACCESSED || advice == UNSET_ACCESSED;
	CUresult r = unsafe_call();
	unsigned bit = at.type == DEVICE_TYPE ? 2u << at.id : 1;

	if (!r && matters)
		r = place(&at);
	if (r)
		return r;
	if (!advice || advice > UNSET_ACCESSED || !range(address, size, &pages))
		return INVALID_VALUE;
	if (at.type == NUMA_TYPE && (advice == SET_ACCESSED || advice == UNSET_ACCESSED))
		return INVALID_VALUE;
	for (struct advice *a = pages.from; a < pages.to; a++)
		switch (advice) {
		case SET_READ_MOSTLY:
		case UNSET_READ_MOSTLY:
			a->read_mostly = advice == SET_READ_MOSTLY;
			break;
		case SET_PREFERRED:
		case UNSET_PREFERRED:
			a->preferred = advice == SET_PREFERRED ? at : (CUmemLocation){0};
			break;
		case SET_ACCESSED:
			a->accessed |= bit;
			break;
		default:
			a->accessed &= ~bit;
		}
	return OK;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice at)
{
	ENTER(CURRENT);
	return advise(address, size, advice, location(at));
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation at)
{
	ENTER(CURRENT);
	return advise(address, size, advice, at);
}

/* together is what all pages have in common. */
static struct advice together(struct range r)
{
	struct advice all = *r.from;

	for (struct advice *a = r.from; a < r.to; a++) {
		all.read_mostly &= a->read_mostly;
		all.accessed &= a->accessed;
		if (memcmp(&all.preferred, &a->preferred, sizeof all.preferred))
			all.preferred = (CUmemLocation){0};
		if (memcmp(&all.prefetched, &a->prefetched, sizeof all.prefetched))
			all.prefetched = (CUmemLocation){0};
	}
	return all;
}

/* device is a place as drivers before 12.2 call it. */
static int device(CUmemLocation l)
{
	return !l.type ? NOWHERE : l.type == DEVICE_TYPE ? l.id : CPU;
}

static void accessed_by(unsigned bits, int *ids, size_t n)
{
	size_t k = 0;

	for (int d = 0; d < MAX_DEVICES && k < n; d++)
		if (bits & 2u << d)
			ids[k++] = d;
	if (bits & 1 && k < n)
		ids[k++] = CPU;
	while (k < n)
		ids[k++] = NOWHERE;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t count)
{
	ENTER(CURRENT);
	struct range pages;
	struct advice all;
	int *value = data;

	if (!data || !size || size % 4 || (size > 4 && attribute != ACCESSED_BY))
		return INVALID_VALUE;
	if (!attribute || attribute > (SIM_VERSION < 12020 ? PREFETCHED : PREFETCHED_ID) || !range(address, count, &pages))
		return INVALID_VALUE;
	all = together(pages);
	switch (attribute) {
	case READ_MOSTLY:
		*value = all.read_mostly;
		break;
	case PREFERRED:
		*value = device(all.preferred);
		break;
	case ACCESSED_BY:
		accessed_by(all.accessed, value, size / 4);
		break;
	case PREFETCHED:
		*value = device(all.prefetched);
		break;
	case PREFERRED_TYPE:
		*value = all.preferred.type;
		break;
	case PREFERRED_ID:
		*value = all.preferred.id;
		break;
	case PREFETCHED_TYPE:
		*value = all.prefetched.type;
		break;
	case PREFETCHED_ID:
		*value = all.prefetched.id;
	}
	return OK;
}
