// Causal attention by tensor cores, for heads of 64 channels, without the matrix of all scores in
// memory: tiles of 64 rows are multiplied, and softmax is corrected when a greater score comes. The
// tensor cores multiply 16 rows of a warp by a tile in shared memory.
#include <cuda_bf16.h>
#include <math.h>

constexpr int SIDE = 64;                                     // of a tile
constexpr float SCALE = 0.125f, LOG2E = 1.4426950408889634f; // 1 / sqrt(SIDE)

// Tile has its rows in shared memory. Chunks of 8 values change places within a row, so that
// ldmatrix reads 8 rows without a conflict of banks.
struct __align__(16) Tile {
	__nv_bfloat16 values[SIDE * SIDE];

	__device__ unsigned chunk(int row, int i) const
	{
		return (unsigned)__cvta_generic_to_shared(values + row * SIDE + (i ^ (row % 8)) * 8);
	}
};

// fetch begins to copy 64 rows that lie `stride` values apart.
__device__ void fetch(const Tile &tile, const __nv_bfloat16 *from, int stride)
{
	for (int i = threadIdx.x; i < SIDE * 8; i += blockDim.x)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(tile.chunk(i / 8, i % 8)), "l"(from + (size_t)(i / 8) * stride + i % 8 * 8));
}

// fetched waits for what the block has begun to copy.
__device__ void fetched()
{
	asm volatile("cp.async.wait_all;" ::: "memory");
	__syncthreads();
}

// Rows are 16 rows of a warp as the left operand: of each 16 columns a lane has row / 4 and 8 rows
// further, columns lane % 4 * 2 and 8 further.
struct Rows {
	unsigned part[4][4];
};

// Products are 16 rows of a warp times 64 columns: of each 8 columns a lane has two, in row lane / 4
// and in that 8 further.
typedef float Products[8][4];

__device__ Rows loadRows(const __nv_bfloat16 *from, int stride)
{
	Rows r;
	from += (size_t)(threadIdx.x % 32 / 4) * stride + threadIdx.x % 4 * 2;
#pragma unroll
	for (int k = 0; k < 4; k++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			r.part[k][i] = *(const unsigned *)(from + (size_t)(i % 2 * 8) * stride + k * 16 + i / 2 * 8);
	return r;
}

__device__ unsigned pair(float low, float high)
{
	__nv_bfloat162 v = __floats2bfloat162_rn(low, high);
	return *(unsigned *)&v;
}

// rounded makes products the left operand of the next product.
__device__ Rows rounded(const Products &p)
{
	Rows r;
#pragma unroll
	for (int k = 0; k < 4; k++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			r.part[k][i] = pair(p[2 * k + i / 2][i % 2 * 2], p[2 * k + i / 2][i % 2 * 2 + 1]);
	return r;
}

__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// times adds a * b.
__device__ void times(Products &sum, const Rows &a, const Tile &b)
{
	int lane = threadIdx.x % 32;
#pragma unroll
	for (int k = 0; k < 4; k++)
#pragma unroll
		for (int n = 0; n < 4; n++) {
			unsigned f[4];
			asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
				: "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
				: "r"(b.chunk(16 * k + lane % 16, 2 * n + lane / 16))
				: "memory");
			multiply(sum[2 * n], a.part[k], f[0], f[1]);
			multiply(sum[2 * n + 1], a.part[k], f[2], f[3]);
		}
}

// timesTransposed adds a * b's transpose.
__device__ void timesTransposed(Products &sum, const Rows &a, const Tile &b)
{
	int lane = threadIdx.x % 32;
#pragma unroll
	for (int k = 0; k < 4; k++)
#pragma unroll
		for (int n = 0; n < 4; n++) {
			unsigned f[4];
			asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
				: "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
				: "r"(b.chunk(16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2))
				: "memory");
			multiply(sum[2 * n], a.part[k], f[0], f[1]);
			multiply(sum[2 * n + 1], a.part[k], f[2], f[3]);
		}
}

// store writes the warp's 16 rows of 64 values, each times the factor of its row.
__device__ void store(__nv_bfloat16 *to, int stride, const Products &p, float upper, float lower)
{
	to += (size_t)(threadIdx.x % 32 / 4) * stride + threadIdx.x % 4 * 2;
#pragma unroll
	for (int n = 0; n < 8; n++) {
		*(unsigned *)(to + n * 8) = pair(p[n][0] * upper, p[n][1] * upper);
		*(unsigned *)(to + (size_t)8 * stride + n * 8) = pair(p[n][2] * lower, p[n][3] * lower);
	}
}

// foursome adds over the four lanes that share two rows.
__device__ float foursome(float v)
{
	v += __shfl_xor_sync(0xffffffff, v, 1);
	return v + __shfl_xor_sync(0xffffffff, v, 2);
}

// attention computes a mean of values for each query, weighted by softmax of its products with the
// keys up to its own. A block of 128 threads does 64 queries of a head, blockIdx.y, of a sequence,
// blockIdx.z. qkv has queries, keys and values of a token side by side, with `channels` each.
// logSums are log2 of the sums of softmax, for the backward pass. The context is a multiple of 64.
extern "C" __global__ void __launch_bounds__(128)
attention(const __nv_bfloat16 *qkv, __nv_bfloat16 *out, float *logSums, int context, int channels)
{
	__shared__ Tile keys[2], values[2];
	int tile = gridDim.x - 1 - blockIdx.x; // those with the most work begin
	int stride = 3 * channels, lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
	size_t first = (size_t)blockIdx.z * context;
	const __nv_bfloat16 *head = qkv + first * stride + blockIdx.y * SIDE;
	fetch(keys[0], head + channels, stride);
	fetch(values[0], head + 2 * channels, stride);
	Rows queries = loadRows(head + (size_t)(tile * SIDE + threadIdx.x / 32 * 16) * stride, stride);
	Products o = {};
	float most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
	for (int k = 0; k <= tile; k++) {
		fetched();
		if (k < tile) {
			fetch(keys[(k + 1) % 2], head + channels + (size_t)(k + 1) * SIDE * stride, stride);
			fetch(values[(k + 1) % 2], head + 2 * channels + (size_t)(k + 1) * SIDE * stride, stride);
		}
		Products s = {};
		timesTransposed(s, queries, keys[k % 2]);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float m = most[half];
#pragma unroll
			for (int n = 0; n < 16; n++) {
				float &v = s[n / 2][half * 2 + n % 2];
				if (k == tile && n / 2 * 8 + lane % 4 * 2 + n % 2 > row + half * 8)
					v = -INFINITY;
				m = fmaxf(m, v);
			}
			m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 1));
			m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 2));
			float correction = exp2f((most[half] - m) * (SCALE * LOG2E));
			most[half] = m;
			sum[half] *= correction;
#pragma unroll
			for (int n = 0; n < 16; n++) {
				float &v = s[n / 2][half * 2 + n % 2];
				v = exp2f((v - m) * (SCALE * LOG2E));
				sum[half] += v;
				o[n / 2][half * 2 + n % 2] *= correction;
			}
		}
		times(o, rounded(s), values[k % 2]);
	}
	sum[0] = foursome(sum[0]);
	sum[1] = foursome(sum[1]);
	store(out + (first + tile * SIDE + threadIdx.x / 32 * 16) * channels + blockIdx.y * SIDE, channels, o, 1 / sum[0], 1 / sum[1]);
	if (lane % 4 == 0) {
		logSums += ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * context + tile * SIDE + row;
		logSums[0] = most[0] * (SCALE * LOG2E) + log2f(sum[0]);
		logSums[8] = most[1] * (SCALE * LOG2E) + log2f(sum[1]);
	}
}

// queriesBackward computes the queries' part of dqkv from dout, the gradient of attention's out, and
// for keysBackward dots, the sums of dout * out of each query and head. Blocks are as of attention.
extern "C" __global__ void __launch_bounds__(128)
queriesBackward(const __nv_bfloat16 *qkv, const __nv_bfloat16 *out, const __nv_bfloat16 *dout, const float *logSums,
	__nv_bfloat16 *dqkv, float *dots, int context, int channels)
{
	__shared__ Tile keys[2], values[2];
	int tile = gridDim.x - 1 - blockIdx.x;
	int stride = 3 * channels, lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
	size_t first = (size_t)blockIdx.z * context, own = first + tile * SIDE + threadIdx.x / 32 * 16;
	const __nv_bfloat16 *head = qkv + first * stride + blockIdx.y * SIDE;
	fetch(keys[0], head + channels, stride);
	fetch(values[0], head + 2 * channels, stride);
	Rows queries = loadRows(qkv + own * stride + blockIdx.y * SIDE, stride);
	Rows douts = loadRows(dout + own * channels + blockIdx.y * SIDE, channels), outs = loadRows(out + own * channels + blockIdx.y * SIDE, channels);
	size_t at = ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * context + tile * SIDE + row;
	float logSum[2] = {logSums[at], logSums[at + 8]}, dot[2] = {};
#pragma unroll
	for (int i = 0; i < 16; i++) { // parts 0 and 2 are of the upper row, 1 and 3 of the lower
		float2 a = __bfloat1622float2(*(__nv_bfloat162 *)&douts.part[i / 4][i % 4]), b = __bfloat1622float2(*(__nv_bfloat162 *)&outs.part[i / 4][i % 4]);
		dot[i % 2] += a.x * b.x + a.y * b.y;
	}
	dot[0] = foursome(dot[0]);
	dot[1] = foursome(dot[1]);
	if (lane % 4 == 0) {
		dots[at] = dot[0];
		dots[at + 8] = dot[1];
	}
	Products dqueries = {};
	for (int k = 0; k <= tile; k++) {
		fetched();
		if (k < tile) {
			fetch(keys[(k + 1) % 2], head + channels + (size_t)(k + 1) * SIDE * stride, stride);
			fetch(values[(k + 1) % 2], head + 2 * channels + (size_t)(k + 1) * SIDE * stride, stride);
		}
		Products s = {}, d = {};
		timesTransposed(s, queries, keys[k % 2]);
		timesTransposed(d, douts, values[k % 2]);
#pragma unroll
		for (int i = 0; i < 32; i++) {
			int half = i % 4 / 2;
			float p = exp2f(s[i / 4][i % 4] * (SCALE * LOG2E) - logSum[half]);
			if (k == tile && i / 4 * 8 + lane % 4 * 2 + i % 2 > row + half * 8)
				p = 0;
			s[i / 4][i % 4] = p * (d[i / 4][i % 4] - dot[half]);
		}
		times(dqueries, rounded(s), keys[k % 2]);
	}
	store(dqkv + own * stride + blockIdx.y * SIDE, stride, dqueries, SCALE, SCALE);
}

// keysBackward computes the keys' and the values' parts of dqkv, after queriesBackward. A block of
// 128 threads does 64 keys of a head of a sequence.
extern "C" __global__ void __launch_bounds__(128)
keysBackward(const __nv_bfloat16 *qkv, const __nv_bfloat16 *dout, const float *logSums, const float *dots,
	__nv_bfloat16 *dqkv, int context, int channels)
{
	__shared__ Tile queries[2], douts[2];
	int tile = blockIdx.x, tiles = gridDim.x;
	int stride = 3 * channels, lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
	size_t first = (size_t)blockIdx.z * context, own = first + tile * SIDE + threadIdx.x / 32 * 16;
	const __nv_bfloat16 *head = qkv + first * stride + blockIdx.y * SIDE, *dhead = dout + first * channels + blockIdx.y * SIDE;
	fetch(queries[tile % 2], head + (size_t)tile * SIDE * stride, stride);
	fetch(douts[tile % 2], dhead + (size_t)tile * SIDE * channels, channels);
	Rows keys = loadRows(qkv + own * stride + channels + blockIdx.y * SIDE, stride);
	Rows values = loadRows(qkv + own * stride + 2 * channels + blockIdx.y * SIDE, stride);
	size_t at = ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * context + lane % 4 * 2;
	Products dkeys = {}, dvalues = {};
	for (int q = tile; q < tiles; q++) {
		fetched();
		if (q + 1 < tiles) {
			fetch(queries[(q + 1) % 2], head + (size_t)(q + 1) * SIDE * stride, stride);
			fetch(douts[(q + 1) % 2], dhead + (size_t)(q + 1) * SIDE * channels, channels);
		}
		Products s = {}, d = {}; // a row for each key, a column for each query
		timesTransposed(s, keys, queries[q % 2]);
		timesTransposed(d, values, douts[q % 2]);
#pragma unroll
		for (int n = 0; n < 8; n++) {
			float2 logSum = *(const float2 *)(logSums + at + q * SIDE + n * 8), dot = *(const float2 *)(dots + at + q * SIDE + n * 8);
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float p = exp2f(s[n][i] * (SCALE * LOG2E) - (i % 2 ? logSum.y : logSum.x));
				if (q == tile && row + i / 2 * 8 > n * 8 + lane % 4 * 2 + i % 2)
					p = 0;
				s[n][i] = p;
				d[n][i] = p * (d[n][i] - (i % 2 ? dot.y : dot.x));
			}
		}
		times(dvalues, rounded(s), douts[q % 2]);
		times(dkeys, rounded(d), queries[q % 2]);
	}
	store(dqkv + own * stride + channels + blockIdx.y * SIDE, stride, dkeys, SCALE, SCALE);
	store(dqkv + own * stride + 2 * channels + blockIdx.y * SIDE, stride, dvalues, 1, 1);
}
