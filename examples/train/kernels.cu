// What a step of the training needs beside products of matrices. ARMS is the number of outputs.

// softmax makes probabilities of the scores of each point, and adds the loss, the mean of
// -log(probability of the right arm), to *loss. delta is the gradient of the loss by the scores.
extern "C" __global__ void softmax(const float *scores, const int *labels, float *delta, float *loss, int points)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float own = 0;
	if (i < points) {
		const float *score = scores + i * ARMS;
		float most = score[0], sum = 0;
		for (int arm = 1; arm < ARMS; arm++)
			most = fmaxf(most, score[arm]);
		for (int arm = 0; arm < ARMS; arm++)
			sum += expf(score[arm] - most);
		for (int arm = 0; arm < ARMS; arm++)
			delta[i * ARMS + arm] = (expf(score[arm] - most) / sum - (arm == labels[i])) / points;
		own = (logf(sum) + most - score[labels[i]]) / points;
	}
	for (int lanes = 16; lanes > 0; lanes /= 2)
		own += __shfl_down_sync(0xffffffff, own, lanes);
	if (threadIdx.x % 32 == 0)
		atomicAdd(loss, own);
}

// descend takes a step down the gradient, with momentum. The value behind the n gradients is the
// loss. It is noted as that of this step, and cleared for the next one.
extern "C" __global__ void descend(float *parameters, float *gradient, float *velocity, int n, float rate, float momentum, float *losses, int *step)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) {
		velocity[i] = momentum * velocity[i] + gradient[i];
		parameters[i] -= rate * velocity[i];
	} else if (i == n) {
		losses[(*step)++] = gradient[n];
		gradient[n] = 0;
	}
}
