#include "sim.h"

CUresult function_get(CUfunction handle, struct function **f)
{
	*f = handle_find(KERNEL, handle); /* stands for a function, too */
	if (!*f)
		*f = handle_get(FUNCTION, handle);
	return *f ? owner((*f)->module->context) : INVALID_HANDLE;
}

enum { OPTIN = 232448 };

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	if (r)
		return r;
	if (!value || attribute >= SETTABLE)
		return INVALID_VALUE;
	*value = attribute == MAX_THREADS ? f->max_threads : attribute == PTX_VERSION ? 70 : attribute == BINARY_VERSION ? 90 : f->attributes[attribute];
	return OK;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	if (r)
		return r;
	if (attribute < MAX_DYNAMIC || attribute >= SETTABLE || (attribute == MAX_DYNAMIC && (value < 0 || value > OPTIN)))
		return INVALID_VALUE;
	f->attributes[attribute] = value;
	return OK;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	return r ? r : config > 3 ? INVALID_VALUE : OK;
}

/* params_of tells a function's parameters: those of the image, or else those of the kernel. It is -1 where neither tells. */
static int params_of(const struct function *f, const struct kernel *k, const struct param **params)
{
	*params = f->untold && k ? k->params : f->params;
	return !f->untold ? f->nparams : k ? k->nparams : -1;
}

CUresult cuFuncGetParamCount(CUfunction handle, size_t *n)
{
	ENTER(0);
	struct function *f;
	const struct param *params;
	CUresult r = function_get(handle, &f);
	int count;

	if (r || !n)
		return r ? r : INVALID_VALUE;
	if ((count = params_of(f, kernel_of(f), &params)) < 0)
		return NOT_SUPPORTED; /* the image does not tell */
	*n = count;
	return OK;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t n, size_t *offset, size_t *size)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	const struct param *params;
	int count;

	if (r)
		return r;
	count = params_of(f, kernel_of(f), &params);
	if (count < 0)
		return NOT_SUPPORTED; /* the image does not tell */
	if (!offset || n >= (size_t)count)
		return INVALID_VALUE;
	*offset = params[n].offset;
	if (size)
		*size = params[n].size;
	return OK;
}

enum { COOPERATIVE = 2 }; /* an attribute of a launch */

enum { THREADS = 2048, BLOCKS = 32, SHARED = 233472, RESERVED = 1024 }; /* of a multiprocessor; of each block */

int blocks_at_once(struct function *f, int threads, size_t shared)
{
	int blocks = threads > 0 && threads <= f->max_threads ? THREADS / threads : 0;
	int room = SHARED / (shared + RESERVED);

	if (blocks > room)
		blocks = room;
	return blocks > BLOCKS ? BLOCKS : blocks;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads, size_t shared)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	if (r)
		return r;
	if (!blocks || threads <= 0 || shared > OPTIN)
		return INVALID_VALUE;
	*blocks = blocks_at_once(f, threads, shared);
	return OK;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction handle, CUoccupancyB2DSize sizes, size_t shared, int limit)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	(void)sizes;
	if (r)
		return r;
	if (!grid || !threads || limit < 0 || shared > OPTIN)
		return INVALID_VALUE;
	if (!limit || limit > f->max_threads)
		limit = f->max_threads;
	*threads = *grid = 0;
	for (int size = limit, best = 0; size > 0; size = (size - 1) / 32 * 32) { /* then whole warps */
		int blocks = blocks_at_once(f, size, shared);

		if (blocks * size <= best)
			continue;
		best = blocks * size;
		*threads = size;
		*grid = MULTIPROCESSORS * blocks;
	}
	return OK;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *size, CUfunction handle, int blocks, int threads)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	if (r)
		return r;
	if (!size || blocks <= 0 || threads <= 0 || blocks > blocks_at_once(f, threads, 0))
		return INVALID_VALUE;
	*size = (SHARED / blocks - RESERVED) / 128 * 128;
	if (*size > OPTIN)
		*size = OPTIN;
	return OK;
}

static CUresult clusters(CUfunction handle, const CUlaunchConfig *c, struct function **f)
{
	CUresult r = function_get(handle, f);

	if (r)
		return r;
	return c && c->block[0] && c->block[1] && c->block[2] ? OK : INVALID_VALUE;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *c)
{
	ENTER(0);
	struct function *f;
	CUresult r = clusters(handle, c, &f);

	if (r)
		return r;
	if (!size)
		return INVALID_VALUE;
	*size = 8;
	return OK;
}

CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction handle, const CUlaunchConfig *c)
{
	ENTER(0);
	struct function *f;
	int threads, blocks = 0;
	CUresult r = clusters(handle, c, &f);

	if (r)
		return r;
	for (unsigned i = 0; i < c->n; i++)
		if (c->attributes[i].id == CLUSTER)
			blocks = c->attributes[i].value.dim[0] * c->attributes[i].value.dim[1] * c->attributes[i].value.dim[2];
	if (!n || blocks < 1 || blocks > 8)
		return INVALID_VALUE;
	threads = c->block[0] * c->block[1] * c->block[2];
	*n = MULTIPROCESSORS * blocks_at_once(f, threads, c->shared) / blocks;
	return OK;
}

/* The parameters are copied: pointers first, then what they point to. */
static void pack(struct item *i, void **from, const struct param *params, int n)
{
	size_t head = n * sizeof(void *);
	const struct param *last = n ? &params[n - 1] : 0;
	char *data;

	i->nparams = n;
	i->packed = head + (last ? last->offset + last->size : 0);
	i->params = calloc(1, i->packed + 1);
	data = (char *)i->params + head;
	for (int k = 0; k < n; k++) {
		i->params[k] = data + params[k].offset;
		memcpy(i->params[k], from[k], params[k].size);
	}
}

void **params_copy(const struct item *i)
{
	void **params;

	if (i->work != RUN)
		return 0;
	params = memcpy(malloc(i->packed + 1), i->params, i->packed);
	for (int k = 0; k < i->nparams; k++)
		params[k] = (char *)params + ((char *)i->params[k] - (char *)i->params);
	return params;
}

bool kernel_loaded(const struct item *i)
{
	return handle_find(FUNCTION, i->called) || handle_find(KERNEL, i->called);
}

static CUresult check(struct function *f, const CUlaunchConfig *c, bool cooperative)
{
	size_t threads = (size_t)c->block[0] * c->block[1] * c->block[2], blocks = (size_t)c->grid[0] * c->grid[1] * c->grid[2];

	for (int i = 0; i < 3; i++)
		if (!c->grid[i] || !c->block[i] || c->grid[i] > (i ? 65535u : 2147483647u) || c->block[i] > (i == 2 ? 64u : 1024u))
			return INVALID_VALUE;
	if (threads > 1024)
		return INVALID_VALUE;
	if (threads > (size_t)f->max_threads)
		return OUT_OF_RESOURCES;
	if (c->shared > (unsigned)f->attributes[MAX_DYNAMIC])
		return INVALID_VALUE;
	if (cooperative && blocks > MULTIPROCESSORS * (size_t)blocks_at_once(f, threads, c->shared))
		return COOPERATIVE_TOO_LARGE;
	return OK;
}

CUresult kernel_item(const CUlaunchConfig *c, CUfunction handle, void **params, void **extra, struct item **item)
{
	struct function *f;
	struct item *i;
	const struct kernel *k;
	const struct param *known;
	int nparams;
	bool cooperative = false;
	CUresult r = function_get(handle, &f);

	if (r)
		return r;
	for (unsigned n = 0; n < c->n; n++) {
		unsigned *cluster = c->attributes[n].value.dim;

		if (c->attributes[n].id == COOPERATIVE)
			cooperative = c->attributes[n].value.on;
		if (c->attributes[n].id == CLUSTER && (!cluster[0] || !cluster[1] || !cluster[2] || c->grid[0] % cluster[0] || c->grid[1] % cluster[1] || c->grid[2] % cluster[2]))
			return INVALID_VALUE;
	}
	if (extra)
		return NOT_SUPPORTED; /* here */
	k = kernel_of(f);
	if (!kernel_fits(k, f))
		return NOT_SUPPORTED;
	nparams = params_of(f, k, &known);
	if ((nparams && !params) || (r = check(f, c, cooperative)))
		return r ? r : INVALID_VALUE;
	*item = i = item_new(RUN);
	i->kernel = k;
	i->function = f;
	i->called = handle;
	i->context = f->module->context;
	memcpy(i->grid, c->grid, sizeof i->grid);
	memcpy(i->threads, c->block, sizeof i->threads);
	i->shared = c->shared;
	i->nattributes = c->n;
	i->attributes = calloc(c->n + 1, sizeof *i->attributes);
	for (unsigned n = 0; n < c->n; n++) {
		i->attributes[n].id = c->attributes[n].id;
		memcpy(&i->attributes[n].value, &c->attributes[n].value, sizeof i->attributes[n].value);
	}
	pack(i, params, known, nparams);
	return OK;
}

/* prepare makes room on the device for what the threads of a kernel have in local memory. */
static CUresult prepare(CUfunction handle)
{
	struct function *f;
	CUresult r = function_get(handle, &f);

	return !r && f->attributes[LOCAL_SIZE] ? unsafe_call() : r;
}

static CUresult launch(const CUlaunchConfig *c, CUfunction handle, void **params, void **extra)
{
	struct stream *s;
	struct item *i;
	CUresult r = stream_get(c->stream, &s);

	if (r || (r = prepare(handle)))
		return r;
	if ((r = kernel_item(c, handle, params, extra, &i))) {
		if (r == INVALID_VALUE && s->capture)
			capture_lose(s->capture); /* a configuration that CUDA refuses ends the capture */
		return r;
	}
	if (i->context != s->context) {
		item_free(i);
		return INVALID_HANDLE;
	}
	return enqueue(s, i);
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, CUstream stream, void **params, void **extra)
{
	ENTER(0, .does = WORKS, .stream = stream);
	CUlaunchConfig c = {{gx, gy, gz}, {bx, by, bz}, shared, stream, 0, 0};

	return launch(&c, f, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	ENTER(0, .does = WORKS, .stream = config ? config->stream : 0);
	return config ? launch(config, f, params, extra) : INVALID_VALUE;
}
