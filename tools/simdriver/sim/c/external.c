#include "sim.h"

/*
 * Memory and semaphores of other APIs. Both are files here: memory is what the
 * file contains, and a semaphore is the 64-bit number at its beginning, which
 * the other API reads and writes as it likes. The driver owns a descriptor once
 * it is imported.
 */
enum { OPAQUE_FILE = 1, TIMELINE_FILE = 9 };
enum { DEDICATED = 1 };

struct external {
	void *handle;
	struct external *next;
	struct context *context;
	int file;
	size_t size;                /* of memory */
	bool timeline;
	volatile uint64_t *value;   /* of a semaphore */
};

struct mapping {
	uintptr_t at, map;
	size_t size, whole;
	struct external *of; /* 0 once that is destroyed: nothing may use the memory any more */
	struct context *context;
	struct mapping *next;
};

static struct external *externals;
static struct mapping *mappings;

int external_mappings(void)
{
	int n = 0;

	for (struct mapping *m = mappings; m; m = m->next)
		n++;
	return n;
}

static bool zero(const unsigned *reserved)
{
	for (int i = 0; i < 16; i++)
		if (reserved[i])
			return false;
	return true;
}

static struct external *external_new(enum kind kind, int file)
{
	struct external *e = calloc(1, sizeof *e);

	*e = (struct external){.handle = handle_new(kind, e), .next = externals, .context = current(), .file = file};
	externals = e;
	return e;
}

/* holds tells whether a descriptor is of a file that holds so many bytes. */
static bool holds(int file, size_t size)
{
	int64_t has = os_file_size(file);

	return has > 0 && (size_t)has >= size;
}

static void external_free(struct external *e)
{
	struct external **at = &externals;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->of == e)
			m->of = 0;
	if (e->value)
		os_file_unmap((void *)e->value, sizeof *e->value);
	os_file_close(e->file);
	handle_end(e->handle);
	free(e);
}

static void unmap(struct mapping **at)
{
	struct mapping *m = *at;

	*at = m->next;
	os_file_unmap((void *)m->map, m->whole);
	free(m);
}

void externals_end(struct context *c)
{
	for (struct mapping **at = &mappings; *at;)
		if (!c || (*at)->context == c) {
			live_lost(1);
			unmap(at);
		} else {
			at = &(*at)->next;
		}
	for (struct external *e = externals, *next; e; e = next) {
		next = e->next;
		if (!c || e->context == c) {
			live_lost(1);
			external_free(e);
		}
	}
}

CUresult cuImportExternalMemory(CUexternalMemory *handle, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d)
{
	ENTER(CURRENT);
	struct external *e;

	if (!handle || !d || !d->size || d->flags & ~DEDICATED || !zero(d->reserved))
		return INVALID_VALUE;
	if (!FILES || d->type != OPAQUE_FILE)
		return NOT_SUPPORTED; /* here */
	if (!holds(d->fd, d->size))
		return INVALID_VALUE;
	e = external_new(EXTERNAL_MEMORY, d->fd);
	e->size = d->size;
	*handle = e->handle;
	return OK;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory handle, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d)
{
	ENTER(CURRENT);
	struct external *e = handle_get(EXTERNAL_MEMORY, handle);
	struct mapping *m;
	size_t before, page = 1 << 16;
	void *map;

	if (!e)
		return INVALID_HANDLE;
	if (!address || !d || !d->size || d->flags || !zero(d->reserved) || d->offset > e->size || d->size > e->size - d->offset)
		return INVALID_VALUE;
	before = d->offset % page;
	if (!(map = os_file_map(e->file, d->offset - before, before + d->size)))
		return OPERATING_SYSTEM;
	m = calloc(1, sizeof *m);
	*m = (struct mapping){(uintptr_t)map + before, (uintptr_t)map, d->size, before + d->size, e, current(), mappings};
	mappings = m;
	*address = m->at;
	return OK;
}

CUresult cuDestroyExternalMemory(CUexternalMemory handle)
{
	ENTER(DEAD);
	struct external *e = handle_get(EXTERNAL_MEMORY, handle);

	if (!e)
		return INVALID_HANDLE;
	external_free(e);
	return sim.dead;
}

bool external_usable(CUdeviceptr address, size_t size)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (address >= m->at && size <= m->size && address - m->at <= m->size - size)
			return m->of;
	return false;
}

bool external_freed(CUdeviceptr address)
{
	for (struct mapping **at = &mappings; *at; at = &(*at)->next)
		if ((*at)->at == address) {
			struct mapping *m = *at;

			context_wait(m->context);
			for (at = &mappings; *at && *at != m; at = &(*at)->next)
				;
			if (*at)
				unmap(at);
			return true;
		}
	return false;
}

/* -- semaphores -- */

CUresult cuImportExternalSemaphore(CUexternalSemaphore *handle, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *d)
{
	ENTER(CURRENT);
	struct external *e;
	void *value;

	if (!handle || !d || d->flags || !zero(d->reserved))
		return INVALID_VALUE;
	if (!FILES || (d->type != OPAQUE_FILE && d->type != TIMELINE_FILE))
		return NOT_SUPPORTED; /* here */
	if (!holds(d->fd, sizeof *e->value))
		return INVALID_HANDLE;
	if (!(value = os_file_map(d->fd, 0, sizeof *e->value)))
		return OPERATING_SYSTEM;
	e = external_new(EXTERNAL_SEMAPHORE, d->fd);
	e->value = value;
	e->timeline = d->type == TIMELINE_FILE;
	*handle = e->handle;
	return OK;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle)
{
	ENTER(DEAD);
	struct external *e = handle_get(EXTERNAL_SEMAPHORE, handle);

	if (!e)
		return INVALID_HANDLE;
	external_free(e);
	return sim.dead;
}

/* step signals a semaphore, or tells whether it is signaled. */
static bool step(struct item *i, const struct semaphore_op *op)
{
	struct external *e = handle_find(EXTERNAL_SEMAPHORE, op->semaphore);

	if (!e) {
		violation("an external semaphore is destroyed before work that uses it is over");
		return true;
	}
	if (i->work == SIGNAL) {
		if (e->timeline && *e->value > op->params.value)
			violation("a timeline semaphore is set back from %llu", (unsigned long long)*e->value);
		*e->value = e->timeline ? op->params.value : 1;
		return true;
	}
	if (*e->value < (e->timeline ? op->params.value : 1))
		return false;
	if (!e->timeline)
		*e->value = 0;
	return true;
}

bool semaphores_run(struct item *i)
{
	for (; i->at < i->n; i->at++)
		if (!step(i, &i->semaphores[i->at])) {
			i->until = now_ns() + 50000;
			return false;
		}
	return true;
}

static CUresult make_semaphores(enum work work, const CUexternalSemaphore *list, const struct semaphore_params *params, unsigned n, struct item **item)
{
	struct item *i;

	if (!n || !list || !params)
		return INVALID_VALUE;
	for (unsigned k = 0; k < n; k++)
		if (!handle_get(EXTERNAL_SEMAPHORE, list[k]))
			return INVALID_HANDLE;
		else if (params[k].flags || !zero(params[k].reserved))
			return INVALID_VALUE;
	i = *item = item_new(work);
	i->n = n;
	i->semaphores = malloc(n * sizeof *i->semaphores);
	for (unsigned k = 0; k < n; k++)
		i->semaphores[k] = (struct semaphore_op){list[k], params[k]};
	return OK;
}

CUresult make_signals(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p, struct item **i)
{
	return p ? make_semaphores(SIGNAL, p->list, p->params, p->n, i) : INVALID_VALUE;
}

CUresult make_awaits(const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p, struct item **i)
{
	return p ? make_semaphores(AWAIT, p->list, p->params, p->n, i) : INVALID_VALUE;
}

/* semaphores puts operations on a stream. That each takes room of its own is assumed: no GPU was asked. */
static CUresult semaphores(enum work work, const CUexternalSemaphore *list, const struct semaphore_params *params, unsigned n, CUstream stream)
{
	struct stream *s;
	struct item *i;
	CUresult r = stream_get(stream, &s);

	if (!r)
		r = make_semaphores(work, list, params, n, &i);
	if (r || s->capture || n == 1)
		return r ? r : enqueue(s, i);
	item_free(i);
	for (unsigned k = 0; k < n && !r; k++) {
		r = make_semaphores(work, list + k, params + k, 1, &i);
		r = r ? r : enqueue(s, i);
	}
	return r;
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned n, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return semaphores(SIGNAL, list, (const struct semaphore_params *)params, n, stream);
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned n, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return semaphores(AWAIT, list, (const struct semaphore_params *)params, n, stream);
}
