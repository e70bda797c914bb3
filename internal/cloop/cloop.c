//go:build cgo && linux

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "cloop.h"
#include "loops.h"

void cloop_empty(void)
{
}

int64_t cloop_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* cloop_symbol finds a function of a library that is loaded already. */
uintptr_t cloop_symbol(const char *file, const char *name)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
	uintptr_t symbol = lib ? (uintptr_t)dlsym(lib, name) : 0;

	if (lib)
		dlclose(lib);
	return symbol;
}

/* The functions of the driver that the loops call. Handles are numbers. */
typedef int get_version(int *version);
typedef int query(uintptr_t object);
typedef int record(uintptr_t event, uintptr_t stream);
typedef int wait_event(uintptr_t stream, uintptr_t event, unsigned flags);
typedef int launch(uintptr_t function, unsigned gx, unsigned gy, unsigned gz,
	unsigned bx, unsigned by, unsigned bz, unsigned shared, uintptr_t stream,
	void **params, void **extra);
typedef int create(uintptr_t *object, unsigned flags);
typedef int destroy(uintptr_t object);
typedef int alloc(unsigned long long *address, size_t size, uintptr_t stream);
typedef int release(unsigned long long address, uintptr_t stream);
/* One of the ends is an address of the host, the other a number as wide. */
typedef int copy(uintptr_t dst, uintptr_t src, size_t size);
typedef int copy_async(uintptr_t dst, uintptr_t src, size_t size, uintptr_t stream);
typedef int host_func(uintptr_t stream, void (*f)(void *), void *data);

static int loop_empty(const uintptr_t *a, long n)
{
	void (*volatile fn)(void) = cloop_empty;

	while (n-- > 0)
		fn();
	return 0;
}

static int loop_version(const uintptr_t *a, long n)
{
	get_version *fn = (get_version *)a[0];
	int version;

	REPEAT(n, fn(&version));
}

static int loop_query(const uintptr_t *a, long n)
{
	query *fn = (query *)a[0];
	uintptr_t object = a[1];

	REPEAT(n, fn(object));
}

struct half {
	const uintptr_t *args;
	long n;
	int code;
};

static void *query_half(void *half)
{
	struct half *h = half;
	query *set_current = (query *)h->args[2];

	h->code = set_current(h->args[3]);
	if (!h->code)
		h->code = loop_query(h->args, h->n);
	return 0;
}

/* loop_query_pair has two threads, in a context, that make n calls each. */
static int loop_query_pair(const uintptr_t *a, long n)
{
	struct half halves[2] = { { a, n, 0 }, { a, n, 0 } };
	pthread_t threads[2];
	int started = 0;

	while (started < 2 && !pthread_create(&threads[started], 0, query_half, &halves[started]))
		started++;
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], 0);
	if (started < 2)
		return 304; /* the operating system refused */
	return halves[0].code ? halves[0].code : halves[1].code;
}

static int loop_record(const uintptr_t *a, long n)
{
	record *fn = (record *)a[0];
	uintptr_t event = a[1], stream = a[2];

	REPEAT(n, fn(event, stream));
}

static int loop_wait_event(const uintptr_t *a, long n)
{
	wait_event *fn = (wait_event *)a[0];
	uintptr_t stream = a[1], event = a[2];

	REPEAT(n, fn(stream, event, 0));
}

static int launch0(launch *fn, uintptr_t function, uintptr_t stream)
{
	return fn(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
}

static int loop_launch0(const uintptr_t *a, long n)
{
	launch *fn = (launch *)a[0];
	uintptr_t function = a[1], stream = a[2];

	REPEAT(n, launch0(fn, function, stream));
}

static int launch3(launch *fn, uintptr_t function, uintptr_t stream,
	unsigned long long address, unsigned count, float value)
{
	void *params[] = { &address, &count, &value };

	return fn(function, 1, 1, 1, 1, 1, 1, 0, stream, params, 0);
}

static int loop_launch3(const uintptr_t *a, long n)
{
	launch *fn = (launch *)a[0];
	uintptr_t function = a[1], stream = a[2], address = a[3];

	REPEAT(n, launch3(fn, function, stream, address, 1, 2));
}

static int launch16(launch *fn, uintptr_t function, uintptr_t stream)
{
	unsigned long long values[16];
	void *params[16];

	for (int i = 0; i < 16; i++) {
		values[i] = i;
		params[i] = &values[i];
	}
	return fn(function, 1, 1, 1, 1, 1, 1, 0, stream, params, 0);
}

static int loop_launch16(const uintptr_t *a, long n)
{
	launch *fn = (launch *)a[0];
	uintptr_t function = a[1], stream = a[2];

	REPEAT(n, launch16(fn, function, stream));
}

static int create_destroy(create *make, destroy *end, unsigned flags)
{
	uintptr_t object;
	int code = make(&object, flags);

	return code ? code : end(object);
}

static int loop_create_destroy(const uintptr_t *a, long n)
{
	create *make = (create *)a[0];
	destroy *end = (destroy *)a[1];
	unsigned flags = a[2];

	REPEAT(n, create_destroy(make, end, flags));
}

static int alloc_free(alloc *get, release *give, size_t size, uintptr_t stream)
{
	unsigned long long address;
	int code = get(&address, size, stream);

	return code ? code : give(address, stream);
}

static int loop_alloc_free(const uintptr_t *a, long n)
{
	alloc *get = (alloc *)a[0];
	release *give = (release *)a[1];
	uintptr_t size = a[2], stream = a[3];

	REPEAT(n, alloc_free(get, give, size, stream));
}

static int loop_copy(const uintptr_t *a, long n)
{
	copy *fn = (copy *)a[0];
	uintptr_t dst = a[1], src = a[2], size = a[3];

	REPEAT(n, fn(dst, src, size));
}

static int copy_and_wait(copy_async *fn, query *synchronize, uintptr_t dst, uintptr_t src,
	size_t size, uintptr_t stream)
{
	int code = fn(dst, src, size, stream);

	return code ? code : synchronize(stream);
}

static int loop_copy_and_wait(const uintptr_t *a, long n)
{
	copy_async *fn = (copy_async *)a[0];
	query *synchronize = (query *)a[1];
	uintptr_t dst = a[2], src = a[3], size = a[4], stream = a[5];

	REPEAT(n, copy_and_wait(fn, synchronize, dst, src, size, stream));
}

static int launch_and_wait(launch *fn, query *synchronize, uintptr_t function, uintptr_t stream,
	unsigned long long value)
{
	void *params[] = { &value };
	int code = fn(function, 1, 1, 1, 1, 1, 1, 0, stream, params, 0);

	return code ? code : synchronize(stream);
}

static int loop_launch_and_wait(const uintptr_t *a, long n)
{
	launch *fn = (launch *)a[0];
	query *synchronize = (query *)a[1];
	uintptr_t function = a[2], stream = a[3], value = a[4];

	REPEAT(n, launch_and_wait(fn, synchronize, function, stream, value));
}

static int graph_and_wait(record *fn, query *synchronize, uintptr_t graph, uintptr_t stream)
{
	int code = fn(graph, stream);

	return code ? code : synchronize(stream);
}

static int loop_graph_and_wait(const uintptr_t *a, long n)
{
	record *fn = (record *)a[0];
	query *synchronize = (query *)a[1];
	uintptr_t graph = a[2], stream = a[3];

	REPEAT(n, graph_and_wait(fn, synchronize, graph, stream));
}

static void count(void *counter)
{
	__atomic_add_fetch((long *)counter, 1, __ATOMIC_RELEASE);
}

/* loop_host_func returns when all of its host functions have run. */
static int loop_host_func(const uintptr_t *a, long n)
{
	host_func *fn = (host_func *)a[0];
	uintptr_t stream = a[1];
	long asked = 0, ran = 0;
	int code = 0;

	while (asked < n && !(code = fn(stream, count, &ran)))
		asked++;
	while (__atomic_load_n(&ran, __ATOMIC_ACQUIRE) < asked)
		;
	return code;
}

/* In the order of Loop's values. */
static int (*const loops[])(const uintptr_t *a, long n) = {
	loop_empty,
	loop_version,
	loop_query,
	loop_query_pair,
	loop_record,
	loop_wait_event,
	loop_launch0,
	loop_launch3,
	loop_launch16,
	loop_create_destroy,
	loop_alloc_free,
	loop_copy,
	loop_copy_and_wait,
	loop_launch_and_wait,
	loop_record, /* of a graph and a stream */
	loop_graph_and_wait,
	loop_host_func,
	loop_graph_build,
	loop_graph_instantiate,
	loop_graph_update,
	loop_graph_set,
	loop_peers,
	loop_step,
	loop_transform,
	loop_launch_parts,
};

int cloop_run(unsigned loop, const uintptr_t *args, long n)
{
	return loops[loop](args, n);
}

int cloop_timed(unsigned loop, const uintptr_t *args, int64_t *ns, long n)
{
	int code = 0;

	for (long i = 0; i < n && !code; i++) {
		int64_t start = cloop_now();

		code = loops[loop](args, 1);
		ns[i] = cloop_now() - start;
	}
	return code;
}
