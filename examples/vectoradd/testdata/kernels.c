#include "simkernel.h"

/* add(const float *a, const float *b, float *sum, int n) */
void add(const struct simGrid *g, void **args)
{
	float *a = *(float **)args[0], *b = *(float **)args[1], *sum = *(float **)args[2];
	int n = *(int *)args[3];

	for (int i = 0; i < n && (unsigned long)i < simThreads(g); i++)
		sum[i] = a[i] + b[i];
}
