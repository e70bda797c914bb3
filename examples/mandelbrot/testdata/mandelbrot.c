#include <math.h>

#include "simkernel.h"

/* The kernel of mandelbrot.cu for the simulated driver, which runs C. */
static unsigned char shade(float cr, float ci)
{
	float zr = 0, zi = 0;
	int n = 0;

	for (; n < 500 && zr * zr + zi * zi < 256; n++) {
		float r = zr * zr - zi * zi + cr;
		zi = 2 * zr * zi + ci;
		zr = r;
	}
	float steps = n - log2f(log2f(zr * zr + zi * zi) / 8);
	return n == 500 ? 255 : (int)(28 * log2f(1 + fmaxf(steps, 0)));
}

void mandelbrot(const struct simGrid *g, void **args)
{
	unsigned char *shades = *(unsigned char **)args[0];
	int width = *(int *)args[1], height = *(int *)args[2];
	float pixel = 2.3f / height;

	(void)g;
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++)
			shades[(unsigned long)y * width + x] =
				shade((x - width / 2) * pixel - 0.7f, (y - height / 2) * pixel);
}
