#include "sim.h"

enum attribute {
	CONTEXT_OF = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, P2P_TOKENS, SYNC_MEMOPS, BUFFER_ID, IS_MANAGED, ORDINAL,
	IPC_CAPABLE, START, SIZE, MAPPED, HANDLE_TYPES, RDMA_CAPABLE, ACCESS, POOL_OF, MAPPING_SIZE, MAPPING_START, BLOCK_ID,
	DECOMPRESS, DOMAIN,
};
enum { HOST_TYPE = 1, DEVICE_TYPE = 2, READ_WRITE = 3 };

static bool known_attribute(unsigned a)
{
	return a && a != P2P_TOKENS && a <= (SIM_VERSION >= 13040 ? DOMAIN : SIM_VERSION >= 12080 ? DECOMPRESS : BLOCK_ID);
}

static bool may_use(struct block *b, struct context *c)
{
	if (!b || b->place == HOST_MEMORY || block_managed(b))
		return true;
	return (b->pool ? b->pool->access : c->peers) >> (b->pool ? c->device : b->device) & 1;
}

/* value is what there is to tell of an address: 8 bytes, or the low 4 of them. */
static CUresult value(CUdeviceptr address, unsigned attribute, uint64_t *v)
{
	struct block *b = block_at(address);
	CUdeviceptr from = 0;
	size_t size = 0;
	bool known = b ? !b->freed && address - b->address < b->size : registered(address, &from, &size);
	bool host = !b || b->place == HOST_MEMORY || pool_on_host(b->pool);
	bool managed = b && block_managed(b);

	*v = 0;
	if (!known)
		return INVALID_VALUE;
	switch ((enum attribute)attribute) {
	case CONTEXT_OF: /* memory of a pool is of none */
		if (!b || b->place != ASYNC_MEMORY)
			*v = (uintptr_t)(b ? b->context : current() ? current() : &devices[0].primary)->handle;
		return OK;
	case MEMORY_TYPE:
		*v = host ? HOST_TYPE : DEVICE_TYPE;
		return OK;
	case DEVICE_POINTER:
		*v = address;
		return current() ? OK : INVALID_CONTEXT;
	case HOST_POINTER:
		*v = host || managed ? address : 0;
		return *v ? OK : INVALID_VALUE;
	case SYNC_MEMOPS:
		*v = b && b->synchronous;
		return OK;
	case BUFFER_ID:
	case BLOCK_ID:
		*v = b ? b->id : from;
		return OK;
	case IS_MANAGED:
		*v = managed;
		return OK;
	case ORDINAL:
		*v = b ? b->device == MAX_DEVICES ? b->context->device : b->device : 0;
		return OK;
	case IPC_CAPABLE:
		*v = b && b->place == DEVICE_MEMORY;
		return OK;
	case START:
	case MAPPING_START:
		*v = b ? b->address : from;
		return OK;
	case SIZE:
	case MAPPING_SIZE:
		*v = b ? b->size : size;
		return OK;
	case MAPPED:
		*v = 1;
		return OK;
	case HANDLE_TYPES:
		*v = b && b->pool ? b->pool->shareable : 0;
		return OK;
	case RDMA_CAPABLE:
		*v = b && b->place == DEVICE_MEMORY;
		return OK;
	case ACCESS:
		if (!current())
			return INVALID_CONTEXT;
		*v = may_use(b, current()) ? READ_WRITE : 0;
		return OK;
	case POOL_OF:
		*v = b && b->pool ? (uintptr_t)b->pool->handle : 0;
		return *v ? OK : INVALID_VALUE;
	case DECOMPRESS:
		return OK;
	case DOMAIN:
		*v = -1;
		return OK;
	case P2P_TOKENS:
		break;
	}
	return INVALID_VALUE;
}

static size_t width(unsigned attribute)
{
	switch ((enum attribute)attribute) {
	case IS_MANAGED: case MEMORY_TYPE: case ORDINAL: case SYNC_MEMOPS: case IPC_CAPABLE: case MAPPED: case RDMA_CAPABLE:
	case ACCESS: case DECOMPRESS: case DOMAIN:
		return 4;
	default:
		return 8;
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	ENTER(CALLBACK);
	uint64_t v;
	CUresult r = data && known_attribute(attribute) ? value(address, attribute, &v) : INVALID_VALUE;

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
		if (!data[i] || !known_attribute(attributes[i]))
			return INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) { /* what there is nothing to tell of is 0 */
		value(address, attributes[i], &v);
		memcpy(data[i], &v, width(attributes[i]));
	}
	return OK;
}

CUresult cuPointerSetAttribute(const void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	ENTER(0);
	struct block *b = block_at(address);

	if (!data || attribute != SYNC_MEMOPS || !b || b->freed)
		return INVALID_VALUE;
	b->synchronous = *(const unsigned *)data;
	return OK;
}
