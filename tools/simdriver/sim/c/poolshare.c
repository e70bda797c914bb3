#include "sim.h"

/* The contents of a file of a pool, and of the description of a block. A program may import its own exports. */
#define MAGIC 0x706f6f6c73696dull
struct exported {
	uint64_t magic;
	CUmemoryPool pool;
	CUdeviceptr address;
};

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER(0);
	struct exported e = {MAGIC, pool, 0};
	struct pool *p = pool_get(pool);
	int fd;

	if (!p || !out || flags || type != POOL_FILE || p->imported || !(p->shareable & type))
		return INVALID_VALUE;
	if ((fd = os_file_new(&e, sizeof e)) < 0)
		return OPERATING_SYSTEM;
	p->exported = true;
	*(int *)out = fd;
	return OK;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER(0);
	struct exported e;
	struct pool *p, *from;

	if (!pool || flags || type != POOL_FILE)
		return INVALID_VALUE;
	if (!os_file_read((uintptr_t)handle, &e, sizeof e) || e.magic != MAGIC || !(from = handle_find(POOL, e.pool)))
		return INVALID_VALUE;
	p = pool_new(from->device);
	p->imported = true;
	p->exporter = from->handle;
	*pool = p->handle;
	return OK;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
	ENTER(0);
	struct block *b = block_at(address);
	struct exported e = {MAGIC, 0, address};

	if (!out || !b || b->freed || b->address != address || !b->pool || !b->pool->exported)
		return INVALID_VALUE;
	e.pool = b->pool->handle;
	memset(out, 0, sizeof *out);
	memcpy(out, &e, sizeof e);
	return OK;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	ENTER(0);
	struct pool *p = pool_get(pool);
	struct exported e;
	struct block *b;

	if (!address || !data || !p || !p->imported)
		return INVALID_VALUE;
	memcpy(&e, data, sizeof e);
	b = e.magic == MAGIC && e.pool == p->exporter ? block_at(e.address) : 0;
	if (!b || b->freed)
		return INVALID_VALUE;
	b->imports++;
	*address = b->address;
	return OK;
}
