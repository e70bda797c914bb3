#include "simkernel.h"
#include <unistd.h>

/* The kernels of the programs for the simulated driver. */

void saxpy(const struct simGrid *g, void **args)
{
	int n = *(int *)args[0];
	float a = *(float *)args[1], *x = *(float **)args[2], *y = *(float **)args[3];

	for (int i = 0; i < n && (unsigned)i < simThreads(g); i++)
		y[i] += a * x[i];
}

void histogram(const struct simGrid *g, void **args)
{
	unsigned char *data = *(unsigned char **)args[0];
	int n = *(int *)args[1];
	unsigned *counts = *(unsigned **)args[2];

	for (int i = 0; i < n && g->block[0] == 256; i++)
		counts[data[i]]++;
}

void julia(const struct simGrid *g, void **args)
{
	unsigned char *pixels = *(unsigned char **)args[0];
	int width = *(int *)args[1], height = *(int *)args[2];
	float re = *(float *)args[3], im = *(float *)args[4];

	for (int i = 0; i < width * height && (unsigned)i < simThreads(g); i++) {
		float x = (i % width - width / 2) * 3.0f / width, y = (i / width - height / 2) * 3.0f / width;
		int n = 0;

		for (; n < 255 && x * x + y * y < 4; n++) {
			float t = x * x - y * y + re;

			y = 2 * x * y + im;
			x = t;
		}
		pixels[i] = n;
	}
}
