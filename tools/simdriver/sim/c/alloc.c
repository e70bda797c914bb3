#include "sim.h"

static CUresult allocate(enum place place, size_t size, struct block **b)
{
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!size)
		return INVALID_VALUE;
	*b = block_new(place, current()->device, current(), size);
	return *b ? OK : OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	ENTER(CURRENT, .does = ALLOCATES, .unsafe = true);
	struct block *b;
	CUresult r;

	queue_pass_all(current());
	r = address ? allocate(DEVICE_MEMORY, size, &b) : INVALID_VALUE;
	if (!r)
		*address = b->address;
	return r;
}

static CUresult host_memory(void **host, size_t size, unsigned flags)
{
	struct block *b;
	CUresult r = host && flags < 8 ? allocate(HOST_MEMORY, size, &b) : INVALID_VALUE;

	if (r)
		return r;
	b->flags = flags;
	*host = (void *)(uintptr_t)b->address;
	return OK;
}

CUresult cuMemHostAlloc(void **host, size_t size, unsigned flags)
{
	ENTER(CURRENT, .does = ALLOCATES, .unsafe = true);
	return host_memory(host, size, flags);
}

CUresult cuMemAllocHost_v2(void **host, size_t size)
{
	ENTER(CURRENT, .does = ALLOCATES, .unsafe = true);
	return host_memory(host, size, 0);
}

/* start finds the block that begins at an address, and that the program has not freed. */
static struct block *start(CUdeviceptr address)
{
	struct block *b = block_at(address);

	if (b && b->freed)
		violation("memory of %zu bytes is freed twice", b->size);
	return b && !b->freed && b->address == address ? b : 0;
}

/* release frees memory of the program. The driver waits for all work of the context first. */
static CUresult release(struct block *b)
{
	CUresult r;

	if (!b || b->place == IPC_MEMORY || b->place == GLOBAL_MEMORY || (b->place == GRAPH_MEMORY && !b->given))
		return INVALID_VALUE;
	if (!sim.dead && ((r = b->imports ? OK : owner(b->context)) || (r = unsafe_call())))
		return r;
	if (b->place != ASYNC_MEMORY)
		context_wait(b->context);
	if (b->freed)
		return INVALID_VALUE;
	if (b->imports) {
		b->imports = 0; /* a free undoes all imports */
		return sim.dead;
	}
	if (b->place == GRAPH_MEMORY) {
		b->given = false;
		block_present(b, false);
	} else {
		block_free(b);
	}
	return sim.dead;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
	ENTER(DEAD);
	struct block *b;

	if (!address || external_freed(address))
		return sim.dead;
	b = start(address);
	return release(b && b->place != HOST_MEMORY ? b : 0);
}

CUresult cuMemFreeHost(void *host)
{
	ENTER(DEAD);
	struct block *b = start((uintptr_t)host);

	return release(b && b->place == HOST_MEMORY ? b : 0);
}

/* appear allocates memory in the order of a stream. In a capture, each launch of the graph allocates it. */
static CUresult appear(CUdeviceptr *address, size_t size, struct stream *s, struct pool *p)
{
	struct item *i = item_new(APPEAR);
	struct block *b = s->capture ? recapture_block(s->capture, size) : 0;

	if (!b) {
		b = s->capture ? block_new(GRAPH_MEMORY, s->context->device, s->context, size) : pool_block(p, s, size);
		if (!b) {
			item_free(i);
			return OUT_OF_MEMORY;
		}
		b->absent = true;
	}
	item_block(i, b);
	*address = b->address;
	return enqueue(s, i);
}

/* ordered allocates from a pool, 0 for the current one of the stream's device. */
static CUresult ordered(CUdeviceptr *address, size_t size, CUstream stream, struct pool *p)
{
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	if (!r && !s->capture)
		r = unsafe_call();
	if (r)
		return r;
	if (!address)
		return INVALID_VALUE;
	*address = 0;
	return size ? appear(address, size, s, p ? p : pool_current(s->context->device)) : OK;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream, .unsafe = true, .pooled = true);
	return ordered(address, size, stream, 0);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream, .unsafe = true, .pooled = true);
	struct pool *p = pool_get(pool);

	return p && !p->imported ? ordered(address, size, stream, p) : INVALID_VALUE;
}

static CUresult vanish(struct block *b, struct stream *s)
{
	struct item *i;

	if (b->place == GLOBAL_MEMORY)
		return INVALID_VALUE; /* is the module's */
	if (b->place == GRAPH_MEMORY ? !s->capture && !b->given : !!s->capture)
		return INVALID_VALUE; /* a capture frees graph memory alone; outside, a launch must have given it */
	if (b->imports && !s->capture) {
		b->imports = 0; /* a free undoes all imports */
		return OK;
	}
	if (s->capture && !s->capture->again && !graph_may_free(s->capture->graph, b))
		return INVALID_VALUE;
	if (!s->capture) {
		b->freed = b->place != GRAPH_MEMORY;
		b->given = false;
		if (b->pool)
			pool_freed(b->pool, s);
	}
	i = item_new(VANISH);
	item_block(i, b);
	return enqueue(s, i);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	ENTER(DEAD, .does = WORKS, .stream = stream, .pooled = true);
	struct block *b = start(address);
	struct stream *s;
	CUresult r;

	if (sim.dead)
		return b ? release(b) : sim.dead;
	if ((r = stream_get(stream, &s)) || (!s->capture && (r = unsafe_call())))
		return r;
	if (!address)
		return OK;
	if (b && b->place == MANAGED_MEMORY)
		return NOT_SUPPORTED;
	return b && b->place != HOST_MEMORY ? vanish(b, s) : INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags)
{
	ENTER(0);
	if (!address || flags || !pinned(host, 1))
		return INVALID_VALUE;
	*address = (uintptr_t)host;
	return OK;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *host)
{
	ENTER(0);
	struct block *b = block_at((uintptr_t)host);

	if (!flags || !pinned(host, 1))
		return INVALID_VALUE;
	*flags = b ? b->flags : 0;
	return OK;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	ENTER(0);
	struct block *b = block_at(address);
	CUdeviceptr from;
	size_t whole;

	if (b && !b->freed && address - b->address < b->size) {
		from = b->address;
		whole = b->size;
	} else if (!virtual_part(address, &from, &whole)) {
		return NOT_FOUND;
	}
	if (base)
		*base = from;
	if (size)
		*size = whole;
	return OK;
}
