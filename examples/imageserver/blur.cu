// blur averages each pixel with its neighbours in a row (dx = 1) or in a column (dy = 1). The
// weights are those of a Gaussian. Pixels have four bytes; those at the edge are repeated.
extern "C" __global__ void blur(const unsigned char *in, unsigned char *out, int width, int height, int dx, int dy) {
	const int weights[] = {1, 6, 15, 20, 15, 6, 1}; // 64 in all
	int x = blockIdx.x * blockDim.x + threadIdx.x;
	int y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x >= width || y >= height) return;

	for (int channel = 0; channel < 4; channel++) {
		int sum = 32; // rounds
		for (int k = -3; k <= 3; k++) {
			int nx = min(max(x + k * dx, 0), width - 1);
			int ny = min(max(y + k * dy, 0), height - 1);
			sum += weights[k + 3] * in[4 * (ny * width + nx) + channel];
		}
		out[4 * (y * width + x) + channel] = sum / 64;
	}
}
