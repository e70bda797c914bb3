#include "sim.h"

/* Host functions of all streams run on one thread, one after another, and the program's kernels on one more. */
struct worker {
	struct item *first, **last;
	pthread_cond_t pushed;
	void (*call)(struct item *i);
};

static bool calling; /* a function of the program's on the thread of host functions */

void callbacks_await(void)
{
	while (calling && !sim.dead)
		await_change();
}

static void host_call(struct item *i)
{
	CUresult code = i->spared ? OK : sim.dead;

	calling = true;
	pthread_mutex_unlock(&sim.lock);
	if (i->work == STATUS)
		i->status(i->stream, code, i->data);
	else if (!code || i->work == DESTROY)
		i->host(i->data);
	pthread_mutex_lock(&sim.lock);
	calling = false;
	changed();
}

static struct worker hosts = {.last = &hosts.first, .pushed = PTHREAD_COND_INITIALIZER, .call = host_call};
static struct worker kernels = {.last = &kernels.first, .pushed = PTHREAD_COND_INITIALIZER, .call = kernel_call};

void elsewhere_push(struct item *i)
{
	struct worker *w = i->work == RUN ? &kernels : &hosts;

	i->queued = 0;
	*w->last = i;
	w->last = &i->queued;
	pthread_cond_signal(&w->pushed);
}

bool elsewhere(const struct item *i)
{
	bool calls = i->work == HOST || i->work == STATUS || (i->work == RUN && i->rest);

	return calls && i->started && !i->finished;
}

static void *calls(void *worker)
{
	struct worker *w = worker;

	thread.in_callback = true;
	pthread_mutex_lock(&sim.lock);
	for (;;) {
		struct item *i = w->first;

		if (!i) {
			pthread_cond_wait(&w->pushed, &sim.lock);
			continue;
		}
		if (!(w->first = i->queued))
			w->last = &w->first;
		w->call(i);
		i->finished = true;
		if (i->orphan)
			item_free(i);
		engine_wake();
	}
	return 0;
}

void elsewhere_start(void)
{
	os_start(calls, &hosts);
	os_start(calls, &kernels);
}

static CUresult push(CUstream handle, struct item *i)
{
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (!r && i->work == STATUS)
		r = on_stream(s);
	if (r) {
		item_free(i);
		return r;
	}
	return enqueue(s, i);
}

/* host puts a function on a stream. The mode, how the driver's thread waits for its turn, changes nothing here. */
static CUresult host(CUstream handle, CUhostFn fn, void *data, unsigned mode)
{
	struct item *i;

	if (!fn || mode > 1)
		return INVALID_VALUE;
	i = item_new(HOST);
	i->host = (void (*)(void *))fn;
	i->data = data;
	return push(handle, i);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
	ENTER(CALLBACK, .does = WORKS, .stream = handle);
	return host(handle, fn, data, 0);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback fn, void *data, unsigned flags)
{
	ENTER(CALLBACK, .does = WORKS, .stream = handle);
	struct item *i;

	if (!fn || flags)
		return INVALID_VALUE;
	i = item_new(STATUS);
	i->status = (void (*)(CUstream, CUresult, void *))fn;
	i->data = data;
	return push(handle, i);
}

CUresult cuLaunchHostFunc_v2(CUstream handle, CUhostFn fn, void *data, unsigned mode)
{
	ENTER(CALLBACK, .does = WORKS, .stream = handle);
	return host(handle, fn, data, mode);
}
