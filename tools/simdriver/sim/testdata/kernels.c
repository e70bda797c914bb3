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

/* to[0] = the first value of the variable table, to[1] = its size; then a variable that there is only sometimes */
void looks(const struct simGrid *g, void **args)
{
	unsigned *to = *(unsigned **)args[0], *table;
	size_t size;

	table = g->variable("table", &size);
	to[0] = *table;
	to[1] = size;
	g->variable("other", 0);
}
