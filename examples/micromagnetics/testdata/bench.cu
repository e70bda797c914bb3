// The steps of micromagnetics -bench in CUDA C++ with cuFFT, as a graph. The tensors are those that
// the program writes:
//
//	micromagnetics -bench -tensors /tmp
//	nvcc -O3 -arch=native -o bench bench.cu -lcufft && ./bench /tmp
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cufft.h>

#include "../kernels.cu"

static void check(int code, const char *what)
{
	if (code) {
		fprintf(stderr, "bench: %s: error %d\n", what, code);
		exit(1);
	}
}
#define CHECK(call) check((int)(call), #call)

const double SATURATION = 8e5, STIFFNESS = 1.3e-11, VACUUM = 1.25663706e-6, CELL = 4e-9, THICKNESS = 20e-9;
const double PICOSECOND = 2.211e5 * SATURATION * 1e-12;
const int STEPS = 500;

template <class T> static T *allocate(size_t n)
{
	T *p;
	CHECK(cudaMalloc(&p, n * sizeof(T)));
	CHECK(cudaMemset(p, 0, n * sizeof(T)));
	return p;
}

struct Solver {
	Film film;
	int padded, half; // numbers of a plane
	cudaStream_t stream;
	cufftHandle forward, inverse;
	float *tensor, *m, *sum, *now[2], *field;
	float2 *spectrum;

	void load(const char *folder)
	{
		char name[1000];
		snprintf(name, sizeof name, "%s/tensor-%d", folder, film.width);
		std::vector<double> planes(4 * (size_t)padded);
		FILE *f = fopen(name, "rb");
		if (!f || fread(planes.data(), sizeof planes[0], planes.size(), f) != planes.size()) {
			fprintf(stderr, "bench: %s: cannot read it\n", name);
			exit(1);
		}
		fclose(f);
		double *device = allocate<double>(planes.size());
		double2 *out = allocate<double2>(4 * (size_t)half);
		CHECK(cudaMemcpy(device, planes.data(), planes.size() * sizeof(double), cudaMemcpyHostToDevice));
		int n[] = { 2 * film.height, 2 * film.width };
		cufftHandle plan;
		CHECK(cufftPlanMany(&plan, 2, n, NULL, 1, 0, NULL, 1, 0, CUFFT_D2Z, 4));
		CHECK(cufftExecD2Z(plan, device, out));
		std::vector<double2> values(4 * (size_t)half);
		CHECK(cudaMemcpy(values.data(), out, values.size() * sizeof(double2), cudaMemcpyDeviceToHost));
		std::vector<float> real;
		for (double2 v : values)
			real.push_back(v.x / padded);
		CHECK(cudaMemcpy(tensor, real.data(), real.size() * sizeof(float), cudaMemcpyHostToDevice));
		CHECK(cufftDestroy(plan));
		CHECK(cudaFree(device));
		CHECK(cudaFree(out));
	}

	Solver(int edge, const char *folder)
	{
		film = Film{ edge, edge, (float)(2 * STIFFNESS / (VACUUM * SATURATION * SATURATION) / (CELL * CELL)), 0.5f };
		padded = 4 * edge * edge, half = 2 * edge * (edge + 1);
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		int n[] = { 2 * edge, 2 * edge };
		CHECK(cufftPlanMany(&forward, 2, n, NULL, 1, 0, NULL, 1, 0, CUFFT_R2C, 3));
		CHECK(cufftPlanMany(&inverse, 2, n, NULL, 1, 0, NULL, 1, 0, CUFFT_C2R, 3));
		CHECK(cufftSetStream(forward, stream));
		CHECK(cufftSetStream(inverse, stream));
		tensor = allocate<float>(4 * (size_t)half);
		spectrum = allocate<float2>(3 * (size_t)half);
		m = allocate<float>(3 * edge * edge), sum = allocate<float>(3 * edge * edge);
		now[0] = allocate<float>(3 * (size_t)padded), now[1] = allocate<float>(3 * (size_t)padded);
		field = allocate<float>(3 * (size_t)padded);
		load(folder);
		magnetize();
		CHECK(cudaDeviceSynchronize());
	}

	void magnetize()
	{
		int edge = film.width;
		std::vector<float> dense(3 * edge * edge), wide(3 * (size_t)padded);
		for (int i = 0; i < edge * edge; i++) {
			double x = i % edge - (edge - 1) / 2.0, y = i / edge - (edge - 1) / 2.0, length = sqrt(x * x + y * y + 9);
			double v[] = { -y / length, x / length, 3 / length };
			for (int c = 0; c < 3; c++)
				dense[i + c * edge * edge] = wide[c * padded + i / edge * 2 * edge + i % edge] = v[c];
		}
		CHECK(cudaMemcpy(m, dense.data(), dense.size() * sizeof(float), cudaMemcpyHostToDevice));
		CHECK(cudaMemcpy(now[0], wide.data(), wide.size() * sizeof(float), cudaMemcpyHostToDevice));
	}

	void demagnetize(float *of)
	{
		CHECK(cufftExecR2C(forward, of, spectrum));
		multiply<<<(half + 255) / 256, 256, 0, stream>>>(tensor, spectrum, half);
		CHECK(cufftExecC2R(inverse, spectrum, field));
	}

	dim3 grid() { return dim3((film.width + 31) / 32, (film.height + 7) / 8); }

	void step(float dt)
	{
		for (int stage = 0; stage < 4; stage++) {
			demagnetize(now[stage % 2]);
			advance<<<grid(), dim3(32, 8), 0, stream>>>(film, stage, dt, now[stage % 2], field, m, sum, now[1 - stage % 2]);
		}
		CHECK(cudaGetLastError());
	}

	double joules()
	{
		double *total = allocate<double>(1), host;
		CHECK(cudaDeviceSynchronize());
		demagnetize(now[0]);
		energy<<<grid(), dim3(32, 8), 0, stream>>>(film, now[0], field, total);
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaMemcpy(&host, total, sizeof host, cudaMemcpyDeviceToHost));
		return host * VACUUM * SATURATION * SATURATION * CELL * CELL * THICKNESS;
	}
};

int main(int argc, char **argv)
{
	for (int edge : { 256, 512, 1024 }) {
		Solver s(edge, argc > 1 ? argv[1] : ".");
		cudaGraph_t graph;
		cudaGraphExec_t step;
		CHECK(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
		s.step(0.5 * PICOSECOND);
		CHECK(cudaStreamEndCapture(s.stream, &graph));
		CHECK(cudaGraphInstantiate(&step, graph, 0));
		double best = INFINITY;
		for (int round = 0; round < 5; round++) {
			auto begin = std::chrono::steady_clock::now();
			for (int i = 0; i < STEPS; i++)
				CHECK(cudaGraphLaunch(step, s.stream));
			CHECK(cudaStreamSynchronize(s.stream));
			std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
			best = fmin(best, took.count() * 1000 / STEPS);
		}
		printf("%d x %d: %.4f ms per step, %.4e J\n", edge, edge, best, s.joules());
	}
}
