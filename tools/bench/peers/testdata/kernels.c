#include "simkernel.h"

// mulby multiplies n floats by a.
void mulby(const struct simGrid *g, void **args)
{
	float *p = *(float **)args[0];
	unsigned n = *(unsigned *)args[1];
	float a = *(float *)args[2];

	(void)g;
	for (unsigned i = 0; i < n; i++)
		p[i] *= a;
}
