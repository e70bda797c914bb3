// What a transformer computes between its products of matrices. A row is what the model knows of
// one token: `channels` values, a multiple of 128. A warp does a row, four values a lane at a time.
#include <cuda_bf16.h>
#include <math.h>

constexpr int WARP = 32, STRIDE = 4 * WARP;

// The row of a warp, and the first value of a lane.
__device__ int warpRow() { return (blockIdx.x * blockDim.x + threadIdx.x) / WARP; }
__device__ int laneValue() { return threadIdx.x % WARP * 4; }

__device__ float warpSum(float v)
{
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		v += __shfl_xor_sync(0xffffffff, v, lanes);
	return v;
}

__device__ float4 load4(const float *from) { return *(const float4 *)from; }

__device__ float4 load4(const __nv_bfloat16 *from)
{
	uint2 bits = *(const uint2 *)from;
	float2 low = __bfloat1622float2(*(__nv_bfloat162 *)&bits.x), high = __bfloat1622float2(*(__nv_bfloat162 *)&bits.y);
	return {low.x, low.y, high.x, high.y};
}

__device__ void store4(__nv_bfloat16 *to, float4 v)
{
	__nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
	*(uint2 *)to = {*(unsigned *)&low, *(unsigned *)&high};
}

// Drops a value whose random byte is below `drop`, and scales the others so that the mean remains.
__device__ float4 dropped(float4 v, const unsigned char *random, int drop)
{
	if (drop == 0)
		return v;
	uchar4 r = *(const uchar4 *)random;
	float scale = 256.0f / (256 - drop);
	return {r.x < drop ? 0 : v.x * scale, r.y < drop ? 0 : v.y * scale, r.z < drop ? 0 : v.z * scale, r.w < drop ? 0 : v.w * scale};
}

// sample draws sequences of a text: each block copies the tokens of one, and as targets those one
// further. Which ones depends on the seed, the step, *step + later, and the sequence's number,
// first + the block's.
extern "C" __global__ void sample(const unsigned char *text, unsigned long long length, unsigned long long seed,
	const int *step, int later, int first, unsigned char *tokens, unsigned char *targets, int context)
{
	unsigned long long z = seed + (((unsigned long long)(*step + later) << 32) + first + blockIdx.x) * 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9; // the function of the generator splitmix64
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	z ^= z >> 31;
	const unsigned char *from = text + z % (length - context);
	for (int i = threadIdx.x; i < context; i += blockDim.x) {
		tokens[blockIdx.x * context + i] = from[i];
		targets[blockIdx.x * context + i] = from[i + 1];
	}
}

// embed begins rows with what was learned of their tokens and of their places in sequences of
// `context` tokens.
extern "C" __global__ void embed(const unsigned char *tokens, const float *ofToken, const float *ofPlace,
	float *x, int rows, int context, int channels)
{
	int row = warpRow(), place = row % context;
	if (row >= rows)
		return;
	for (int c = laneValue(); c < channels; c += STRIDE) {
		float4 a = load4(ofToken + tokens[row] * channels + c), b = load4(ofPlace + place * channels + c);
		*(float4 *)(x + (size_t)row * channels + c) = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
	}
}

// normalize adds a branch, of which some values are dropped, to x, and scales each row to a root mean
// square of 1 for the next branch: y = x * scales. There may be no branch.
extern "C" __global__ void normalize(float *x, const __nv_bfloat16 *branch, const unsigned char *random, int drop,
	__nv_bfloat16 *y, float *scales, int rows, int channels)
{
	int row = warpRow();
	if (row >= rows)
		return;
	size_t at = (size_t)row * channels;
	float squares = 0;
	for (int c = laneValue(); c < channels; c += STRIDE) {
		float4 v = load4(x + at + c);
		if (branch) {
			float4 b = dropped(load4(branch + at + c), random + at + c, drop);
			v = {v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w};
			*(float4 *)(x + at + c) = v;
		}
		squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
	}
	float scale = rsqrtf(warpSum(squares) / channels + 1e-6f);
	for (int c = laneValue(); c < channels; c += STRIDE) {
		float4 v = load4(x + at + c);
		store4(y + at + c, {v.x * scale, v.y * scale, v.z * scale, v.w * scale});
	}
	if (threadIdx.x % WARP == 0)
		scales[row] = scale;
}

// normalizeBackward adds to dx, the gradient of x, what comes by dy, that of normalize's y. begin says that
// dx has no value before. The gradient of the branch before, with its drops, is dbranch.
extern "C" __global__ void normalizeBackward(const __nv_bfloat16 *dy, const __nv_bfloat16 *y, const float *scales, float *dx, int begin,
	__nv_bfloat16 *dbranch, const unsigned char *random, int drop, int rows, int channels)
{
	int row = warpRow();
	if (row >= rows)
		return;
	size_t at = (size_t)row * channels;
	float dot = 0;
	for (int c = laneValue(); c < channels; c += STRIDE) {
		float4 d = load4(dy + at + c), v = load4(y + at + c);
		dot += d.x * v.x + d.y * v.y + d.z * v.z + d.w * v.w;
	}
	float mean = warpSum(dot) / channels, scale = scales[row];
	for (int c = laneValue(); c < channels; c += STRIDE) {
		float4 d = load4(dy + at + c), v = load4(y + at + c);
		float4 sum = begin ? float4{0, 0, 0, 0} : load4(dx + at + c);
		sum.x += scale * (d.x - v.x * mean);
		sum.y += scale * (d.y - v.y * mean);
		sum.z += scale * (d.z - v.z * mean);
		sum.w += scale * (d.w - v.w * mean);
		*(float4 *)(dx + at + c) = sum;
		store4(dbranch + at + c, dropped(sum, random + at + c, drop));
	}
}

// crossEntropy replaces the scores of each row by the gradient of the mean loss by them. losses
// receives the loss of each row, -log(probability of its target). tokens is the number of scores of
// a row, a multiple of 128.
extern "C" __global__ void crossEntropy(__nv_bfloat16 *scores, const unsigned char *targets, float *losses, int rows, int tokens)
{
	int row = warpRow();
	if (row >= rows)
		return;
	__nv_bfloat16 *score = scores + (size_t)row * tokens;
	float most = -INFINITY, sum = 0;
	for (int c = laneValue(); c < tokens; c += STRIDE) {
		float4 v = load4(score + c);
		most = fmaxf(most, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
	}
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, lanes));
	for (int c = laneValue(); c < tokens; c += STRIDE) {
		float4 v = load4(score + c);
		sum += expf(v.x - most) + expf(v.y - most) + expf(v.z - most) + expf(v.w - most);
	}
	sum = warpSum(sum);
	int target = targets[row];
	if (threadIdx.x % WARP == 0)
		losses[row] = logf(sum) + most - __bfloat162float(score[target]);
	__syncwarp();
	for (int c = laneValue(); c < tokens; c += STRIDE) {
		float4 v = load4(score + c);
		store4(score + c, {(expf(v.x - most) / sum - (c == target)) / rows, (expf(v.y - most) / sum - (c + 1 == target)) / rows,
			(expf(v.z - most) / sum - (c + 2 == target)) / rows, (expf(v.w - most) / sum - (c + 3 == target)) / rows});
	}
}

// oneHot sets a row of `width` values for each token, which are 0 but for a 1 at the token: the
// product of its transpose with the gradient of rows is the gradient of what was learned of tokens.
extern "C" __global__ void oneHot(const unsigned char *tokens, __nv_bfloat16 *hot, int rows, int width)
{
	int row = warpRow();
	if (row >= rows)
		return;
	int token = tokens[row];
	for (int c = laneValue(); c < width; c += STRIDE)
		store4(hot + (size_t)row * width + c, {float(c == token), float(c + 1 == token), float(c + 2 == token), float(c + 3 == token)});
}

// placesBackward sums the gradients of all rows at the same place of their sequences.
extern "C" __global__ void placesBackward(const float *dx, __nv_bfloat16 *ofPlace, int sequences, int context, int channels)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, n = context * channels;
	if (i >= n)
		return;
	float sum = 0;
	for (int s = 0; s < sequences; s++)
		sum += dx[(size_t)s * n + i];
	ofPlace[i] = __float2bfloat16(sum);
}
