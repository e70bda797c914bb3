// A Line is straight.
struct Line {
	float slope, offset;
};

// apply replaces each of n values by that of a line there.
__global__ void apply(float *values, Line line, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		values[i] = line.slope * values[i] + line.offset;
}
