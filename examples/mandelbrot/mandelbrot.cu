// mandelbrot computes the shade of each pixel from the number of steps that z = z*z + c takes to
// leave a circle: 0 to 254 on a logarithmic scale, or 255 if it is still inside after 500.
extern "C" __global__ void mandelbrot(unsigned char *shades, int width, int height) {
	int x = blockIdx.x * blockDim.x + threadIdx.x;
	int y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x >= width || y >= height) return;

	float pixel = 2.3f / height; // the picture is 2.3 high, and -0.7 is its centre
	float cr = (x - width / 2) * pixel - 0.7f, ci = (y - height / 2) * pixel;
	float zr = 0, zi = 0;
	int n = 0;
	for (; n < 500 && zr * zr + zi * zi < 256; n++) {
		float r = zr * zr - zi * zi + cr;
		zi = 2 * zr * zi + ci;
		zr = r;
	}
	// How far outside z is makes the number of steps a continuous one.
	float steps = n - log2f(log2f(zr * zr + zi * zi) / 8);
	shades[(size_t)y * width + x] = n == 500 ? 255 : (int)(28 * log2f(1 + fmaxf(steps, 0)));
}
