// Conjugate gradients for A x = b. A is symmetric and positive definite, in compressed rows: the
// values of row i and their columns are those from first[i] on, up to first[i+1].

#include <cudabind/conditions.h>

// State holds the scalars that the kernels share. finish updates it, once an iteration.
struct State {
	double rr;   // dot(r, r) of the residual r = b - A x
	double pq;   // dot(p, A p), which multiply adds up
	double next; // dot(r, r) after this iteration, which advance adds up
	double goal; // the rr at which to stop
	unsigned iterations, limit;
};

// addTo adds the v of all threads of the warp to *sum. All of them must call it.
__device__ void addTo(double *sum, double v)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		v += __shfl_down_sync(0xffffffff, v, lanes);
	if (threadIdx.x % 32 == 0)
		atomicAdd(sum, v);
}

// multiply is q = A p.
extern "C" __global__ void multiply(State *s, const int *first, const int *column, const double *value, const double *p, double *q, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	double product = 0;
	if (i < n) {
		double sum = 0;
		for (int k = first[i]; k < first[i + 1]; k++)
			sum += value[k] * p[column[k]];
		q[i] = sum;
		product = p[i] * sum;
	}
	addTo(&s->pq, product);
}

// advance takes the step along p that minimizes the error.
extern "C" __global__ void advance(State *s, const double *p, const double *q, double *x, double *r, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	double square = 0;
	if (i < n) {
		double alpha = s->rr / s->pq;
		x[i] += alpha * p[i];
		r[i] -= alpha * q[i];
		square = r[i] * r[i];
	}
	addTo(&s->next, square);
}

// turn makes p the next direction.
extern "C" __global__ void turn(const State *s, const double *r, double *p, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] = r[i] + s->next / s->rr * p[i];
}

// finish ends an iteration. One thread runs it.
extern "C" __global__ void finish(State *s)
{
	s->rr = s->next;
	s->next = s->pq = 0;
	s->iterations++;
}

// repeat lets the loop of a graph go on until the goal or the limit is reached. One thread runs it.
extern "C" __global__ void repeat(cudaGraphConditionalHandle loop, const State *s)
{
	cudaGraphSetConditional(loop, s->rr > s->goal && s->iterations < s->limit);
}
