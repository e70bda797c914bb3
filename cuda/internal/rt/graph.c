//go:build cgo && linux && (amd64 || arm64)

#include <stdlib.h>

#include "rt_internal.h"

/* count_nodes counts the nodes of a graph, and those of some types. */
static CUresult count_nodes(struct rt_instantiation *i)
{
	enum { KERNEL = 0, GRAPH = 4, CONDITIONAL = 13 };
	CUgraphNode some[64], *nodes = some;
	size_t n = 0;
	CUresult r = rt_cu.cuGraphGetNodes((CUgraph)i->graph, 0, &n);

	if (r)
		return r;
	i->nodes = n;
	if (n > sizeof some / sizeof *some && !(nodes = malloc(n * sizeof *nodes)))
		return 0; /* none of them counts as a kernel */
	if (n)
		r = rt_cu.cuGraphGetNodes((CUgraph)i->graph, nodes, &n);
	for (size_t k = 0; !r && k < n; k++) {
		CUgraphNodeType type;

		if ((r = rt_cu.cuGraphNodeGetType(nodes[k], &type)))
			break;
		i->kernels += type == KERNEL;
		i->graphs += type == GRAPH || type == CONDITIONAL;
	}
	if (nodes != some)
		free(nodes);
	return r;
}

/* CUDA_GRAPH_INSTANTIATE_PARAMS, which ztypes.h only declares. */
struct instantiate_params {
	unsigned long long flags;
	uintptr_t upload, failed;
	int result;
};

CUresult rt_instantiate(unsigned char *instantiation)
{
	enum { NOT_SUPPORTED = 801 };
	struct rt_instantiation *i = (struct rt_instantiation *)instantiation;
	struct instantiate_params p = {.flags = i->flags};
	struct rt_scope s;
	CUresult r = rt_begin_home(&s, i->context, i->home, i->id, 1);

	if (r)
		return r;
	if (!(r = count_nodes(i))) {
		r = NOT_SUPPORTED;
		if (rt_cu.cuGraphInstantiateWithParams)
			r = rt_cu.cuGraphInstantiateWithParams((CUgraphExec *)&i->exec, (CUgraph)i->graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)&p);
		if (r == NOT_SUPPORTED)
			r = rt_cu.cuGraphInstantiateWithFlags((CUgraphExec *)&i->exec, (CUgraph)i->graph, i->flags);
		i->failed = p.failed;
		i->result = p.result;
	}
	rt_end(&s);
	return r;
}

/* CUDA_KERNEL_NODE_PARAMS, which ztypes.h only declares. */
struct kernel_params {
	uintptr_t function;
	unsigned grid[3], block[3], shared;
	void **params, **extra;
	uintptr_t kernel, context;
};

/* add_or_set adds a node to a graph, or changes a node in a graph or an executable. */
static CUresult add_or_set(unsigned what, uintptr_t of, uintptr_t *node, const CUgraphNode *deps, unsigned ndeps, const CUDA_KERNEL_NODE_PARAMS *p)
{
	if (what == RT_ADD)
		return rt_cu.cuGraphAddKernelNode_v2((CUgraphNode *)node, (CUgraph)of, deps, ndeps, p);
	if (what == RT_SET)
		return rt_cu.cuGraphKernelNodeSetParams_v2((CUgraphNode)*node, p);
	return rt_cu.cuGraphExecKernelNodeSetParams_v2((CUgraphExec)of, (CUgraphNode)*node, p);
}

CUresult rt_kernel_node(unsigned char *node, unsigned char *deps, unsigned char *args)
{
	struct rt_node *n = (struct rt_node *)node;
	void *params[n->args ? n->args : 1];
	struct kernel_params k = {.function = n->function, .shared = n->shared, .params = params};
	const CUDA_KERNEL_NODE_PARAMS *p = (const CUDA_KERNEL_NODE_PARAMS *)&k;
	struct rt_scope s;
	CUresult r = rt_begin(&s, n->context, 1); /* without a context, adding a node crashes the driver */

	if (r)
		return r;
	for (int i = 0; i < 3; i++) {
		k.grid[i] = n->grid[i];
		k.block[i] = n->block[i];
	}
	rt_fill(params, (struct rt_arg *)args, n->args);
	r = add_or_set(n->what, n->what == RT_ADD ? n->graph : n->exec, &n->node, (const CUgraphNode *)deps, n->deps, p);
	rt_end(&s);
	return r;
}

/* from_list adds or changes one node of a list. */
static CUresult from_list(unsigned what, uintptr_t of, unsigned long long *w, uintptr_t *nodes, unsigned i)
{
	unsigned *dims = (unsigned *)(w + 2), nargs = dims[7], ndeps = (unsigned)(w[0] >> 32);
	unsigned long long *dep = w + 6, *arg = dep + ndeps;
	void *params[nargs ? nargs : 1];
	struct kernel_params k = {
		w[1], {dims[0], dims[1], dims[2]}, {dims[3], dims[4], dims[5]}, dims[6], params,
	};

	for (unsigned n = 0; n < ndeps; n++) /* in the list: the stack may be too small for all */
		if (dep[n] & RT_SAME_LIST)
			dep[n] = nodes[dep[n] & ~RT_SAME_LIST];
	for (unsigned n = 0; n < nargs; n++, arg += 1 + *arg)
		params[n] = arg + 1;
	return add_or_set(what, of, nodes + i, (const CUgraphNode *)dep, ndeps, (const CUDA_KERNEL_NODE_PARAMS *)&k);
}

/*
 * rt_kernel_nodes adds n nodes to a graph, which sets nodes, or changes them in a graph or an
 * executable, up to the first error. It returns the code, and in the upper half how many calls
 * have succeeded.
 */
unsigned long long rt_kernel_nodes(uintptr_t context, uintptr_t of, unsigned what, unsigned n, unsigned char *list, unsigned char *nodes)
{
	unsigned long long *w = (unsigned long long *)list, done = 0;
	struct rt_scope s;
	CUresult r = rt_begin(&s, context, 1);

	if (r)
		return r;
	for (; done < n && !(r = from_list(what, of, w, (uintptr_t *)nodes, done)); done++)
		w += (unsigned)w[0];
	rt_end(&s);
	return done << 32 | r;
}
