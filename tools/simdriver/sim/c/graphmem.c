#include "sim.h"

/* Memory that graphs allocate and free, and how much of it there is. */

enum { PINNED = 1, ON_DEVICE = 1, ACCESS = 12 /* bytes */ };

static struct memory { uint64_t used, used_high, reserved, reserved_high; } memories[MAX_DEVICES];

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

void block_present(struct block *b, bool there)
{
	struct memory *m = &memories[b->device];

	b->absent = !there;
	if (b->place != GRAPH_MEMORY || b->counted == there)
		return;
	if (!there) {
		block_uncount(b);
		return;
	}
	b->counted = true;
	m->used += b->size;
	m->used_high = larger(m->used_high, m->used);
	m->reserved = larger(m->reserved, m->used);
	m->reserved_high = larger(m->reserved_high, m->reserved);
}

void block_uncount(struct block *b)
{
	if (b->counted)
		memories[b->device].used -= b->size;
	b->counted = false;
}

CUDA_MEM_ALLOC_NODE_PARAMS *alloc_copy(const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	CUDA_MEM_ALLOC_NODE_PARAMS *copy;

	if (!p)
		return 0;
	copy = malloc(sizeof *p + p->naccess * ACCESS);
	*copy = *p;
	if (p->naccess)
		copy->access = memcpy(copy + 1, p->access, p->naccess * ACCESS);
	return copy;
}

CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct item **i)
{
	struct context *c = current();
	struct device *d = p ? device_get(p->pool.device) : 0;
	struct block *b;

	if (!d || p->pool.type != PINNED || p->pool.handles || p->pool.place != ON_DEVICE || !p->size)
		return INVALID_VALUE;
	if (p->naccess > (size_t)device_count() || (p->naccess && !p->access))
		return INVALID_VALUE;
	if (!c || c->device != p->pool.device)
		c = &d->primary;
	if (!(b = block_new(GRAPH_MEMORY, p->pool.device, c, p->size)))
		return OUT_OF_MEMORY;
	b->absent = true;
	p->address = b->address;
	*i = item_new(APPEAR);
	item_block(*i, b);
	(*i)->alloc = alloc_copy(p);
	return OK;
}

/* make_free frees what a graph allocates, once only: in that graph or in another. */
CUresult make_free(CUdeviceptr address, struct graph *g, struct item **i)
{
	struct block *b = block_at(address);

	if (!g || !b || b->address != address || b->place != GRAPH_MEMORY || b->freed || b->ender)
		return INVALID_VALUE;
	*i = item_new(VANISH);
	item_block(*i, b);
	return OK;
}

enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

static CUresult find(CUdevice device, CUgraphMem_attribute attribute, void *value, uint64_t **at)
{
	struct memory *m = &memories[device_get(device) ? device : 0];

	if (!device_get(device))
		return INVALID_DEVICE;
	if (!value || attribute > RESERVED_HIGH)
		return INVALID_VALUE;
	*at = attribute == USED ? &m->used : attribute == USED_HIGH ? &m->used_high : attribute == RESERVED ? &m->reserved : &m->reserved_high;
	return OK;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	ENTER(0);
	uint64_t *at;
	CUresult r = find(device, attribute, value, &at);

	if (!r)
		memcpy(value, at, sizeof *at);
	return r;
}

/* The high ones can be begun anew, with a value of 0. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	ENTER(0);
	uint64_t *at, wanted;
	CUresult r = find(device, attribute, value, &at);

	if (r)
		return r;
	memcpy(&wanted, value, sizeof wanted);
	if (wanted || attribute == USED || attribute == RESERVED)
		return INVALID_VALUE;
	*at = attribute == USED_HIGH ? memories[device].used : memories[device].reserved;
	return OK;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	ENTER(0);
	if (!device_get(device))
		return INVALID_DEVICE;
	memories[device].reserved = memories[device].used;
	return OK;
}
