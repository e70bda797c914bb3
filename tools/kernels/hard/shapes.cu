// Kernels as programs for simulations have them: pointers that do not alias, numbers, and a header.
#include "shared.h"

#define at(x, y, z) (((z) * ny + (y)) * nx + (x))

// scale multiplies each component of a field by a constant or by a value for each cell.
extern "C" __global__ void
scale(float *__restrict__ dstx, float *__restrict__ dsty, float *__restrict__ dstz,
      const float *__restrict__ srcx, const float *__restrict__ srcy, const float *__restrict__ srcz,
      const float *__restrict__ factor, float mul, int n)
{
	int i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float f = factor ? factor[i] * mul : mul;
	dstx[i] = f * srcx[i];
	dsty[i] = f * srcy[i];
	dstz[i] = f * srcz[i];
}

// shift copies a field by an offset; what comes from outside is clamp.
extern "C" __global__ void shift(float *__restrict__ dst, const float *__restrict__ src, int nx, int ny, int nz, int shx, float clamp)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
	if (x < nx && y < ny && z < nz)
		dst[at(x, y, z)] = x - shx < 0 || x - shx >= nx ? clamp : src[at(x - shx, y, z)];
}

// regions sums the values of each region.
extern "C" __global__ void regions(float *__restrict__ sums, const float *__restrict__ values, const unsigned char *__restrict__ region, int n, unsigned long long seed, Pair *__restrict__ pairs)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		atomicAdd(&sums[region[i]], values[i]);
	if (i == 0 && pairs)
		pairs->first = (int)seed;
}
