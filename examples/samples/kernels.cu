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

// A step from x to y of solving linear equations, a times x is b, by one thread for
// each of the n rows of a.
extern "C" __global__ void jacobi(float *y, const float *x, const float *a, const float *b, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	float rest;

	if (i >= n)
		return;
	rest = b[i];
	for (unsigned j = 0; j < n; j++)
		rest -= a[i * n + j] * x[j];
	y[i] = x[i] + rest / a[i * n + i];
}

// The sum of how far the values of a and b are apart, by one thread.
extern "C" __global__ void distance(float *out, const float *a, const float *b, unsigned n)
{
	float total = 0;

	for (; n; n--)
		total += fabsf(*a++ - *b++);
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
