// AdamW with a warm-up, a cosine schedule and a limit of the gradient's norm.
#include <cuda_bf16.h>

// Schedule is how the model learns. The rate rises to its peak in `warmUp` steps, and falls to a
// tenth along a cosine until `steps`.
struct Schedule {
	float rate, beta1, beta2, decay, norm;
	int warmUp, steps;
};

// Update is what the parameters of a step have in common.
struct Update {
	float rate, gradientScale, scale1, scale2;
};

// blockSum adds over a block, whose size is a multiple of 32, in the same order each time.
__device__ float blockSum(float v)
{
	__shared__ float sums[32];
	for (int lanes = 16; lanes > 0; lanes /= 2)
		v += __shfl_xor_sync(0xffffffff, v, lanes);
	if (threadIdx.x % 32 == 0)
		sums[threadIdx.x / 32] = v;
	__syncthreads();
	v = threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0;
	for (int lanes = 16; lanes > 0; lanes /= 2)
		v += __shfl_xor_sync(0xffffffff, v, lanes);
	return v;
}

// mean is of n values, by one block.
extern "C" __global__ void mean(const float *values, int n, float *result)
{
	float sum = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		sum += values[i];
	sum = blockSum(sum);
	if (threadIdx.x == 0)
		*result = sum / n;
}

// squares adds up the squares of the gradient: each block its share.
extern "C" __global__ void squares(const __nv_bfloat16 *gradient, int n, float *sums)
{
	float sum = 0;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		float g = __bfloat162float(gradient[i]);
		sum += g * g;
	}
	sum = blockSum(sum);
	if (threadIdx.x == 0)
		sums[blockIdx.x] = sum;
}

// plan makes the update of this step from the sums of squares, notes its loss, and counts it. One
// block does it.
extern "C" __global__ void plan(const float *sums, int n, const float *loss, Schedule s, Update *update, float *losses, int *step)
{
	float sum = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		sum += sums[i];
	float norm = sqrtf(blockSum(sum));
	if (threadIdx.x != 0)
		return;
	int t = *step;
	float part = fminf(fmaxf(float(t - s.warmUp) / max(s.steps - s.warmUp, 1), 0), 1);
	float rate = t < s.warmUp ? s.rate * (t + 1) / s.warmUp : s.rate * (0.55f + 0.45f * cospif(part));
	*update = {rate, norm > s.norm ? s.norm / norm : 1, 1 / (1 - powf(s.beta1, t + 1)), 1 / (1 - powf(s.beta2, t + 1))};
	losses[t] = *loss;
	*step = t + 1;
}

// adam updates n parameters, and rounds them for the products.
extern "C" __global__ void adam(float *parameters, __nv_bfloat16 *rounded, const __nv_bfloat16 *gradient, float *first, float *second,
	const Update *update, Schedule s, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	Update u = *update;
	float g = __bfloat162float(gradient[i]) * u.gradientScale;
	float m = first[i] = s.beta1 * first[i] + (1 - s.beta1) * g;
	float v = second[i] = s.beta2 * second[i] + (1 - s.beta2) * g * g;
	float p = parameters[i] * (1 - u.rate * s.decay);
	p -= u.rate * m * u.scale1 / (sqrtf(v * u.scale2) + 1e-8f);
	parameters[i] = p;
	rounded[i] = __float2bfloat16(p);
}

// roundAll rounds n parameters for the products.
extern "C" __global__ void roundAll(const float *parameters, __nv_bfloat16 *rounded, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		rounded[i] = __float2bfloat16(parameters[i]);
}
