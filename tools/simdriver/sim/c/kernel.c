#include "sim.h"

/*
 * The kernels that are built in are those of the test data, by their names: what
 * their PTX does is done here in C.
 */

static uint32_t u32(struct item *i, int n) { return *(uint32_t *)i->params[n]; }
static uint64_t u64(struct item *i, int n) { return *(uint64_t *)i->params[n]; }
static float f32(struct item *i, int n) { return *(float *)i->params[n]; }

static bool reaches(const struct context *c, const struct block *b)
{
	if (b->access)
		return b->access & 1u << c->device;
	return b->place == HOST_MEMORY || b->place == MANAGED_MEMORY || b->managed || c->peers & 1u << b->device;
}

/* at returns memory that a kernel uses: of its own device, or of one that it may reach. */
static void *at(struct item *i, CUdeviceptr address, size_t size)
{
	struct block *b = block_at(address);

	if (virtual_known(address) && !virtual_usable(address, size, i->context->device)) {
		violation("%s uses virtual memory that is not mapped, or not accessible to device %d", i->kernel->name, i->context->device);
		sim.faulted = ILLEGAL_ADDRESS;
		return 0;
	}
	if (b && !reaches(i->context, b)) {
		sim.faulted = ILLEGAL_ADDRESS;
		return 0;
	}
	return reachable(address, size, i->kernel->name);
}

size_t kernel_rest(struct item *i, CUdeviceptr address)
{
	struct block *b = block_at(address);
	CUdeviceptr from;
	size_t size, rest = 0;

	if (!at(i, address, b ? 0 : 1))
		return SIZE_MAX;
	if (virtual_known(address)) {
		while (virtual_part(address + rest, &from, &size) && virtual_usable(address + rest, 1, i->context->device))
			rest += from + size - (address + rest);
		return rest;
	}
	if (b)
		return b->address + b->size - address;
	return registered(address, &from, &size) ? from + size - address : 0;
}

/* threads is how many of n values there are threads for, one each. */
static size_t threads(struct item *i, size_t n)
{
	size_t all = (size_t)i->grid[0] * i->threads[0];

	return n < all ? n : all;
}

static float *floats(struct item *i, CUdeviceptr address, size_t n)
{
	return n ? at(i, address, n * sizeof(float)) : 0;
}

static bool nothing(struct item *i)
{
	(void)i;
	return true;
}

static bool fill(struct item *i)
{
	size_t n = threads(i, u32(i, 0));
	float *y = floats(i, u64(i, 2), n);

	for (size_t k = 0; y && k < n; k++)
		y[k] = f32(i, 1);
	return true;
}

static bool saxpy(struct item *i)
{
	size_t n = threads(i, u32(i, 0));
	float *x = floats(i, u64(i, 2), n), *y = floats(i, u64(i, 3), n);

	for (size_t k = 0; x && y && k < n; k++)
		y[k] = f32(i, 1) * x[k] + y[k];
	return true;
}

static bool add(struct item *i)
{
	size_t n = threads(i, u32(i, 3));
	float *a = floats(i, u64(i, 0), n), *b = floats(i, u64(i, 1), n), *c = floats(i, u64(i, 2), n);

	for (size_t k = 0; a && b && c && k < n; k++)
		c[k] = a[k] + b[k];
	return true;
}

static bool copy(struct item *i)
{
	size_t n = threads(i, u32(i, 2));
	float *dst = floats(i, u64(i, 0), n), *src = floats(i, u64(i, 1), n);

	if (dst && src)
		memmove(dst, src, n * sizeof *dst);
	return true;
}

static bool sum(struct item *i)
{
	size_t n = u32(i, 2);
	float *out = floats(i, u64(i, 0), 1), *in = floats(i, u64(i, 1), n), total = 0;

	for (size_t k = 0; in && k < n; k++)
		total += in[k];
	if (out)
		*out = total;
	return true;
}

static bool scale(struct item *i)
{
	size_t n = threads(i, u32(i, 0));
	float *y = floats(i, u64(i, 1), n), *table = floats(i, i->function->module->globals[0].block->address, 4);

	for (size_t k = 0; y && table && k < n; k++)
		y[k] *= table[k % 4];
	return true;
}

/* jacobi is a step from x to y of solving linear equations, a times x is b. */
static bool jacobi(struct item *i)
{
	size_t n = u32(i, 4), rows = threads(i, n);
	float *y = floats(i, u64(i, 0), rows), *x = floats(i, u64(i, 1), n), *a = floats(i, u64(i, 2), rows * n), *b = floats(i, u64(i, 3), rows);

	for (size_t k = 0; y && x && a && b && k < rows; k++) {
		float rest = b[k];

		for (size_t j = 0; j < n; j++)
			rest -= a[k * n + j] * x[j];
		y[k] = x[k] + rest / a[k * n + k];
	}
	return true;
}

static bool distance(struct item *i)
{
	size_t n = u32(i, 3);
	float *out = floats(i, u64(i, 0), 1), *a = floats(i, u64(i, 1), n), *b = floats(i, u64(i, 2), n), total = 0;

	for (size_t k = 0; a && b && k < n; k++)
		total += a[k] < b[k] ? b[k] - a[k] : a[k] - b[k];
	if (out)
		*out = total;
	return true;
}

static bool spin(struct item *i)
{
	int64_t now = now_ns();

	if (!i->until)
		i->until = now + u64(i, 0);
	return now >= i->until;
}

static bool wait(struct item *i)
{
	volatile uint32_t *flag = at(i, u64(i, 0), sizeof *flag);

	i->until = now_ns() + 50000;
	return !flag || *flag;
}

static bool store(struct item *i)
{
	uint64_t *to = at(i, u64(i, 0), sizeof *to);

	if (to)
		*to = u64(i, 1);
	return true;
}

static bool point(struct item *i)
{
	struct { uint64_t a; double b; uint32_t c; } *p = i->params[0];
	double *out = at(i, u64(i, 1), 3 * sizeof *out);

	if (out) {
		out[0] = p->a;
		out[1] = p->b;
		out[2] = p->c;
	}
	return true;
}

static bool pair(struct item *i)
{
	struct { uint64_t a; double b; } *p = i->params[0];
	double *out = at(i, u64(i, 1), 2 * sizeof *out);

	if (out) {
		out[0] = p->a;
		out[1] = p->b;
	}
	return true;
}

static bool many(struct item *i)
{
	double *out = at(i, u64(i, 6), 6 * sizeof *out);

	if (out) {
		out[0] = *(uint8_t *)i->params[0];
		out[1] = *(int16_t *)i->params[1];
		out[2] = u32(i, 2);
		out[3] = (int64_t)u64(i, 3);
		out[4] = f32(i, 4);
		out[5] = *(double *)i->params[5];
	}
	return true;
}

static bool shared(struct item *i)
{
	uint32_t n = u32(i, 1), *out;

	n = n < i->threads[0] ? n : i->threads[0];
	if (n * sizeof *out > i->shared) {
		sim.faulted = ILLEGAL_ADDRESS;
		return true;
	}
	out = at(i, u64(i, 0), n * sizeof *out);
	for (uint32_t k = 0; out && k < n; k++)
		out[k] = k;
	return true;
}

/* condition goes on as long as there is something to count down. */
static bool condition(struct item *i)
{
	uint32_t *left = at(i, u64(i, 1), sizeof *left);

	if (left && !condition_set(u64(i, 0), *left > 0, i->context))
		sim.faulted = ILLEGAL_ADDRESS;
	if (left && *left)
		--*left;
	return true;
}

static bool choose(struct item *i)
{
	uint32_t *value = at(i, u64(i, 1), sizeof *value);

	if (value && !condition_set(u64(i, 0), *value, i->context))
		sim.faulted = ILLEGAL_ADDRESS;
	return true;
}

static bool trap(struct item *i)
{
	(void)i;
	sim.faulted = LAUNCH_FAILED;
	return true;
}

static bool sample(struct item *i)
{
	uint32_t width = u32(i, 2);
	size_t n = threads(i, (size_t)width * u32(i, 3));
	float *out = floats(i, u64(i, 0), n);

	for (size_t k = 0; out && k < n && !sim.faulted; k++)
		out[k] = texture_read(u64(i, 1), (k % width) * f32(i, 4) + f32(i, 5), (k / width) * f32(i, 4) + f32(i, 5));
	return true;
}

static bool lookup(struct item *i)
{
	size_t n = threads(i, u32(i, 2));
	float *out = floats(i, u64(i, 0), n);

	for (size_t k = 0; out && k < n && !sim.faulted; k++)
		out[k] = texture_read(u64(i, 1), k, 0);
	return true;
}

static bool draw(struct item *i)
{
	uint32_t width = u32(i, 1);
	size_t n = threads(i, (size_t)width * u32(i, 2));

	for (size_t k = 0; k < n && !sim.faulted; k++)
		surface_write(u64(i, 0), k % width, k / width, k);
	return true;
}

/* rows_of_words is what package safe fills memory by: rows of words, each of which a thread takes from the value. */
static bool rows_of_words(struct item *i)
{
	size_t word = i->kernel->name[strlen("cudabind_fill")] - '0';
	uint64_t to = u64(i, 0), pitch = u64(i, 1), rows = u64(i, 2), all = u64(i, 3);
	uint32_t step = u32(i, 4), words = u32(i, 5), columns = i->grid[0] * i->threads[0];
	char *value = i->params[6];

	for (uint64_t r = 0; r < rows; r++) {
		char *row = at(i, to + r * pitch, all * word);

		for (uint64_t k = 0; row && k < all; k++)
			if (k % step < columns)
				memcpy(row + k * word, value + k % step % words * word, word);
	}
	return true;
}

/* The sizes of the parameters are those of the test data: another kernel of that name is not this one. */
#define BUILTIN(name, run, ...) {name, run, (const unsigned short[]){__VA_ARGS__, 0}},
static const struct builtin {
	const char *name;
	bool (*run)(struct item *i);
	const unsigned short *sizes;
} builtins[] = {
	BUILTIN("nothing", nothing, 0)
	BUILTIN("limited", nothing, 0)
	BUILTIN("three", nothing, 8, 4, 4)
	BUILTIN("sixteen", nothing, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8)
	BUILTIN("step5", nothing, 8, 8, 8, 4, 4)
	BUILTIN("step6", nothing, 8, 8, 8, 4, 4, 4)
	BUILTIN("step7", nothing, 8, 8, 8, 8, 4, 4, 4)
	BUILTIN("step8", nothing, 8, 8, 8, 8, 4, 4, 4, 4)
	BUILTIN("step11", nothing, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4)
	BUILTIN("step12", nothing, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4)
	BUILTIN("step14", nothing, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4)
	BUILTIN("wide64", nothing, 64)
	BUILTIN("wide512", nothing, 512)
	BUILTIN("wide4064", nothing, 4064)
	BUILTIN("fill", fill, 4, 4, 8)
	BUILTIN("saxpy", saxpy, 4, 4, 8, 8)
	BUILTIN("add", add, 8, 8, 8, 4)
	BUILTIN("copy", copy, 8, 8, 4)
	BUILTIN("sum", sum, 8, 8, 4)
	BUILTIN("scale", scale, 4, 8)
	BUILTIN("spin", spin, 8)
	BUILTIN("wait", wait, 8)
	BUILTIN("store", store, 8, 8)
	BUILTIN("point", point, 24, 8)
	BUILTIN("pair", pair, 16, 8)
	BUILTIN("many", many, 1, 2, 4, 8, 4, 8, 8)
	BUILTIN("shared", shared, 8, 4)
	BUILTIN("trap", trap, 0)
	BUILTIN("cudabind_fill8_64", rows_of_words, 8, 8, 8, 8, 4, 4, 64)
	BUILTIN("cudabind_fill4_64", rows_of_words, 8, 8, 8, 8, 4, 4, 64)
	BUILTIN("cudabind_fill1_64", rows_of_words, 8, 8, 8, 8, 4, 4, 64)
	BUILTIN("cudabind_fill8_4000", rows_of_words, 8, 8, 8, 8, 4, 4, 4000)
	BUILTIN("cudabind_fill4_4000", rows_of_words, 8, 8, 8, 8, 4, 4, 4000)
	BUILTIN("cudabind_fill1_4000", rows_of_words, 8, 8, 8, 8, 4, 4, 4000)
	BUILTIN("condition", condition, 8, 8)
	BUILTIN("choose", choose, 8, 8)
	BUILTIN("jacobi", jacobi, 8, 8, 8, 8, 4)
	BUILTIN("distance", distance, 8, 8, 8, 4)
	BUILTIN("sample", sample, 8, 8, 4, 4, 4, 4)
	BUILTIN("lookup", lookup, 8, 8, 4)
	BUILTIN("draw", draw, 8, 4, 4)
};

#define BUILTINS (sizeof builtins / sizeof *builtins)

const struct kernel *builtin_find(const char *name)
{
	static struct kernel kernels[BUILTINS];

	for (size_t i = 0; i < BUILTINS; i++) {
		const struct builtin *b = &builtins[i];
		struct kernel *k = &kernels[i];

		if (strcmp(b->name, name))
			continue;
		if (!k->name)
			for (const unsigned short *size = b->sizes; *size; size++)
				param_add(k->params, &k->nparams, *size, *size > 8 ? 8 : *size);
		k->name = b->name;
		k->run = b->run;
		return k;
	}
	return 0;
}
