// A double of cuFFT: direct transforms as host functions in the order of the stream. Half of
// the sizes work in memory, and results are NaN if something else writes to it meanwhile.

#include "double.h"

enum { C_16F = 6, INVALID_PLAN = 1, ALLOC_FAILED = 2, FFT_INTERNAL_ERROR = 5, EXEC_FAILED = 6, INVALID_SIZE = 8, NO_WORKSPACE = 13 };

// Sizes of plans that fail.
enum { FAILS_TO_PLAN = 4001, NO_ROOM_TWICE = 4003, FAILS_TO_RUN = 4007, NOT_POSSIBLE = 4013 };

typedef struct {
	int64_t embed[3], stride, distance;
	int type;
} side;

struct plan {
	int64_t n[3], batch;
	side in, out;
	size_t size;
	void *stream;
	unsigned char *work;
	unsigned long long memory; // an object of the driver, so that tests find plans that are left
	atomic_int live, busy;
};

enum { MOST_PLANS = 10000 };

static struct plan plans[MOST_PLANS];
static atomic_int refused;
static atomic_uint created;

int cufftGetProperty(int kind, int *value) { *value = kind == 0 ? 12 : 0; return 0; }
int cufftGetVersion(int *value) { *value = 12000; return 0; }

int cufftCreate(int *handle)
{
	unsigned (*allocate)(unsigned long long *, size_t) = driver_function("cuMemAlloc_v2");
	for (int i = 0; i < MOST_PLANS; i++) { // the next handle without a plan, so that none comes back soon
		*handle = created++ % MOST_PLANS;
		struct plan *p = &plans[*handle];
		if (atomic_exchange(&p->live, 1))
			continue;
		p->size = 0;
		p->stream = p->work = NULL;
		if (has_context() && !allocate(&p->memory, 16))
			return 0;
		p->live = 0;
		return FFT_INTERNAL_ERROR;
	}
	return ALLOC_FAILED;
}

// whole waits for the context, as cuFFT may.
static void whole(void)
{
	unsigned (*wait)(void) = driver_function("cuCtxSynchronize");
	wait();
}

int cufftDestroy(int handle)
{
	unsigned (*release)(unsigned long long) = driver_function("cuMemFree_v2");
	if (!atomic_exchange(&plans[handle].live, 0))
		return INVALID_PLAN;
	whole();
	return release(plans[handle].memory) ? FFT_INTERNAL_ERROR : 0;
}

int cufftSetAutoAllocation(int handle, int automatic) { return plans[handle].live && !automatic ? 0 : INVALID_PLAN; }
int cufftSetStream(int handle, void *stream) { plans[handle].stream = stream; return plans[handle].live ? 0 : INVALID_PLAN; }
int cufftSetWorkArea(int handle, void *work) { plans[handle].work = work; return plans[handle].live ? 0 : INVALID_PLAN; }

static side a_side(int rank, const int64_t *embed, int64_t stride, int64_t distance, int type)
{
	side s = { { 1, 1, 1 }, stride, distance, type };
	for (int i = 0; i < rank; i++)
		s.embed[3 - rank + i] = embed[i];
	return s;
}

int cufftXtMakePlanMany(int handle, int rank, int64_t *n, int64_t *inembed, int64_t istride, int64_t idist, int itype,
	int64_t *onembed, int64_t ostride, int64_t odist, int otype, int64_t batch, size_t *size, int type)
{
	struct plan *p = &plans[handle];
	if (!p->live)
		return INVALID_PLAN;
	if (*n == FAILS_TO_PLAN || (itype != type && otype != type))
		return FFT_INTERNAL_ERROR;
	if (*n == NOT_POSSIBLE)
		return INVALID_SIZE;
	if (*n == NO_ROOM_TWICE && refused++ < 2)
		return ALLOC_FAILED;
	whole();
	p->n[0] = p->n[1] = p->n[2] = 1;
	for (int i = 0; i < rank; i++)
		p->n[3 - rank + i] = n[i];
	p->in = a_side(rank, inembed, istride, idist, itype);
	p->out = a_side(rank, onembed, ostride, odist, otype);
	p->batch = batch;
	*size = p->size = n[rank - 1] % 2 ? 1024 + n[rank - 1] * 64 : 0;
	return 0;
}

typedef struct {
	struct plan p;
	char *in, *out;
	int direction;
} job;

static int is_complex(int type) { return type == C_32F || type == C_64F || type == C_16F; }

static number get(int type, const void *p, int64_t i)
{
	return type == C_16F ? load(R_16F, p, 2 * i) + I * load(R_16F, p, 2 * i + 1) : load(type, p, i);
}

static void put(int type, void *p, int64_t i, number v)
{
	if (type != C_16F) {
		store(type, p, i, v);
		return;
	}
	store(R_16F, p, 2 * i, creal(v));
	store(R_16F, p, 2 * i + 1, cimag(v));
}

static int64_t at(const side *s, int64_t batch, int64_t z, int64_t y, int64_t x)
{
	return batch * s->distance + ((z * s->embed[1] + y) * s->embed[2] + x) * s->stride;
}

// turn is exp(2 pi i k/n), exactly where that is exact.
static number turn(int64_t k, int64_t n)
{
	static const double exact[] = { 1, 0, -1, 0 };
	if (4 * k % n)
		return cexp(2 * M_PI * I * (double)k / n);
	return exact[4 * k / n] + I * exact[(4 * k / n + 3) % 4];
}

// direct transforms v along each dimension.
static void direct(number *v, const int64_t *n, int sign)
{
	int64_t total = n[0] * n[1] * n[2], step = 1;
	for (int d = 2; d >= 0; d--) {
		number *row = malloc(n[d] * sizeof *row);
		for (int64_t i = 0; i < total; i++) {
			if (i / step % n[d])
				continue;
			for (int64_t k = 0; k < n[d]; k++) {
				row[k] = 0;
				for (int64_t j = 0; j < n[d]; j++)
					row[k] += v[i + j * step] * (sign > 0 ? turn(j * k % n[d], n[d]) : conj(turn(j * k % n[d], n[d])));
			}
			for (int64_t k = 0; k < n[d]; k++)
				v[i + k * step] = row[k];
		}
		free(row);
		step *= n[d];
	}
}

static void run(void *data)
{
	static atomic_int runs;
	const job *j = data;
	const struct plan *p = &j->p;
	const int64_t *n = p->n, total = n[0] * n[1] * n[2], half = n[2] / 2 + 1;
	int mark = ++runs % 255 + 1, from_half = is_complex(p->in.type) && !is_complex(p->out.type);
	number *v = malloc(total * p->batch * sizeof *v);
	if (p->size)
		memset(p->work, mark, p->size);
	for (int64_t i = 0; i < total * p->batch; i++) {
		int64_t x = i % n[2], y = i / n[2] % n[1], z = i / n[2] / n[1] % n[0], b = i / total;
		v[i] = from_half && x >= half ? conj(get(p->in.type, j->in, at(&p->in, b, (n[0] - z) % n[0], (n[1] - y) % n[1], n[2] - x)))
			: get(p->in.type, j->in, at(&p->in, b, z, y, x));
	}
	if (from_half && n[0] * n[1] > 1) // cuFFT overwrites it
		put(p->in.type, j->in, 0, NAN);
	for (int64_t b = 0; b < p->batch; b++)
		direct(v + b * total, n, j->direction);
	if (p->size)
		usleep(100);
	for (size_t i = 0; i < p->size; i++)
		if (p->work[i] != mark)
			v[0] = NAN;
	for (int64_t i = 0; i < total * p->batch; i++) {
		int64_t x = i % n[2], y = i / n[2] % n[1], z = i / n[2] / n[1] % n[0];
		if (is_complex(p->in.type) || x < half)
			put(p->out.type, j->out, at(&p->out, i / total, z, y, x), v[i]);
	}
	free(v);
}

int cufftXtExec(int handle, void *in, void *out, int direction)
{
	struct plan *p = &plans[handle];
	if (!p->live || !has_context())
		return INVALID_PLAN;
	if (p->size && !p->work)
		return NO_WORKSPACE;
	if (p->n[2] == FAILS_TO_RUN || atomic_exchange(&p->busy, 1)) // one call at a time
		return EXEC_FAILED;
	usleep(20);
	job j = { *p, in, out, direction };
	unsigned failed = enqueue(p->stream, run, &j, sizeof j);
	p->busy = 0;
	return failed ? EXEC_FAILED : 0;
}
