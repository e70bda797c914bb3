#include "simkernel.h"

/* v[k] = k, for n values */
void number(const struct simGrid *g, void **args)
{
	unsigned *v = *(unsigned **)args[0], n = *(unsigned *)args[1];

	for (unsigned k = 0; k < n && k < simThreads(g); k++)
		v[k] = k;
}

/* a kernel of C++, by its mangled name */
void _Z5clearPj(const struct simGrid *g, void **args)
{
	**(unsigned **)args[0] = g->cluster[0] - 1;
}
