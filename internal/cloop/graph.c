//go:build cgo && linux

#include <stddef.h>

#include "loops.h"

/* CUDA_KERNEL_NODE_PARAMS */
struct kernel_node {
	uintptr_t function;
	unsigned grid[3], block[3], shared;
	void **params, **extra;
	uintptr_t kernel, context;
};

/* CUgraphExecUpdateResultInfo */
struct updated {
	int result;
	uintptr_t node, from;
};

typedef int create(uintptr_t *graph, unsigned flags);
typedef int destroy(uintptr_t object);
typedef int add(uintptr_t *node, uintptr_t graph, const uintptr_t *deps, size_t count,
	const struct kernel_node *params);
typedef int instantiate(uintptr_t *exec, uintptr_t graph, unsigned long long flags);
typedef int update(uintptr_t exec, uintptr_t graph, struct updated *result);
typedef int set(uintptr_t exec, uintptr_t node, const struct kernel_node *params);

/* A launch with parameters u64, u32 and f32. */
struct launch {
	unsigned long long address;
	unsigned count;
	float value;
	void *params[3];
	struct kernel_node node;
};

static void prepare(struct launch *l, uintptr_t function, uintptr_t address)
{
	*l = (struct launch){ .address = address, .value = 2 };
	l->params[0] = &l->address;
	l->params[1] = &l->count;
	l->params[2] = &l->value;
	l->node = (struct kernel_node){ function, { 1, 1, 1 }, { 1, 1, 1 }, .params = l->params };
}

/* chain builds a graph of launches, one after the other, and destroys it. */
static int chain(create *make, add *more, destroy *end, uintptr_t function, uintptr_t address,
	unsigned kernels)
{
	struct launch l;
	uintptr_t graph, node = 0;
	int code = make(&graph, 0), destroyed;

	if (code)
		return code;
	prepare(&l, function, address);
	for (l.count = 0; l.count < kernels && !code; l.count++) {
		uintptr_t last = node;

		code = more(&node, graph, &last, l.count > 0, &l.node);
	}
	destroyed = end(graph);
	return code ? code : destroyed;
}

int loop_graph_build(const uintptr_t *a, long n)
{
	create *make = (create *)a[0];
	add *more = (add *)a[1];
	destroy *end = (destroy *)a[2];
	uintptr_t function = a[3], address = a[4];
	unsigned kernels = a[5];

	REPEAT(n, chain(make, more, end, function, address, kernels));
}

static int instantiate_destroy(instantiate *make, destroy *end, uintptr_t graph)
{
	uintptr_t exec;
	int code = make(&exec, graph, 0);

	return code ? code : end(exec);
}

int loop_graph_instantiate(const uintptr_t *a, long n)
{
	instantiate *make = (instantiate *)a[0];
	destroy *end = (destroy *)a[1];
	uintptr_t graph = a[2];

	REPEAT(n, instantiate_destroy(make, end, graph));
}

static int update_twice(update *fn, uintptr_t exec, uintptr_t first, uintptr_t second)
{
	struct updated result;
	int code = fn(exec, first, &result);

	return code ? code : fn(exec, second, &result);
}

int loop_graph_update(const uintptr_t *a, long n)
{
	update *fn = (update *)a[0];
	uintptr_t exec = a[1], first = a[2], second = a[3];

	REPEAT(n, update_twice(fn, exec, first, second));
}

static int set_all(set *fn, uintptr_t exec, uintptr_t function, uintptr_t address,
	const uintptr_t *nodes, unsigned kernels)
{
	struct launch l;
	int code = 0;

	prepare(&l, function, address);
	for (l.count = 0; l.count < kernels && !code; l.count++)
		code = fn(exec, nodes[l.count], &l.node);
	return code;
}

int loop_graph_set(const uintptr_t *a, long n)
{
	set *fn = (set *)a[0];
	uintptr_t exec = a[1], function = a[2], address = a[3];
	const uintptr_t *nodes = (const uintptr_t *)a[4];
	unsigned kernels = a[5];

	REPEAT(n, set_all(fn, exec, function, address, nodes, kernels));
}
