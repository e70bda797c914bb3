/* All-reduces of NCCL in C, as rank.go has them: one rank if RANK is set, or a thread for each GPU. The communicators are
 * blocking ones. Ranks of several processes exchange the identifier by the file RANKS_ID. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 20, GROUPED = 5, REPEATS = 5, MOST = 256 };

#define CUDA(call) \
	do { \
		cudaError_t e_ = (call); \
		if (e_) \
			fail(#call, cudaGetErrorString(e_)); \
	} while (0)
#define NCCL(call) \
	do { \
		ncclResult_t e_ = (call); \
		if (e_) \
			fail(#call, ncclGetErrorString(e_)); \
	} while (0)

static void fail(const char *call, const char *why)
{
	fprintf(stderr, "%s: %s\n", call, why);
	_exit(1);
}

static int size;
static bool brief;
static ncclUniqueId id;

struct rank {
	int number;
	ncclComm_t comm;
	cudaStream_t stream;
	cudaGraphExec_t graph;
	float *memory;
	size_t count;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *all, int n)
{
	qsort(all, n, sizeof *all, compare);
	return all[n / 2];
}

static void sum(struct rank *r)
{
	NCCL(ncclAllReduce(r->memory, r->memory, r->count, ncclFloat, ncclSum, r->comm, r->stream));
}

static void group(struct rank *r)
{
	NCCL(ncclGroupStart());
	for (int i = 0; i < GROUPED; i++)
		sum(r);
	NCCL(ncclGroupEnd());
}

static void launch(struct rank *r) { CUDA(cudaGraphLaunch(r->graph, r->stream)); }

static double single(struct rank *r, int times, void (*f)(struct rank *))
{
	double all[MOST];

	for (int i = -WARM; i < times; i++) {
		double from = now();
		f(r);
		CUDA(cudaStreamSynchronize(r->stream));
		if (i >= 0)
			all[i] = now() - from;
	}
	return median(all, times);
}

static double means(struct rank *r, int times, void (*f)(struct rank *))
{
	double all[REPEATS];

	for (int i = -1; i < REPEATS; i++) {
		double from = now();
		for (int k = 0; k < times; k++)
			f(r);
		CUDA(cudaStreamSynchronize(r->stream));
		if (i >= 0)
			all[i] = (now() - from) / times;
	}
	return median(all, REPEATS);
}

static void measure(struct rank *r, size_t bytes, int times)
{
	cudaGraph_t graph;

	r->count = bytes / sizeof(float);
	CUDA(cudaMemset(r->memory, 0, bytes));
	CUDA(cudaDeviceSynchronize());
	double wait = single(r, times, sum), many = means(r, times, sum);
	double grouped = means(r, times, group);
	CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	sum(r);
	CUDA(cudaStreamEndCapture(r->stream, &graph));
	CUDA(cudaGraphInstantiate(&r->graph, graph, 0));
	double replayed = single(r, times, launch);
	CUDA(cudaGraphExecDestroy(r->graph));
	CUDA(cudaGraphDestroy(graph));
	if (!r->number) {
		printf("{\"bytes\":%zu,\"wait\":%.3f,\"many\":%.3f,\"group\":%.3f,\"graph\":%.3f}\n", bytes, wait, many, grouped, replayed);
		fflush(stdout);
	}
}

static void *be(void *of)
{
	struct rank *r = of;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	int version;

	config.blocking = 1;
	NCCL(ncclGetVersion(&version));
	if (!r->number)
		fprintf(stderr, "C: NCCL %d\n", version);
	CUDA(cudaSetDevice(r->number));
	NCCL(ncclCommInitRankConfig(&r->comm, size, id, r->number, &config));
	CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&r->memory, brief ? 64 << 10 : 256 << 20)); /* once: cudaFree may wait for another rank */
	if (brief) {
		measure(r, 8, 5);
		measure(r, 64 << 10, 5);
	} else {
		measure(r, 8, 200);
		measure(r, 64 << 10, 200);
		measure(r, 1 << 20, 200);
		measure(r, 16 << 20, 200);
		measure(r, 256 << 20, 20);
	}
	CUDA(cudaStreamDestroy(r->stream));
	NCCL(ncclCommFinalize(r->comm));
	NCCL(ncclCommDestroy(r->comm));
	return 0;
}

/* exchange gives all processes the identifier of rank 0. */
static void exchange(int rank)
{
	const char *path = getenv("RANKS_ID");
	char temporary[4096];
	FILE *f;

	if (!path)
		fail("RANKS_ID", "is not set");
	if (rank == 0) {
		NCCL(ncclGetUniqueId(&id));
		snprintf(temporary, sizeof temporary, "%s.new", path);
		if (!(f = fopen(temporary, "wb")) || fwrite(&id, sizeof id, 1, f) != 1 || fclose(f) || rename(temporary, path))
			fail(path, "cannot be written");
		return;
	}
	while (!(f = fopen(path, "rb")))
		usleep(1000);
	if (fread(&id, sizeof id, 1, f) != 1)
		fail(path, "cannot be read");
	fclose(f);
}

int main(int argc, char **argv)
{
	const char *number = getenv("RANK"), *all = getenv("WORLD_SIZE");
	struct rank ranks[64] = {0};
	pthread_t threads[64];

	brief = argc > 1 && !strcmp(argv[1], "-short");
	size = all ? atoi(all) : 0;
	if (size < 1 || size > 64)
		fail("WORLD_SIZE", "is not a number from 1 to 64");
	if (number) {
		ranks[0].number = atoi(number);
		exchange(ranks[0].number);
		be(&ranks[0]);
		return 0;
	}
	NCCL(ncclGetUniqueId(&id));
	for (int i = 0; i < size; i++) {
		ranks[i].number = i;
		if (pthread_create(&threads[i], 0, be, &ranks[i]))
			fail("pthread_create", "failed");
	}
	for (int i = 0; i < size; i++)
		pthread_join(threads[i], 0);
	return 0;
}
