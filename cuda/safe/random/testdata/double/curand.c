// The double of cuRAND: the functions that package random calls, as work of the simulated
// driver's streams. Its numbers are not cuRAND's. It keeps cuRAND's rules: which lengths and
// addresses it takes, that one goroutine at a time calls with a generator, that the state is
// device memory which work changes in order, and that Poisson cannot be captured.

#include "curand/ztypes.h"
#include "curand/zprotos.h"
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 101, ALLOCATION_FAILED = 102, TYPE_ERROR = 103, OUT_OF_RANGE = 104, LENGTH_NOT_MULTIPLE = 105, LAUNCH_FAILURE = 201, INTERNAL_ERROR = 999 };

// A generator of this seed finds no memory for its state, twice.
enum { NO_ROOM_TWICE = 4003 };
static atomic_int refused;

enum { MTGP32 = 141, PHILOX = 161, SOBOL32 = 201, SOBOL64 = 203 };

struct z_curandGenerator_t {
	unsigned kind, dimensions;
	uint64_t seed, offset;
	void *stream;
	int setup;           // the next generation sets up the state
	atomic_int busy;     // calls must not coincide
	atomic_int running;  // nor work
	uint64_t place;      // the state in device memory: work alone uses it. Of Philox it counts groups of 4 numbers
	unsigned within;     // of Philox: the place in a group, which the host counts
	uint64_t next; // of a quasi-random kind, whose work gets its place when it is enqueued
};

static void *driver_function(const char *name)
{
	void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
	return driver ? dlsym(driver, name) : NULL;
}

static int has_context(void)
{
	unsigned (*get)(void **) = driver_function("cuCtxGetCurrent");
	void *current = NULL;
	return get && !get(&current) && current;
}

// note appends a line to the log.
static void note(const char *op, const void *generator, const void *stream, const void *out, size_t n)
{
	char line[200];
	int length = snprintf(line, sizeof line, "%s %p %p %p %zu\n", op, generator, stream, out, n);
	FILE *f = fopen(LOG, "a");
	if (!f)
		return;
	fwrite(line, 1, length, f);
	fclose(f);
}

static unsigned enter(curandGenerator_t g)
{
	if (!g || !has_context())
		return NOT_INITIALIZED;
	if (atomic_exchange(&g->busy, 1))
		return INTERNAL_ERROR;
	usleep(20);
	return SUCCESS;
}

static unsigned leave(curandGenerator_t g, unsigned status)
{
	atomic_store(&g->busy, 0);
	return status;
}

static int quasi(curandGenerator_t g) { return g->kind >= SOBOL32; }

curandStatus_t curandGetVersion(int *version)
{
	*version = 10400;
	return SUCCESS;
}

curandStatus_t curandGetProperty(libraryPropertyType type, int *value)
{
	*value = type == 0 ? 10 : type == 1 ? 4 : 0;
	return SUCCESS;
}

curandStatus_t curandCreateGenerator(curandGenerator_t *g, curandRngType_t kind)
{
	if (!has_context())
		return NOT_INITIALIZED;
	*g = calloc(1, sizeof **g);
	(*g)->kind = kind;
	(*g)->dimensions = (*g)->setup = 1;
	note("create", *g, NULL, NULL, kind);
	return SUCCESS;
}

curandStatus_t curandDestroyGenerator(curandGenerator_t g)
{
	if (!g || !has_context())
		return NOT_INITIALIZED;
	unsigned (*synchronize)(void) = driver_function("cuCtxSynchronize");
	if (synchronize)
		synchronize();
	unsigned (*query)(void *) = driver_function("cuStreamQuery"); // it may use the generator's stream, which must be open
	if (query && g->stream)
		query(g->stream);
	note("destroy", g, g->stream, NULL, 0);
	free(g);
	return SUCCESS;
}

curandStatus_t curandSetStream(curandGenerator_t g, cudaStream_t stream)
{
	unsigned status = enter(g);
	if (status)
		return status;
	g->stream = stream;
	return leave(g, SUCCESS);
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t g, unsigned long long seed)
{
	unsigned status = enter(g);
	if (status)
		return status;
	if (quasi(g))
		return leave(g, TYPE_ERROR);
	g->seed = seed;
	g->setup = 1;
	return leave(g, SUCCESS);
}

curandStatus_t curandSetGeneratorOffset(curandGenerator_t g, unsigned long long offset)
{
	unsigned status = enter(g);
	if (status)
		return status;
	if (g->kind == MTGP32)
		return leave(g, TYPE_ERROR);
	g->offset = offset;
	g->setup = 1;
	return leave(g, SUCCESS);
}

curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t g, unsigned dimensions)
{
	unsigned status = enter(g);
	if (status)
		return status;
	if (!quasi(g) || dimensions < 1 || dimensions > 20000)
		return leave(g, quasi(g) ? OUT_OF_RANGE : TYPE_ERROR);
	g->dimensions = dimensions;
	return leave(g, SUCCESS);
}

// A job is work of a stream: it sets up the state, or takes n numbers.
struct job {
	curandGenerator_t g;
	uint64_t offset;
	unsigned within;
	int setup;
	char what; // b, l, u, U, n, N, g, G, p: as the functions below
	void *out;
	size_t n;
	double a, b;
};

static uint64_t hash(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

// bits is number i of the sequence.
static uint64_t bits(curandGenerator_t g, uint64_t i)
{
	return hash(hash(g->seed + 0x9e3779b97f4a7c15u * g->kind) + 0x9e3779b97f4a7c15u * (i + 1));
}

static double uniform(curandGenerator_t g, uint64_t i) { return ((bits(g, i) >> 40) + 1) / 16777216.0; }

// normal makes a pair of i and its neighbour.
static double normal(curandGenerator_t g, uint64_t i)
{
	double r = sqrt(-2 * log(uniform(g, i & ~1ull))), t = 6.283185307179586 * uniform(g, i | 1);
	return i & 1 ? r * cos(t) : r * sin(t);
}

static double poisson(double lambda, double u)
{
	double p = exp(-lambda), sum = p, k = 0;
	while (u > sum && k < 1000)
		sum += p *= lambda / ++k;
	return k;
}

static void value(const struct job *j, size_t at, uint64_t i)
{
	curandGenerator_t g = j->g;
	switch (j->what) {
	case 'b': ((uint32_t *)j->out)[at] = bits(g, i) >> 32; return;
	case 'l': ((uint64_t *)j->out)[at] = bits(g, i); return;
	case 'u': ((float *)j->out)[at] = uniform(g, i); return;
	case 'U': ((double *)j->out)[at] = uniform(g, i); return;
	case 'n': ((float *)j->out)[at] = j->a + j->b * normal(g, i); return;
	case 'N': ((double *)j->out)[at] = j->a + j->b * normal(g, i); return;
	case 'g': ((float *)j->out)[at] = exp(j->a + j->b * normal(g, i)); return;
	case 'G': ((double *)j->out)[at] = exp(j->a + j->b * normal(g, i)); return;
	case 'p': ((uint32_t *)j->out)[at] = poisson(j->a, uniform(g, i)); return;
	}
}

static void run(void *p)
{
	const struct job *j = p;
	curandGenerator_t g = j->g;
	if (atomic_exchange(&g->running, 1)) {
		note("race", g, NULL, j->out, j->n);
		return;
	}
	unsigned group = g->kind == PHILOX ? 4 : 1;
	if (j->setup)
		g->place = j->offset / group;
	size_t points = j->n / g->dimensions;
	uint64_t begin = g->place * group + j->within;
	for (size_t at = 0; at < j->n; at++)
		value(j, at, begin + at % points + ((uint64_t)(at / points) << 40));
	g->place = (begin + points) / group;
	usleep(50);
	atomic_store(&g->running, 0);
}

// enqueue makes a job work of the generator's stream. One that is part of a graph is never freed.
static unsigned enqueue(curandGenerator_t g, char what, void *out, size_t n, double a, double b)
{
	unsigned (*launch)(void *, void (*)(void *), void *) = driver_function("cuLaunchHostFunc");
	struct job *j = malloc(sizeof *j);
	if (!launch || !j)
		return INTERNAL_ERROR;
	if (g->setup)
		g->within = g->kind == PHILOX ? g->offset % 4 : 0;
	*j = (struct job){g, g->offset, g->within, g->setup, what, out, n, a, b};
	if (g->kind == PHILOX)
		g->within = (g->within + n) % 4;
	if (quasi(g)) {
		if (g->setup)
			g->next = g->offset;
		j->offset = g->next;
		j->setup = 1;
		g->next += n / g->dimensions;
	}
	g->setup = 0;
	return launch(g->stream, run, j) ? LAUNCH_FAILURE : SUCCESS;
}

static unsigned generate(curandGenerator_t g, char what, void *out, size_t n, double a, double b)
{
	unsigned status = enter(g);
	if (status)
		return status;
	if (what == 'b' && g->kind >= SOBOL64)
		return leave(g, TYPE_ERROR);
	if (what == 'l' && g->kind < SOBOL64)
		return leave(g, TYPE_ERROR);
	if (n % g->dimensions || (strchr("nNgG", what) && !quasi(g) && n % 2))
		return leave(g, LENGTH_NOT_MULTIPLE);
	if ((uintptr_t)out % 16)
		return leave(g, LAUNCH_FAILURE); // cuRAND's work would fail
	char op[] = {what, 0};
	note(op, g, g->stream, out, n);
	return leave(g, enqueue(g, what, out, n, a, b));
}

curandStatus_t curandGenerateSeeds(curandGenerator_t g)
{
	unsigned status = enter(g);
	if (!status && g->seed == NO_ROOM_TWICE && refused++ < 2)
		status = leave(g, ALLOCATION_FAILED);
	return status ? status : leave(g, enqueue(g, 0, NULL, 0, 0, 0));
}

curandStatus_t curandGenerate(curandGenerator_t g, unsigned *out, size_t n) { return generate(g, 'b', out, n, 0, 0); }
curandStatus_t curandGenerateLongLong(curandGenerator_t g, unsigned long long *out, size_t n) { return generate(g, 'l', out, n, 0, 0); }
curandStatus_t curandGenerateUniform(curandGenerator_t g, float *out, size_t n) { return generate(g, 'u', out, n, 0, 0); }
curandStatus_t curandGenerateUniformDouble(curandGenerator_t g, double *out, size_t n) { return generate(g, 'U', out, n, 0, 0); }
curandStatus_t curandGenerateNormal(curandGenerator_t g, float *out, size_t n, float a, float b) { return generate(g, 'n', out, n, a, b); }
curandStatus_t curandGenerateNormalDouble(curandGenerator_t g, double *out, size_t n, double a, double b) { return generate(g, 'N', out, n, a, b); }
curandStatus_t curandGenerateLogNormal(curandGenerator_t g, float *out, size_t n, float a, float b) { return generate(g, 'g', out, n, a, b); }
curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t g, double *out, size_t n, double a, double b) { return generate(g, 'G', out, n, a, b); }

curandStatus_t curandGeneratePoisson(curandGenerator_t g, unsigned *out, size_t n, double lambda)
{
	return lambda > 0 && lambda <= 400000 ? generate(g, 'p', out, n, lambda, 0) : OUT_OF_RANGE;
}
