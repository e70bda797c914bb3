// Reductions with CUB: each block makes one value of its share of the n values. n is at least 1.
#include <cub/block/block_reduce.cuh>

const int threads = 256; // of a block, as safe.Threads has it

template <typename Combine>
__device__ void reduce(const float *in, long long n, float *out, float first, Combine combine)
{
	using Block = cub::BlockReduce<float, threads>;
	__shared__ typename Block::TempStorage memory;
	float v = first;

	for (long long i = blockIdx.x * threads + threadIdx.x; i < n; i += gridDim.x * threads)
		v = combine(v, in[i]);
	v = Block(memory).Reduce(v, combine);
	if (threadIdx.x == 0)
		out[blockIdx.x] = v;
}

struct Add {
	__device__ float operator()(float a, float b) const { return a + b; }
};

struct Max {
	__device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

extern "C" __global__ void sum(const float *in, long long n, float *out)
{
	reduce(in, n, out, 0, Add());
}

extern "C" __global__ void maximum(const float *in, long long n, float *out)
{
	reduce(in, n, out, in[0], Max());
}
