#include "sim.h"

/* Memory that graphs allocate and free, and how much of it there is. */

enum { PINNED = 1, MANAGED = 2 };                   /* type of an allocation */
enum { ON_DEVICE = 1, ON_HOST, ON_NODE };           /* location */
enum { ACCESS = 12 /* bytes */, READ_WRITE = 3 };

/* kept is the most that was allocated at once since the last trim: the driver calls it used and reserved,
 * whether or not it is still allocated. */
static struct memory { uint64_t allocated, kept, used_high, reserved_high; } memories[MAX_DEVICES];

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
	m->allocated += b->size;
	m->kept = larger(m->kept, m->allocated);
	m->used_high = larger(m->used_high, m->kept);
	m->reserved_high = larger(m->reserved_high, m->kept);
}

void block_uncount(struct block *b)
{
	if (b->counted)
		memories[b->device].allocated -= b->size;
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

/* wrong tells whether no graph can allocate such memory. */
static bool wrong(const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	const CUmemAccessDesc *access = p->access;
	bool managed = p->pool.type == MANAGED;

	if (!p->size || p->pool.handles || p->naccess > (size_t)device_count() || (p->naccess && (!p->access || managed)))
		return true;
	for (size_t i = 0; i < p->naccess; i++)
		if (access[i].location.type != ON_DEVICE || !device_get(access[i].location.id) || access[i].flags != READ_WRITE)
			return true;
	if (managed || p->pool.place == ON_HOST || p->pool.place == ON_NODE)
		return SIM_VERSION < 13000 || p->pool.place > ON_NODE || (p->pool.place == ON_DEVICE && !device_get(p->pool.device));
	return p->pool.type != PINNED || p->pool.place != ON_DEVICE || !device_get(p->pool.device);
}

/* access is the devices that may use the memory: its own, and those that are listed. */
static unsigned access(const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	const CUmemAccessDesc *list = p->access;
	unsigned bits = p->pool.type == MANAGED ? ~0u : p->pool.place == ON_DEVICE ? 1u << p->pool.device : 0;

	for (size_t i = 0; i < p->naccess; i++)
		bits |= 1u << list[i].location.id;
	return bits;
}

CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct item **i)
{
	struct context *c = current();
	struct block *b;
	int device;

	if (!p || wrong(p))
		return INVALID_VALUE;
	device = p->pool.place == ON_DEVICE ? p->pool.device : c ? c->device : 0;
	if (!c || c->device != device)
		c = &device_get(device)->primary;
	if (!(b = block_new(GRAPH_MEMORY, device, c, p->size)))
		return OUT_OF_MEMORY;
	b->absent = true;
	b->access = access(p);
	p->address = b->address;
	*i = item_new(APPEAR);
	item_block(*i, b);
	(*i)->alloc = alloc_copy(p);
	return OK;
}

/* make_free frees what a graph allocates: in that graph, or in any others. */
CUresult make_free(CUdeviceptr address, struct graph *g, struct item **i)
{
	struct block *b = block_at(address);

	if (!g || !b || b->address != address || b->place != GRAPH_MEMORY || b->freed || !graph_may_free(g, b))
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
	*at = attribute == USED_HIGH ? &m->used_high : attribute == RESERVED_HIGH ? &m->reserved_high : &m->kept;
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
	*at = memories[device].kept;
	return OK;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	ENTER(0);
	if (!device_get(device))
		return INVALID_DEVICE;
	memories[device].kept = memories[device].allocated;
	return OK;
}
