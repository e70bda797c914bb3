/* Kernels in C for the simulated driver. A kernel is a function by the name of the one that it stands for:
 *
 *	void add(const struct simGrid *g, void **args)
 *
 * args[k] points to the value of parameter k. It is called once a launch, for all threads, and may not call CUDA.
 */
#pragma once

#include <stddef.h>

/* The size of a launch, in x, y and z. Without clusters, a cluster is of one block. */
struct simGrid {
	unsigned grid[3], block[3], cluster[3];
	unsigned shared; /* bytes of dynamic shared memory of each block */
	void (*condition)(unsigned long long handle, unsigned value); /* sets a condition of the graph */
	void *(*variable)(const char *name, size_t *size); /* of the kernel's module, 0 and a failed launch without one */
};

/* How many threads a launch has in all. */
static inline unsigned long long simThreads(const struct simGrid *g)
{
	return (unsigned long long)g->grid[0] * g->grid[1] * g->grid[2] * g->block[0] * g->block[1] * g->block[2];
}
