// The contestant in C: peer-c KERNELS.ptx. It answers as serve.go does.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define LARGEST (64L << 20)
#define QUEUE 200
#define STREAMS 8

// Functions of the driver, which is loaded when the program runs.
#define FUNCTIONS(X) \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxSetFlags) \
	X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamQuery) \
	X(cuStreamSynchronize) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuModuleLoadData) \
	X(cuModuleGetFunction) X(cuLaunchKernel) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) \
	X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuDeviceGetDefaultMemPool) X(cuMemPoolSetAttribute) \
	X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuGraphCreate) X(cuGraphDestroy) \
	X(cuGraphAddKernelNode) X(cuGraphInstantiateWithFlags) X(cuGraphExecDestroy) \
	X(cuGraphExecUpdate) X(cuGraphExecKernelNodeSetParams) X(cuGraphKernelNodeSetParams) \
	X(cuGraphLaunch) X(cuStreamBeginCapture) X(cuStreamEndCapture)
#define DECLARE(f) static __typeof__(f) *p_##f;
FUNCTIONS(DECLARE)

static void failed(const char *call, int code)
{
	printf("{\"na\": \"%s: error %d\"}\n", call, code);
	exit(1);
}

#define CHECK(call) do { CUresult code_ = p_##call; if (code_) failed(#call, code_); } while (0)

static CUcontext ctx;
static CUstream s;
static CUevent ev;
static CUfunction nothing, three, sixteen, spin, mulby;
static CUdeviceptr mem;
static char *host; // pinned: the first half is copied to the device, the second from it
static long arg;   // of the item

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static double cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static CUstream new_stream(void)
{
	CUstream x;

	CHECK(cuStreamCreate(&x, CU_STREAM_NON_BLOCKING));
	return x;
}

static void launch(CUfunction f, CUstream on, void **params)
{
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, on, params, 0));
}

static void launch_3(void)
{
	CUdeviceptr a = mem;
	unsigned c = 1;
	float f = 2;
	void *params[] = {&a, &c, &f};

	launch(three, s, params);
}

static void launch_spin(unsigned long ns, CUstream on)
{
	void *params[] = {&ns};

	launch(spin, on, params);
}

// The operations of items. An item repeats one of them n times.
static void event_record(void) { CHECK(cuEventRecord(ev, s)); }
static void event_query(void) { CHECK(cuEventQuery(ev)); }
static void stream_query(void) { CHECK(cuStreamQuery(s)); }
static void stream_create(void) { CHECK(cuStreamDestroy(new_stream())); }
static void launch_0(void) { launch(nothing, s, 0); }

static void launch_16(void)
{
	unsigned long v[16];
	void *params[16];

	for (int i = 0; i < 16; i++) {
		v[i] = i;
		params[i] = &v[i];
	}
	launch(sixteen, s, params);
}

static void launch_100(void)
{
	for (int i = 0; i < 100; i++)
		launch_3();
}

static void async_alloc(void)
{
	CUdeviceptr p;

	CHECK(cuMemAllocAsync(&p, 4096, s));
	CHECK(cuMemFreeAsync(p, s));
}

static void buf_alloc(void)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, arg));
	CHECK(cuMemFree(p));
}

static void h2d(void)
{
	CHECK(cuMemcpyHtoDAsync(mem, host, arg, s));
	CHECK(cuStreamSynchronize(s));
}

static void d2h(void)
{
	CHECK(cuMemcpyDtoHAsync(host, mem, arg, s));
	CHECK(cuStreamSynchronize(s));
}

// A chain of kernels, twice, and executables of it: one to change, and one to launch.
static struct {
	long kernels;
	CUgraph graphs[2];
	CUgraphExec exec, fresh;
	CUgraphNode *nodes; // of the first graph
	CUDA_KERNEL_NODE_PARAMS params;
	CUdeviceptr a;
	unsigned c;
	float f;
	void *args[3];
} chain;

static CUgraph build(long kernels, CUgraphNode *out)
{
	CUgraph g;
	CUgraphNode node = 0;

	CHECK(cuGraphCreate(&g, 0));
	for (long i = 0; i < kernels; i++) {
		CUgraphNode last = node;

		CHECK(cuGraphAddKernelNode(&node, g, i ? &last : 0, i ? 1 : 0, &chain.params));
		if (out)
			out[i] = node;
	}
	return g;
}

static CUgraphExec instantiate(CUgraph g)
{
	CUgraphExec x;

	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	return x;
}

static void prepare_params(void)
{
	CUDA_KERNEL_NODE_PARAMS *p = &chain.params;

	chain.a = mem;
	chain.c = 1;
	chain.f = 2;
	chain.args[0] = &chain.a;
	chain.args[1] = &chain.c;
	chain.args[2] = &chain.f;
	p->func = three;
	p->gridDimX = p->gridDimY = p->gridDimZ = p->blockDimX = p->blockDimY = p->blockDimZ = 1;
	p->kernelParams = chain.args;
}

static void prepare(void)
{
	if (chain.kernels == arg)
		return;
	if (chain.kernels) {
		CHECK(cuGraphExecDestroy(chain.exec));
		CHECK(cuGraphExecDestroy(chain.fresh));
		CHECK(cuGraphDestroy(chain.graphs[0]));
		CHECK(cuGraphDestroy(chain.graphs[1]));
	}
	chain.nodes = realloc(chain.nodes, arg * sizeof(*chain.nodes));
	chain.graphs[0] = build(arg, chain.nodes);
	chain.graphs[1] = build(arg, 0);
	chain.exec = instantiate(chain.graphs[0]);
	chain.fresh = instantiate(chain.graphs[0]);
	chain.kernels = arg;
}

static void graph_empty(void) { CHECK(cuGraphDestroy(build(0, 0))); }
static void graph_build(void) { CHECK(cuGraphDestroy(build(arg, 0))); }
static void graph_inst(void) { CHECK(cuGraphExecDestroy(instantiate(chain.graphs[0]))); }
static void graph_launch(void) { CHECK(cuGraphLaunch(chain.fresh, s)); }

static void graph_capture(void)
{
	CUgraph g;

	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (long i = 0; i < arg; i++)
		launch_3();
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphExecDestroy(instantiate(g)));
	CHECK(cuGraphDestroy(g));
}

static void graph_update(void)
{
	CUgraphExecUpdateResultInfo info;

	CHECK(cuGraphExecUpdate(chain.exec, chain.graphs[1], &info));
}

static void graph_set(void)
{
	for (long i = 0; i < arg; i++)
		CHECK(cuGraphExecKernelNodeSetParams(chain.exec, chain.nodes[i], &chain.params));
}

static void graph_node_set(void)
{
	for (long i = 0; i < arg; i++)
		CHECK(cuGraphKernelNodeSetParams(chain.nodes[i], &chain.params));
}

static void graph_wait(void)
{
	CHECK(cuGraphLaunch(chain.fresh, s));
	CHECK(cuStreamSynchronize(s));
}

// pipe_of copies pieces to the device, doubles them and copies them back, on 8 streams in turns.
static void pipe_of(long pieces, long size)
{
	static CUstream own[STREAMS];
	long slots = LARGEST / 2 / size;
	unsigned count = size / 4;
	float factor = 2;

	for (int i = 0; i < STREAMS && !own[i]; i++)
		own[i] = new_stream();
	for (long i = 0; i < pieces; i++) {
		CUstream on = own[i % STREAMS];
		CUdeviceptr at = mem + i % STREAMS * size;
		long offset = i % slots * size;
		void *params[] = {&at, &count, &factor};

		CHECK(cuMemcpyHtoDAsync(at, host + offset, size, on));
		CHECK(cuLaunchKernel(mulby, (count + 255) / 256, 1, 1, 256, 1, 1, 0, on, params, 0));
		CHECK(cuMemcpyDtoHAsync(host + LARGEST / 2 + offset, at, size, on));
	}
	for (int i = 0; i < STREAMS; i++)
		CHECK(cuStreamSynchronize(own[i]));
}

static void pipe_1m(void) { pipe_of(256, 1 << 20); }
static void pipe_16k(void) { pipe_of(2048, 16 << 10); }

static struct item {
	const char *name;
	void (*f)(void);
	long queue; // operations between two waits for the device, 0 for any number
	int chain;  // it works on a chain of kernels
	long n, arg; // operations of a round, for this argument
} items[] = {
#define ITEM(f, queue, chain) {#f, f, queue, chain, 0, 0}
	ITEM(event_record, QUEUE, 0), ITEM(event_query, 0, 0), ITEM(stream_query, 0, 0),
	ITEM(launch_0, QUEUE, 0), ITEM(launch_3, QUEUE, 0), ITEM(launch_16, QUEUE, 0),
	ITEM(launch_100, 2, 0), ITEM(stream_create, 0, 0), ITEM(async_alloc, QUEUE, 0),
	ITEM(buf_alloc, 0, 0), ITEM(h2d, 0, 0), ITEM(d2h, 0, 0), ITEM(graph_empty, 0, 0),
	ITEM(graph_build, 0, 1), ITEM(graph_inst, 0, 1), ITEM(graph_capture, 0, 0),
	ITEM(graph_update, 0, 1), ITEM(graph_set, 0, 1), ITEM(graph_node_set, 0, 1),
	ITEM(graph_launch, -1, 1), ITEM(graph_wait, 0, 1), ITEM(pipe_1m, 0, 0), ITEM(pipe_16k, 0, 0),
};

// timed is how many ns n operations take, without the waits for the device.
static double timed(const struct item *it, long n)
{
	double total = 0;
	long queue = it->queue ? it->queue : n;

	if (queue < 0)
		queue = QUEUE / arg > 4 ? QUEUE / arg : 4;
	while (n > 0) {
		long k = n < queue ? n : queue;
		double start;

		CHECK(cuCtxSynchronize());
		start = now();
		for (long i = 0; i < k; i++)
			it->f();
		total += now() - start;
		n -= k;
	}
	CHECK(cuCtxSynchronize());
	return total;
}

static void measure(struct item *it, double ms)
{
	const float *out = (float *)(host + LARGEST / 2);
	int wrong;
	double t;

	if (it->chain)
		prepare();
	if (!it->n || it->arg != arg) {
		it->arg = arg;
		timed(it, 1); // can take milliseconds, to load a kernel or to fill a pool
		for (it->n = 1;; it->n *= 2) {
			t = timed(it, it->n);
			if (t >= ms * 1e6 / 4 || it->n >= 1 << 22)
				break;
		}
		it->n = it->n * ms * 1e6 / t;
		if (it->n < 1)
			it->n = 1;
	}
	timed(it, it->n / 8 + 1);
	t = timed(it, it->n);
	wrong = !strncmp(it->name, "pipe", 4) && (out[0] != 2 || out[LARGEST / 8 - 1] != 2);
	printf("{\"ns\": %.2f, \"wrong\": %s}\n", t / it->n, wrong ? "true" : "false");
}

static void waits(long us)
{
	long n = us >= 2000 ? 40 : us >= 200 ? 150 : 800;
	double samples[800], cpu;

	for (long i = -3; i < n; i++) {
		double start;

		if (i == 0)
			cpu = cpu_us();
		start = now();
		if (us)
			launch_spin(us * 1000, s);
		else
			launch_0();
		CHECK(cuStreamSynchronize(s));
		if (i >= 0)
			samples[i] = now() - start;
	}
	cpu = cpu_us() - cpu;
	printf("{\"s\": [");
	for (long i = 0; i < n; i++)
		printf("%s%.1f", i ? "," : "", samples[i] / 1e3);
	printf("], \"cpu\": %.2f}\n", cpu / n);
}

// Workers, each with a stream of its own.
static CUstream *worker_streams;
static pthread_barrier_t gate;
static long worker_reps;

static void *worker(void *number)
{
	CUstream on = worker_streams[(long)number];

	CHECK(cuCtxSetCurrent(ctx));
	pthread_barrier_wait(&gate);
	for (long i = 0; i < worker_reps; i++) {
		launch_spin(500000, on);
		CHECK(cuStreamSynchronize(on));
	}
	pthread_barrier_wait(&gate);
	return 0;
}

static void many(long workers, long reps)
{
	pthread_t *threads = malloc(workers * sizeof(*threads));
	pthread_attr_t small;
	double t, cpu;

	worker_reps = reps;
	worker_streams = malloc(workers * sizeof(*worker_streams));
	for (long i = 0; i < workers; i++) {
		worker_streams[i] = new_stream();
		launch_spin(1000, worker_streams[i]);
	}
	CHECK(cuCtxSynchronize());
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	pthread_barrier_init(&gate, 0, workers + 1);
	for (long i = 0; i < workers; i++)
		if (pthread_create(&threads[i], &small, worker, (void *)i))
			failed("pthread_create", 0);
	cpu = cpu_us();
	pthread_barrier_wait(&gate);
	t = now();
	pthread_barrier_wait(&gate);
	t = now() - t;
	cpu = cpu_us() - cpu;
	for (long i = 0; i < workers; i++) {
		pthread_join(threads[i], 0);
		CHECK(cuStreamDestroy(worker_streams[i]));
	}
	free(threads);
	free(worker_streams);
	printf("{\"wall\": %.3f, \"cpu\": %.3f}\n", t / 1e6, cpu / 1e3);
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		failed("libcuda.so.1 does not load", 0);
#define STRING(x) #x
#define NAME(x) STRING(x)
#define LOAD(f) if (!(*(void **)&p_##f = dlsym(library, NAME(f)))) failed("the driver lacks " NAME(f), 0);
	FUNCTIONS(LOAD)
}

// image is the text of a file, for ever.
static char *image(const char *file)
{
	static char text[1 << 16];
	FILE *f = fopen(file, "r");

	if (!f || fread(text, 1, sizeof(text) - 1, f) == 0)
		failed(file, 0);
	fclose(f);
	return text;
}

static void open_gpu(const char *kernels)
{
	CUmemoryPool pool;
	cuuint64_t all = ~0ull;
	CUmodule module;
	CUdevice device;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_SPIN));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
	CHECK(cuCtxSetCurrent(ctx));
	s = new_stream();
	CHECK(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(ev, s));
	CHECK(cuModuleLoadData(&module, image(kernels)));
	CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
	CHECK(cuModuleGetFunction(&three, module, "three"));
	CHECK(cuModuleGetFunction(&sixteen, module, "sixteen"));
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	CHECK(cuModuleGetFunction(&mulby, module, "mulby"));
	CHECK(cuMemAlloc(&mem, LARGEST));
	CHECK(cuMemHostAlloc((void **)&host, LARGEST, 0));
	for (long i = 0; i < LARGEST / 4; i++)
		((float *)host)[i] = 1;
	CHECK(cuDeviceGetDefaultMemPool(&pool, device));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	prepare_params();
}

int main(int argc, char **argv)
{
	char line[256], name[64];

	if (argc != 2)
		failed("usage: peer-c KERNELS.ptx", 0);
	load();
	open_gpu(argv[1]);
	printf("{\"ready\": \"C\"}\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		size_t i = 0, all = sizeof(items) / sizeof(*items);
		double ms = 20;

		arg = 0;
		if (sscanf(line, "%63s %ld %lf", name, &arg, &ms) < 1)
			continue;
		while (i < all && strcmp(items[i].name, name))
			i++;
		if (i < all)
			measure(&items[i], ms);
		else if (!strcmp(name, "wait"))
			waits(arg);
		else if (!strcmp(name, "many"))
			many(arg, ms);
		else
			puts("{\"na\": \"none\"}");
		fflush(stdout);
	}
	return 0;
}
