// The condition holds as long as *counter is above 0, which is counted down by 1.
extern "C" __global__ void condition(cudaGraphConditionalHandle handle, unsigned *counter)
{
	unsigned more = *counter > 0;

	*counter -= more;
	cudaGraphSetConditional(handle, more);
}

// The condition is *choice.
extern "C" __global__ void choose(cudaGraphConditionalHandle handle, const unsigned *choice)
{
	cudaGraphSetConditional(handle, *choice);
}
