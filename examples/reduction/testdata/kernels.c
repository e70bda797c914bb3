#include "simkernel.h"

/* The kernels of kernels.cu for the simulated driver. */

static float add(float a, float b) { return a + b; }
static float max(float a, float b) { return a > b ? a : b; }

/* reduce has each block combine every value that is its own: block 0 those of its threads, then block 1, and so on. */
static void reduce(const struct simGrid *g, void **args, int fromZero, float combine(float, float))
{
	const float *in = *(const float **)args[0];
	long long n = *(long long *)args[1], threads = g->block[0];
	float *out = *(float **)args[2];

	for (unsigned block = 0; block < g->grid[0]; block++) {
		float v = fromZero ? 0 : in[0];

		for (long long first = block * threads; first < n; first += g->grid[0] * threads)
			for (long long i = first; i < n && i < first + threads; i++)
				v = combine(v, in[i]);
		out[block] = v;
	}
}

void sum(const struct simGrid *g, void **args)
{
	reduce(g, args, 1, add);
}

void maximum(const struct simGrid *g, void **args)
{
	reduce(g, args, 0, max);
}
