// What the server needs beside layers.cu: attention to the texts so far, and the choice of the next token.
#include <cuda_bf16.h>
#include <math.h>

constexpr int LONGEST = 1024; // context

// Row is a token of a text that is being written: it is at `place` of the text in a slot of the cache.
struct Row {
	int slot, place, token;
	float temperature;
};

// begin begins each row with what was learned of its token and of its place. A block does a row.
extern "C" __global__ void begin(const Row *rows, const float *ofToken, const float *ofPlace, float *x, int channels)
{
	Row row = rows[blockIdx.x];
	for (int c = threadIdx.x; c < channels; c += blockDim.x)
		x[blockIdx.x * channels + c] = ofToken[row.token * channels + c] + ofPlace[row.place * channels + c];
}

// attendCache appends the key and the value of a row to the cache of its slot, at its place, and
// computes attention to all that are there. A block of 128 threads does a row and a head of 64
// channels, blockIdx.y. A slot's cache has keys and values side by side for each place.
extern "C" __global__ void __launch_bounds__(128)
attendCache(const __nv_bfloat16 *qkv, __nv_bfloat16 *cache, const Row *rows, __nv_bfloat16 *out, int context, int channels)
{
	__shared__ float query[64], scores[LONGEST], halves[64], reduced[4];
	int row = blockIdx.x, thread = threadIdx.x, place = rows[row].place, at = blockIdx.y * 64;
	const __nv_bfloat16 *own = qkv + (size_t)row * 3 * channels + at;
	__nv_bfloat16 *slot = cache + (size_t)rows[row].slot * context * 2 * channels + at;
	if (thread < 64)
		query[thread] = __bfloat162float(own[thread]) * 0.125f; // 1 / sqrt(64)
	slot[(size_t)place * 2 * channels + thread / 64 * channels + thread % 64] = own[(1 + thread / 64) * channels + thread % 64];
	__syncthreads();
	float most = -INFINITY, sum = 0;
	for (int i = thread; i <= place; i += 128) {
		const __nv_bfloat162 *key = (const __nv_bfloat162 *)(slot + (size_t)i * 2 * channels);
		float score = 0;
#pragma unroll
		for (int c = 0; c < 32; c++) {
			float2 k = __bfloat1622float2(key[c]);
			score += query[2 * c] * k.x + query[2 * c + 1] * k.y;
		}
		scores[i] = score;
		most = fmaxf(most, score);
	}
	for (int lanes = 16; lanes > 0; lanes /= 2)
		most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, lanes));
	if (thread % 32 == 0)
		reduced[thread / 32] = most;
	__syncthreads();
	most = fmaxf(fmaxf(reduced[0], reduced[1]), fmaxf(reduced[2], reduced[3]));
	// Half of the threads take the values of even places, half those of odd ones.
	float mean = 0;
	for (int i = thread / 64; i <= place; i += 2) {
		float weight = expf(scores[i] - most);
		sum += weight;
		mean += weight * __bfloat162float(slot[(size_t)i * 2 * channels + channels + thread % 64]);
	}
	__syncthreads();
	if (thread == 64)
		reduced[0] = sum;
	if (thread >= 64)
		halves[thread - 64] = mean;
	__syncthreads();
	if (thread < 64)
		out[(size_t)row * channels + at + thread] = __float2bfloat16((mean + halves[thread]) / (sum + reduced[0]));
}

// pick draws the next token of each row by softmax(scores / temperature): the first one up to which
// the probabilities add up to the row's random number. With a temperature of 0 it is the likeliest,
// the first of several. A warp does a row of 256 scores.
extern "C" __global__ void pick(const __nv_bfloat16 *scores, const Row *rows, const float *random, int *tokens, int n)
{
	int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
	if (row >= n)
		return;
	float v[8], most = -INFINITY, sum = 0, heat = rows[row].temperature;
	for (int i = 0; i < 8; i++) {
		v[i] = __bfloat162float(scores[row * 256 + lane * 8 + i]);
		most = fmaxf(most, v[i]);
	}
	for (int lanes = 16; lanes > 0; lanes /= 2)
		most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, lanes));
	for (int i = 0; i < 8; i++)
		sum += v[i] = heat > 0 ? expf((v[i] - most) / heat) : v[i] == most;
	float before = sum; // the sum of all lanes up to this one
	for (int lanes = 1; lanes < 32; lanes *= 2) {
		float other = __shfl_up_sync(0xffffffff, before, lanes);
		if (lane >= lanes)
			before += other;
	}
	float part = heat > 0 ? random[row] * 0.99999f : 0; // less than 1, as the sums are rounded
	float wanted = part * __shfl_sync(0xffffffff, before, 31);
	before -= sum;
	int chosen = 256;
	for (int i = 7; i >= 0; i--) {
		float upTo = before;
		for (int j = 0; j <= i; j++)
			upTo += v[j];
		if (v[i] > 0 && upTo >= wanted)
			chosen = lane * 8 + i;
	}
	for (int lanes = 16; lanes > 0; lanes /= 2)
		chosen = min(chosen, __shfl_xor_sync(0xffffffff, chosen, lanes));
	if (lane == 0)
		tokens[row] = min(chosen, 255); // 256 if there are scores that are no numbers
}
