// The magnetization of a thin film: a unit vector m in each cell. Vectors are three planes, x, y and
// z, of rows of cells. Padded planes have twice the width and twice the height; what is beyond the
// film stays 0. Fields are in units of the saturation magnetization.

struct Film {
	int width, height; // in cells
	float exchange;    // of neighbours: the square of the exchange length, in cells
	float damping;
};

// multiply makes the spectrum of a magnetization that of its demagnetizing field. The tensor is
// symmetric, and xz and yz are 0 in a single layer of cells: its planes are xx, yy, zz and xy.
extern "C" __global__ void multiply(const float *tensor, float2 *spectrum, int plane)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= plane)
		return;
	float xx = tensor[i], yy = tensor[i + plane], zz = tensor[i + 2 * plane], xy = tensor[i + 3 * plane];
	float2 x = spectrum[i], y = spectrum[i + plane], z = spectrum[i + 2 * plane];
	spectrum[i] = make_float2(-xx * x.x - xy * y.x, -xx * x.y - xy * y.y);
	spectrum[i + plane] = make_float2(-xy * x.x - yy * y.x, -xy * x.y - yy * y.y);
	spectrum[i + 2 * plane] = make_float2(-zz * z.x, -zz * z.y);
}

__device__ float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ float3 operator*(float s, float3 a) { return make_float3(s * a.x, s * a.y, s * a.z); }
__device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ float3 cross(float3 a, float3 b)
{
	return make_float3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

__device__ float3 load(const float *planes, int plane, int i)
{
	return make_float3(planes[i], planes[i + plane], planes[i + 2 * plane]);
}

__device__ void store(float *planes, int plane, int i, float3 v)
{
	planes[i] = v.x;
	planes[i + plane] = v.y;
	planes[i + 2 * plane] = v.z;
}

// fieldAt is the field of a cell: of its neighbours by exchange, and of all cells. Beyond an edge, a
// neighbour is as the cell itself. Both arguments are padded.
__device__ float3 fieldAt(Film film, const float *now, const float *demagnetizing, int x, int y)
{
	int row = 2 * film.width, plane = 2 * film.height * row, i = y * row + x;
	float3 h = -4.0f * load(now, plane, i);
	h = h + load(now, plane, x > 0 ? i - 1 : i);
	h = h + load(now, plane, x + 1 < film.width ? i + 1 : i);
	h = h + load(now, plane, y > 0 ? i - row : i);
	h = h + load(now, plane, y + 1 < film.height ? i + row : i);
	return film.exchange * h + load(demagnetizing, plane, i);
}

// advance is a stage, 0 to 3, of a Runge-Kutta step of the Landau-Lifshitz-Gilbert equation
//
//	dm/dt = -(m x h + damping m x (m x h)) / (1 + damping * damping)
//
// now is the magnetization of this stage and demagnetizing its field, next that of the following
// stage, all padded. m is the magnetization at the begin of the step and after it, sum what the
// stages add to it.
extern "C" __global__ void advance(Film film, int stage, float dt, const float *now, const float *demagnetizing, float *m, float *sum, float *next)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x;
	int y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x >= film.width || y >= film.height)
		return;
	int plane = film.width * film.height, i = y * film.width + x;
	int padded = 4 * plane, at = y * 2 * film.width + x;
	float3 u = load(now, padded, at);
	float3 torque = cross(u, fieldAt(film, now, demagnetizing, x, y));
	float3 slope = -1 / (1 + film.damping * film.damping) * (torque + film.damping * cross(u, torque));

	float3 total = (stage == 0 || stage == 3 ? dt / 6 : dt / 3) * slope;
	if (stage > 0)
		total = total + load(sum, plane, i);
	float3 from = load(m, plane, i);
	if (stage < 3) {
		store(sum, plane, i, total);
		store(next, padded, at, from + (stage < 2 ? dt / 2 : dt) * slope);
		return;
	}
	float3 end = from + total;
	end = rsqrtf(dot(end, end)) * end;
	store(m, plane, i, end);
	store(next, padded, at, end);
}

// energy adds the energy of all cells to *sum, in units of the volume of a cell times the vacuum
// permeability times the square of the saturation magnetization.
extern "C" __global__ void energy(Film film, const float *now, const float *demagnetizing, double *sum)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x;
	int y = blockIdx.y * blockDim.y + threadIdx.y;
	double e = 0;
	if (x < film.width && y < film.height) {
		float3 m = load(now, 4 * film.width * film.height, y * 2 * film.width + x);
		e = -0.5 * dot(m, fieldAt(film, now, demagnetizing, x, y));
	}
	for (int lanes = 16; lanes > 0; lanes /= 2)
		e += __shfl_down_sync(0xffffffff, e, lanes);
	if ((threadIdx.y * blockDim.x + threadIdx.x) % 32 == 0)
		atomicAdd(sum, e);
}
