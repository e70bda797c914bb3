#include "sim.h"

/*
 * Reserved addresses are of one span that nothing else is ever in, so that use
 * after a release is noticed. Physical memory is a file without a name, which
 * can be mapped at several addresses and be sent to other processes.
 */
#define SPAN (16ull << 30)
#define GRANULE (2ull << 20)
#define HOST_PAGE 4096

enum { PINNED = 1 };                                        /* type of an allocation */
enum { ON_THE_DEVICE = 1, ON_NODE = 3, ON_THIS_NODE = 4 };  /* location */
enum { POSIX_FILE = 1 };                                    /* type of a handle */
enum { READ_WRITE = 3 };

struct physical {
	struct z_CUmemAllocationProp prop;
	size_t size;
	intptr_t shared;
	int refs;       /* of handles and mappings */
	bool imported;  /* its memory is accounted for elsewhere */
};

struct part {
	CUdeviceptr at;
	size_t size;
	struct physical *memory;
	unsigned char access[MAX_DEVICES];
	struct part *next;
};

struct range {
	CUdeviceptr at;
	size_t size;
	struct range *next;
};

static unsigned char *base;
static struct range *ranges; /* in the order of their addresses, as are the parts */
static struct part *parts;
static CUdeviceptr last; /* end of the latest range */
static int nphysical;

static void *pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }

bool virtual_known(CUdeviceptr address)
{
	return base && address - (uintptr_t)base < SPAN;
}

bool virtual_usable(CUdeviceptr address, size_t size, int device)
{
	CUdeviceptr at = address;
	bool ok = true;

	for (struct part *p = parts; p; p = p->next)
		if (at >= p->at && at < p->at + p->size && at < address + size) {
			bool any = false;

			for (int d = 0; d < MAX_DEVICES; d++)
				any |= (device < 0 || d == device) && p->access[d] == READ_WRITE;
			ok &= any;
			at = p->at + p->size;
		}
	return ok && at >= address + size;
}

bool virtual_part(CUdeviceptr address, CUdeviceptr *from, size_t *size)
{
	for (struct part *p = parts; p; p = p->next)
		if (address - p->at < p->size) {
			*from = p->at;
			*size = p->size;
			return true;
		}
	return false;
}

int physical_alive(void) { return nphysical; }

int reserved_alive(void)
{
	int n = 0;

	for (struct range *r = ranges; r; r = r->next)
		n++;
	return n;
}

/* free_at finds free addresses for a range, from an address on, and their place in the list. */
static CUdeviceptr free_at(CUdeviceptr from, size_t size, size_t align, struct range ***place)
{
	CUdeviceptr at = (from + align - 1) / align * align;

	for (*place = &ranges; **place; *place = &(**place)->next) {
		struct range *r = **place;

		if (at + size <= r->at)
			break;
		if (at < r->at + r->size)
			at = (r->at + r->size + align - 1) / align * align;
	}
	return at + size <= (uintptr_t)base + SPAN ? at : 0;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	ENTER(0);
	struct range **place, *r;
	CUdeviceptr at;

	if (!address || !size || size % HOST_PAGE || hint % HOST_PAGE || align & (align - 1) || flags)
		return INVALID_VALUE;
	if (!base) {
		if (!(base = os_span(SPAN)))
			return OUT_OF_MEMORY;
		last = (uintptr_t)base;
	}
	if (align < GRANULE)
		align = GRANULE;
	if (size > SPAN || (!(at = free_at(last, size, align, &place)) && !(at = free_at((uintptr_t)base, size, align, &place))))
		return OUT_OF_MEMORY;
	r = calloc(1, sizeof *r);
	*r = (struct range){at, size, *place};
	*place = r;
	last = at + size;
	*address = at;
	return OK;
}

static bool mapped(CUdeviceptr at, size_t size)
{
	for (struct part *p = parts; p; p = p->next)
		if (p->at < at + size && at < p->at + p->size)
			return true;
	return false;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	ENTER(DEAD);
	for (struct range **at = &ranges, *r; (r = *at); at = &r->next)
		if (r->at == address && r->size == size) {
			if (mapped(address, size)) {
				violation("addresses are given back while memory is mapped there");
				return INVALID_VALUE;
			}
			*at = r->next;
			free(r);
			last = address; /* it is tried first for the next range */
			return sim.dead;
		}
	return INVALID_VALUE;
}

static bool valid(const CUmemAllocationProp *p)
{
	if (!p || p->type != PINNED || p->handles & ~(FILES ? POSIX_FILE : 0))
		return false;
	if (p->location.type == ON_THE_DEVICE)
		return device_get(p->location.id);
	return SIM_VERSION >= 12020 && ((p->location.type == ON_NODE && !p->location.id) || p->location.type == ON_THIS_NODE);
}

CUresult cuMemGetAllocationGranularity(size_t *size, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	ENTER(0);
	if (!size || option > 1 || !valid(prop))
		return INVALID_VALUE;
	*size = GRANULE;
	return OK;
}

static struct device *home(struct physical *m)
{
	return m->prop.location.type == ON_THE_DEVICE && !m->imported ? device_get(m->prop.location.id) : 0;
}

static void drop(struct physical *m)
{
	if (--m->refs)
		return;
	if (home(m))
		home(m)->used -= m->size;
	os_unshare(m->shared);
	free(m);
	nphysical--;
}

static struct physical *physical_new(CUmemGenericAllocationHandle *handle, intptr_t shared, size_t size, const CUmemAllocationProp *prop)
{
	struct physical *m = calloc(1, sizeof *m);

	*m = (struct physical){.prop = *prop, .size = size, .shared = shared, .refs = 1};
	*handle = (uintptr_t)handle_new(PHYSICAL, m);
	nphysical++;
	return m;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	ENTER(0);
	struct device *d;
	intptr_t shared;

	if (!handle || !size || size % GRANULE || flags || !valid(prop))
		return INVALID_VALUE;
	d = prop->location.type == ON_THE_DEVICE ? device_get(prop->location.id) : 0;
	if (size > device_memory() || (d && d->used + size > device_memory()))
		return OUT_OF_MEMORY;
	if ((shared = os_shared(size)) < 0)
		return OPERATING_SYSTEM;
	if (d)
		d->used += size;
	physical_new(handle, shared, size, prop);
	return OK;
}

static struct physical *memory_of(CUmemGenericAllocationHandle handle)
{
	return handle_get(PHYSICAL, (void *)(uintptr_t)handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER(DEAD);
	struct physical *m = memory_of(handle);

	if (!m)
		return INVALID_VALUE;
	handle_end((void *)(uintptr_t)handle);
	drop(m);
	return sim.dead;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	ENTER(0);
	struct physical *m = memory_of(handle);
	struct part **at, *p;
	struct range *r;

	if (!m || flags || offset || !size || size > m->size || size % GRANULE || address % GRANULE)
		return INVALID_VALUE;
	for (r = ranges; r && (address < r->at || address + size > r->at + r->size); r = r->next)
		;
	if (!r || mapped(address, size))
		return INVALID_VALUE;
	if (!os_map(pointer(address), size, m->shared))
		return OUT_OF_MEMORY;
	for (at = &parts; *at && (*at)->at < address; at = &(*at)->next)
		;
	p = calloc(1, sizeof *p);
	*p = (struct part){.at = address, .size = size, .memory = m, .next = *at};
	*at = p;
	m->refs++;
	return OK;
}

/* unmap takes the part out of the list that an entry of the list points to. */
static void unmap(struct part **at)
{
	struct part *p = *at;

	os_unmap(pointer(p->at), p->size);
	*at = p->next;
	drop(p->memory);
	free(p);
}

/* parts_in finds the first part of a range that has whole ones only, all mapped. */
static struct part **parts_in(CUdeviceptr address, size_t size)
{
	struct part **first = &parts;
	CUdeviceptr at = address;

	while (*first && (*first)->at < address)
		first = &(*first)->next;
	for (struct part *p = *first; p && p->at == at && at < address + size; p = p->next)
		at += p->size;
	return size && at == address + size ? first : 0;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	ENTER(DEAD);
	struct part **at = parts_in(address, size);

	if (!at)
		return INVALID_VALUE;
	while (*at && (*at)->at < address + size)
		unmap(at);
	return sim.dead;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t n)
{
	ENTER(0);
	struct part **at = parts_in(address, size);

	if (!at || !list || !n)
		return INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		if (list[i].location.type != ON_THE_DEVICE || (list[i].flags > 1 && list[i].flags != READ_WRITE))
			return INVALID_VALUE;
		if (!device_get(list[i].location.id))
			return INVALID_DEVICE;
	}
	for (struct part *p = *at; p && p->at < address + size; p = p->next)
		for (size_t i = 0; i < n; i++)
			p->access[list[i].location.id] = list[i].flags;
	return OK;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	ENTER(0);
	if (!flags || !location || location->type != ON_THE_DEVICE || !device_get(location->id))
		return INVALID_VALUE;
	for (struct part *p = parts; p; p = p->next)
		if (address >= p->at && address < p->at + p->size) {
			*flags = p->access[location->id];
			return OK;
		}
	return INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER(0);
	struct physical *m = memory_of(handle);
	int file;

	if (!out || !m || type != POSIX_FILE || flags || !(m->prop.handles & type))
		return INVALID_VALUE;
	if ((file = os_file_copy(m->shared)) < 0)
		return OPERATING_SYSTEM;
	*(int *)out = file;
	return OK;
}

/* What an imported file is of is not told here: it counts as memory of the first device. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *in, CUmemAllocationHandleType type)
{
	ENTER(0);
	CUmemAllocationProp prop = {.type = PINNED, .handles = POSIX_FILE, .location = {.type = ON_THE_DEVICE}};
	int64_t size;
	int file;

	if (!handle || type != POSIX_FILE)
		return INVALID_VALUE;
	if ((size = os_file_size((uintptr_t)in)) <= 0 || size % GRANULE || (file = os_file_copy((uintptr_t)in)) < 0)
		return INVALID_VALUE;
	physical_new(handle, file, size, &prop)->imported = true;
	return OK;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	ENTER(0);
	struct physical *m = memory_of(handle);

	if (!prop || !m)
		return INVALID_VALUE;
	*prop = m->prop;
	return OK;
}

static void end(enum kind kind, void *handle, void *object)
{
	if (kind == PHYSICAL) {
		handle_end(handle);
		drop(object);
	}
}

/* virtual_end takes all of it back. It belongs to the process, not to a context. */
void virtual_end(void)
{
	while (parts)
		unmap(&parts);
	for (struct range *r = ranges, *next; r; r = next) {
		next = r->next;
		free(r);
	}
	ranges = 0;
	handles_each(end);
}
