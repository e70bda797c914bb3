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
	ENTER(0);
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
	if (!b || b->place != MANAGED_MEMORY || b->address != address || (size && size != b->size))
		return INVALID_VALUE;
	if (!usable(address, b->size, "attaching"))
		return INVALID_VALUE;
	return enqueue(s, item_new(NOTHING));
}

enum attribute {
	CONTEXT_OF = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8, ORDINAL = 9, START = 11, SIZE = 12,
};
enum { HOST_TYPE = 1, DEVICE_TYPE = 2 };

/* value is what there is to tell of an address: 8 bytes, or the low 4 of them. */
static CUresult value(CUdeviceptr address, unsigned attribute, uint64_t *v)
{
	struct block *b = block_at(address);
	CUdeviceptr from = 0;
	size_t size = 0;
	bool known = b ? !b->freed && address - b->address < b->size : registered(address, &from, &size);
	bool host = !b || b->place == HOST_MEMORY;

	*v = 0;
	if (!known)
		return INVALID_VALUE;
	switch (attribute) {
	case CONTEXT_OF:
		*v = (uintptr_t)(b ? b->context : current() ? current() : &devices[0].primary)->handle;
		return OK;
	case MEMORY_TYPE:
		*v = host ? HOST_TYPE : DEVICE_TYPE;
		return OK;
	case DEVICE_POINTER:
		*v = address;
		return current() ? OK : INVALID_CONTEXT;
	case HOST_POINTER:
		*v = host || b->place == MANAGED_MEMORY ? address : 0;
		return *v ? OK : INVALID_VALUE;
	case IS_MANAGED:
		*v = b && b->place == MANAGED_MEMORY;
		return OK;
	case ORDINAL:
		*v = b ? b->context->device : 0;
		return OK;
	case START:
		*v = b ? b->address : from;
		return OK;
	case SIZE:
		*v = b ? b->size : size;
		return OK;
	}
	return INVALID_VALUE;
}

static size_t width(unsigned attribute)
{
	return attribute == IS_MANAGED || attribute == MEMORY_TYPE || attribute == ORDINAL ? 4 : 8;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	ENTER(CALLBACK);
	uint64_t v;
	CUresult r = data ? value(address, attribute, &v) : INVALID_VALUE;

	if (!r)
		memcpy(data, &v, width(attribute));
	return r;
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
	ENTER(CALLBACK);
	uint64_t v;

	if (!n || !attributes || !data)
		return INVALID_VALUE;
	for (unsigned i = 0; i < n; i++)
		if (!data[i] || !attributes[i] || attributes[i] > SIZE)
			return INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) { /* what there is nothing to tell of is 0 */
		value(address, attributes[i], &v);
		memcpy(data[i], &v, width(attributes[i]));
	}
	return OK;
}
