//go:build cgo && linux

#include <stddef.h>

#include "loops.h"

typedef int launch(uintptr_t function, unsigned gx, unsigned gy, unsigned gz,
	unsigned bx, unsigned by, unsigned bz, unsigned shared, uintptr_t stream,
	void **params, void **extra);
typedef int fill(unsigned long long address, unsigned value, size_t count, uintptr_t stream);
typedef int copy_async(uintptr_t dst, unsigned long long src, size_t size, uintptr_t stream);
typedef int one(uintptr_t);
typedef int graph_launch(uintptr_t exec, uintptr_t stream);
typedef int transform(int plan, unsigned long long in, unsigned long long out, int direction);
typedef int capturing(uintptr_t stream, int *status);
typedef int exchange(int *mode);

enum { ARRAYS = 7, FACTORS = 5, FORWARD = -1 };

/* The arguments of the loop, in their order. */
struct step {
	launch *launch;
	fill *fill;
	copy_async *copy;
	one *synchronize;
	transform *transform; /* 0 without cuFFT */
	uintptr_t stream, plan, edge, spectrum, host;
	uintptr_t kernels[7]; /* of 5, 6, 7, 8, 11, 12 and 14 arguments */
	uintptr_t arrays[ARRAYS];
};

/* elementwise launches a kernel with so many arrays, factors, and the edges of the grid. */
static int elementwise(const struct step *s, int kernel, int arrays, int factors)
{
	unsigned long long address[ARRAYS];
	float factor[FACTORS];
	unsigned edge = s->edge;
	void *params[ARRAYS + FACTORS + 2];
	int n = 0;

	for (int i = 0; i < arrays; i++) {
		address[i] = s->arrays[i];
		params[n++] = &address[i];
	}
	for (int i = 0; i < factors; i++) {
		factor[i] = 0.5f;
		params[n++] = &factor[i];
	}
	params[n++] = &edge;
	params[n++] = &edge;
	return s->launch(s->kernels[kernel], edge / 32, edge / 8, 1, 32, 8, 1, 0, s->stream, params, 0);
}

static int forward(const struct step *s, int array)
{
	return s->transform ? s->transform(s->plan, s->arrays[array], s->spectrum, FORWARD) : 0;
}

/* step enqueues 2 fills, 12 kernels, 3 transforms and a copy back, and waits: in the order of inOrder in tools/bench/step.go. */
static int step(const struct step *s)
{
	int bad = s->fill(s->arrays[0], 0, s->edge * s->edge, s->stream) | s->fill(s->arrays[6], 0, 1, s->stream);

	for (int i = 0; i < 3; i++)
		bad |= elementwise(s, 4, 6, 3) | forward(s, i);
	bad |= elementwise(s, 2, 4, 1) | elementwise(s, 0, 3, 0);
	for (int i = 0; i < 3; i++)
		bad |= elementwise(s, 3, 4, 2);
	bad |= elementwise(s, 6, 7, 5) | elementwise(s, 5, 6, 4) | elementwise(s, 1, 3, 1) | elementwise(s, 0, 3, 0);
	return bad | s->copy(s->host, s->arrays[6], 4, s->stream) | s->synchronize(s->stream);
}

int loop_step(const uintptr_t *a, long n)
{
	REPEAT(n, step((const struct step *)a));
}

int loop_transform(const uintptr_t *a, long n)
{
	transform *fn = (transform *)a[0];
	int plan = a[1], direction = a[4];
	uintptr_t in = a[2], out = a[3];

	REPEAT(n, fn(plan, in, out, direction));
}

enum { SETS = 1, ASKS = 2, RELAXES = 4, GRAPH = 8 };

/* launch_parts makes a launch of a kernel without arguments, or of a graph, and some of what package safe does around it. */
static int launch_parts(const uintptr_t *a)
{
	int status, mode = 2, bad = 0, parts = a[7];
	uintptr_t before;

	if (parts & SETS)
		bad |= ((one *)a[1])((uintptr_t)&before) | ((one *)a[2])(a[8]);
	if (parts & RELAXES)
		bad |= ((exchange *)a[3])(&mode);
	if (parts & ASKS)
		bad |= ((capturing *)a[4])(a[6], &status);
	if (parts & GRAPH)
		bad |= ((graph_launch *)a[0])(a[5], a[6]);
	else
		bad |= ((launch *)a[0])(a[5], 1, 1, 1, 1, 1, 1, 0, a[6], 0, 0);
	if (parts & RELAXES)
		bad |= ((exchange *)a[3])(&mode);
	if (parts & SETS)
		bad |= ((one *)a[2])(before);
	return bad;
}

int loop_launch_parts(const uintptr_t *a, long n)
{
	REPEAT(n, launch_parts(a));
}
