extern "C" __global__ void add(const float *a, const float *b, float *c, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

// By one thread.
extern "C" __global__ void sum(float *out, const float *in, unsigned n)
{
	float total = 0;

	for (; n; n--)
		total += *in++;
	*out = total;
}

static __device__ unsigned long long now()
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

extern "C" __global__ void spin(unsigned long long ns)
{
	unsigned long long start = now();

	while (now() - start < ns)
		;
}
