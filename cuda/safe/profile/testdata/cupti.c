/* A double of CUPTI: double_work makes the records of a call and of the work that it enqueues, on the thread that calls it. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, MAX_LIMIT = 12, MULTIPLE = 39 };
enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, KERNEL = 10, OVERHEAD = 17, MEMCPY2 = 22, GRAPH = 51, TIMELESS = 101, RUNNING = 102, SLOW = 103 };

static int running; /* kernels in progress, which have no times yet: they keep the buffer, except from a forced flush */
static int calls;   /* that are writing a record: they keep the buffer, and a forced flush crashes, as that of CUPTI may */
static int flushes, early; /* early: while records of calls are enabled, or shortly after: CUPTI may crash, too */
static uint64_t disabled;  /* when */

static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int enabled[64], subscribed, detached = 1, other, refuses;
static uint8_t *buffer;
static size_t size, filled;
static uint64_t dropped;
static uint32_t correlation;
static char kernel[] = "_Z6kernelIfEvPT_i";

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* What tests tell the double. */
void double_other(int on) { other = on; }
void double_refuse(int kind) { refuses = kind; }
int double_early(void) { return early; }
int double_calls(void)
{
	int n;

	pthread_mutex_lock(&mutex);
	n = calls;
	pthread_mutex_unlock(&mutex);
	return n;
}

int double_enabled(void)
{
	int i, n = subscribed;

	for (i = 0; i < 64; i++)
		n += enabled[i];
	return n + !detached;
}

int cuptiGetVersion(uint32_t *v) { *v = 130000; return OK; }

int cuptiGetErrorMessage(int result, const char **s)
{
	(void)result;
	*s = "double";
	return OK;
}

int cuptiSubscribe(uintptr_t *h, void *f, void *u)
{
	(void)u;
	if (!f)
		return INVALID;
	if (subscribed || other)
		return MULTIPLE;
	subscribed = 1;
	detached = 0;
	kernel[0] = '_';
	*h = 5;
	return OK;
}

int cuptiUnsubscribe(uintptr_t h)
{
	if (h != 5 || !subscribed)
		return INVALID;
	subscribed = 0;
	return OK;
}

int cuptiSetThreadIdType(int t) { return t != 1; }

int cuptiActivityRegisterCallbacks(void *a, void *b)
{
	*(void **)&request = a;
	*(void **)&complete = b;
	return OK;
}

int cuptiActivityEnable(int k)
{
	if (k == refuses)
		return 21;
	enabled[k] = 1;
	return OK;
}

int cuptiActivityDisable(int k)
{
	enabled[k] = 0;
	disabled = now();
	return OK;
}

static const char *const names[] = { 0, "cuLaunchKernel", "cuEventQuery", "cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemsetD8Async" };

int cuptiGetCallbackName(int d, uint32_t id, const char **s)
{
	if (d != 1 || id < 1 || id > 5)
		return INVALID;
	*s = names[id];
	return OK;
}

int cuptiGetTimestamp(uint64_t *t) { *t = now(); return OK; }
int cuptiGetContextId(uintptr_t c, uint32_t *id) { (void)c; *id = 1; return detached; }
int cuptiGetStreamIdEx(uintptr_t c, uintptr_t s, uint8_t own, uint32_t *id) { (void)c, (void)s, (void)own; *id = 13; return OK; }

/* Names of kernels are invalid afterwards. */
int cuptiFinalize(void)
{
	if (subscribed)
		return INVALID;
	kernel[0] = '?';
	detached = 1;
	return OK;
}

int cuptiActivityGetNumDroppedRecords(void *c, uint32_t s, uint64_t *d)
{
	(void)c, (void)s;
	pthread_mutex_lock(&mutex);
	*d = dropped;
	dropped = 0;
	pthread_mutex_unlock(&mutex);
	return OK;
}

static size_t size_of(uint32_t kind) { return kind == DRIVER ? 40 : kind == KERNEL ? 240 : 136; }

static void hand_over(void)
{
	if (buffer)
		complete(0, 0, buffer, size, filled);
	buffer = NULL;
}

static uint8_t *append(uint32_t kind)
{
	size_t max;
	uint8_t *r;

	if (buffer && filled + size_of(kind) > size) {
		if (calls) {
			dropped++;
			return NULL;
		}
		hand_over();
	}
	if (!buffer) {
		request(&buffer, &size, &max);
		filled = 0;
	}
	if (!buffer) {
		dropped++;
		return NULL;
	}
	r = buffer + filled;
	memset(r, 0, size_of(kind));
	*(uint32_t *)r = kind;
	filled += size_of(kind);
	return r;
}

static uint8_t *record(uint32_t kind) { return enabled[kind] ? append(kind) : NULL; }

static void put32(uint8_t *r, int at, uint32_t v) { memcpy(r + at, &v, 4); }
static void put64(uint8_t *r, int at, uint64_t v) { memcpy(r + at, &v, 8); }

/* A kernel from 20 to 30 µs after at, a node of a graph or of none. */
static void put_kernel(uint64_t at, int stream, uint32_t graph, uint64_t node)
{
	uint8_t *r = record(KERNEL);

	if (!r)
		return;
	r[6] = 32; /* registers */
	put64(r, 16, at + 20000);
	put64(r, 24, at + 30000);
	put32(r, 44, 1);
	put32(r, 48, stream);
	put32(r, 52, 7); /* grid */
	put32(r, 56, 1);
	put32(r, 60, 1);
	put32(r, 64, 256); /* block */
	put32(r, 68, 1);
	put32(r, 72, 1);
	put32(r, 92, correlation);
	put64(r, 104, (uintptr_t)kernel);
	put64(r, 144, node);
	put32(r, 156, graph);
}

/* A call that takes 5 µs, and work of a kind from 20 to 30 µs after its begin. Offsets are those of CUPTI's structs. */
void double_work(int kind, int stream)
{
	uint64_t at = now();
	uint32_t id = kind == 0 ? 2 : kind == KERNEL || kind > 100 ? 1 : kind == MEMSET ? 5 : kind == GRAPH ? 4 : 3;
	uint8_t *r;

	pthread_mutex_lock(&mutex);
	correlation++;
	if ((r = record(DRIVER))) {
		put32(r, 4, id);
		put64(r, 8, at);
		put64(r, 16, at + 5000);
		put32(r, 28, syscall(SYS_gettid));
		put32(r, 32, correlation);
	}
	if (kind == KERNEL)
		put_kernel(at, stream, 0, 0);
	if (kind == TIMELESS || kind == RUNNING)
		record(KERNEL);
	running += kind == RUNNING;
	if (kind == GRAPH) {
		put_kernel(at, stream, 3, 1);
		put_kernel(at + 5000, stream, 3, 2);
	}
	if (r && kind == SLOW) { /* it takes three flushes */
		int last = flushes + 3;

		calls++;
		while (flushes < last) {
			pthread_mutex_unlock(&mutex);
			usleep(100);
			pthread_mutex_lock(&mutex);
		}
		put64(r, 16, now());
		calls--;
	}
	r = kind == MEMCPY || kind == MEMSET ? record(kind) : NULL;
	if (r && kind == MEMCPY) {
		r[4] = 1; /* to the device */
		put64(r, 8, 1000000);
		put64(r, 16, at + 20000);
		put64(r, 24, at + 30000);
		put32(r, 36, 1);
		put32(r, 40, stream);
		put32(r, 44, correlation);
	}
	if (r && kind == MEMSET) {
		put64(r, 8, 4096);
		put64(r, 16, at + 20000);
		put64(r, 24, at + 30000);
		put32(r, 36, 1);
		put32(r, 40, stream);
		put32(r, 44, correlation);
	}
	pthread_mutex_unlock(&mutex);
	usleep(50);
}

int cuptiActivityFlushAll(uint32_t flag)
{
	pthread_mutex_lock(&mutex);
	flushes++;
	early += enabled[DRIVER] || now() < disabled + 5000000;
	if (flag && calls) {
		fputs("the double of CUPTI: a forced flush during a call\n", stderr);
		abort();
	}
	if (flag)
		running = 0;
	if (!calls && !running)
		hand_over();
	pthread_mutex_unlock(&mutex);
	return OK;
}

int cuptiActivityGetNextRecord(uint8_t *b, size_t valid, uint8_t **r)
{
	uint8_t *p = *r ? *r + size_of(*(uint32_t *)*r) : b;

	if (p >= b + valid)
		return MAX_LIMIT;
	*r = p;
	return OK;
}
