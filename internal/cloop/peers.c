//go:build cgo && linux

#include <stddef.h>

#include "loops.h"

typedef int copy_peer(uintptr_t dst, uintptr_t to, uintptr_t src, uintptr_t from, size_t size,
	uintptr_t stream);
typedef int of_handle(uintptr_t handle);
typedef int pop(uintptr_t *context);

/* The functions, as they lie in the arguments. */
struct functions {
	copy_peer *copy;
	of_handle *push, *synchronize;
	pop *pop;
};

/* A copy, as it lies in the arguments. */
struct peer_copy {
	uintptr_t dst, to, src, from, stream;
};

/* in_context starts a copy, or waits for it, with its stream's context current: drivers before
CUDA 13 may want that. */
static int in_context(const struct functions *fn, const struct peer_copy *c, size_t size, int wait)
{
	uintptr_t context;
	int code = fn->push(c->from), popped;

	if (code)
		return code;
	if (wait)
		code = fn->synchronize(c->stream);
	else
		code = fn->copy(c->dst, c->to, c->src, c->from, size, c->stream);
	popped = fn->pop(&context);
	return code ? code : popped;
}

/* copies starts all copies, and waits for them. */
static int copies(const struct functions *fn, size_t size, const struct peer_copy *c, int count)
{
	int code = 0;

	for (int i = 0; i < count && !code; i++)
		code = in_context(fn, &c[i], size, 0);
	for (int i = 0; i < count && !code; i++)
		code = in_context(fn, &c[i], size, 1);
	return code;
}

int loop_peers(const uintptr_t *a, long n)
{
	const struct functions *fn = (const struct functions *)a;
	size_t size = a[4];
	int count = a[5];
	const struct peer_copy *c = (const struct peer_copy *)&a[6];

	REPEAT(n, copies(fn, size, c, count));
}
