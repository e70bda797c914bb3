#include "sim.h"

enum { TO_ALL = 1, TO_HOST = 2, TO_ONE = 4 };

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags)
{
	ENTER(CURRENT);
	struct block *b;
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!address || !size || (flags != TO_ALL && flags != TO_HOST))
		return INVALID_VALUE;
	if (!(b = block_new(MANAGED_MEMORY, current()->device, current(), size)))
		return OUT_OF_MEMORY;
	*address = b->address;
	return OK;
}

/* Managed memory is always reachable from everywhere, so that attaching it changes nothing here. */
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t size, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = handle);
	struct block *b = block_at(address);
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (!r)
		r = on_stream(s);
	if (r)
		return r;
	if (flags != TO_ALL && flags != TO_HOST && flags != TO_ONE)
		return INVALID_VALUE;
	if (flags == TO_ONE && s == s->context->legacy)
		return INVALID_VALUE;
	if (!b || !block_managed(b) || b->address != address || (size && size != b->size))
		return INVALID_VALUE;
	if (!usable(address, b->size, "attaching"))
		return INVALID_VALUE;
	return enqueue(s, item_new(NOTHING));
}
