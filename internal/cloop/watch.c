//go:build cgo && linux

#include <pthread.h>
#include <stdlib.h>

#include "cloop.h"

typedef int of_handle(uintptr_t handle);

struct cloop_watch {
	pthread_t thread;
	of_handle *synchronize, *set_current;
	uintptr_t event, context;
	int64_t at;
	int code;
};

static void *watch(void *watch)
{
	struct cloop_watch *w = watch;

	w->code = w->set_current(w->context);
	if (!w->code)
		w->code = w->synchronize(w->event);
	w->at = cloop_now();
	return 0;
}

/* cloop_watch starts a thread, in a context, that waits for an event. */
struct cloop_watch *cloop_watch(const uintptr_t *a)
{
	struct cloop_watch *w = calloc(1, sizeof *w);

	if (!w)
		return 0;
	w->synchronize = (of_handle *)a[0];
	w->event = a[1];
	w->set_current = (of_handle *)a[2];
	w->context = a[3];
	if (!pthread_create(&w->thread, 0, watch, w))
		return w;
	free(w);
	return 0;
}

/* cloop_watched waits for the thread, and tells when the event was done for it. */
int cloop_watched(struct cloop_watch *w, int64_t *at)
{
	int code;

	pthread_join(w->thread, 0);
	*at = w->at;
	code = w->code;
	free(w);
	return code;
}
