#include "sim.h"

unsigned node_type(const struct item *i)
{
	static const unsigned char types[] = {
		[RUN] = 0, [COPY] = 1, [SET] = 2, [HOST] = 3, [NOTHING] = 5, [WAIT] = 6, [RECORD] = 7,
		[APPEAR] = 10, [VANISH] = 11, [MEMOP] = 12, [CHILD] = 4, [CONDITION] = 13, [SIGNAL] = 8, [AWAIT] = 9,
	};

	return types[i->work];
}

/* add adds the node of an item, which there is if r is OK. */
static CUresult add(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n, CUresult r, struct item *i)
{
	struct graph *g = graph_get(graph);
	struct edges edges = {0};

	if (r)
		return r;
	if (!g || !handle || (g->capture && g->capture->again))
		r = INVALID_VALUE;
	else
		r = edges_read(&edges, g, deps, data, n);
	if (!r)
		r = edges_fit(&edges, i) ? graph_takes(g, i) : INVALID_VALUE;
	if (r)
		item_free(i);
	else
		*handle = graph_add(g, i, &edges)->handle;
	edges_clear(&edges);
	return r;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	return add(handle, graph, deps, 0, n, OK, item_new(NOTHING));
}

/* ADD adds what a maker makes of the rest of a function's parameters. */
#define ADD(maker, ...) \
	ENTER(0, .does = ALTERS, .graph = graph); \
	struct item *i = 0; \
	CUresult r = maker(__VA_ARGS__, &i); \
	return add(handle, graph, deps, 0, n, r, i)

CUresult cuGraphAddHostNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_HOST_NODE_PARAMS *p)
{
	ADD(make_host, p, 0);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	ADD(make_kernel, p);
}

CUresult cuGraphAddKernelNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	ADD(make_kernel_v1, p);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
	ADD(make_set, p, context);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_MEMCPY3D *p, CUcontext context)
{
	ADD(make_copy, p, context);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event)
{
	ADD(make_event, RECORD, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event)
{
	ADD(make_event, WAIT, event);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, CUgraph child)
{
	ADD(make_child, child, 0, graph_get(graph));
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	ADD(make_alloc, p);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, CUdeviceptr address)
{
	ADD(make_free, address, graph_get(graph));
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	ADD(make_ops, p);
}

CUresult cuGraphAddExternalSemaphoresSignalNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p)
{
	ADD(make_signals, p);
}

CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p)
{
	ADD(make_awaits, p);
}

static CUresult add_any(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	struct item *i = 0;
	CUresult r = make(p, graph_get(graph), &i);

	return add(handle, graph, deps, data, n, r, i);
}

CUresult cuGraphAddNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, CUgraphNodeParams *p)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	return add_any(handle, graph, deps, 0, n, p);
}

CUresult cuGraphAddNode_v2(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	return add_any(handle, graph, deps, data, n, p);
}

CUresult cuGraphAddNode_v3(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	CUresult r = make_suits(p);

	return r ? r : add_any(handle, graph, deps, data, n, p);
}

/* edge_of is the one that two nodes would be joined by, if they may be. */
static bool edge_of(struct graph *g, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data, struct edges *e)
{
	struct node *node = handle_get(NODE, to);

	return node && node->graph == g && from != to && !edges_read(e, g, &from, data, 1)
		&& edges_fit(e, node->item) && !edges_have(&node->deps, e->list[0].node);
}

/* depend adds the edges up to one that cannot be. */
static CUresult depend(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n)
{
	struct graph *g = graph_get(graph);

	if (!g || (n && (!from || !to)))
		return INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		struct edges e = {0};
		bool fits = edge_of(g, from[i], to[i], data ? &data[i] : 0, &e);

		if (fits)
			edges_add_all(&((struct node *)handle_get(NODE, to[i]))->deps, &e);
		edges_clear(&e);
		if (!fits)
			return INVALID_VALUE;
	}
	return OK;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	return depend(graph, from, to, 0, n);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	return depend(graph, from, to, data, n);
}

/* sever removes all edges or none. */
static CUresult sever(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n)
{
	static const CUgraphEdgeData plain;
	struct graph *g = graph_get(graph);

	if (!g || (n && (!from || !to)))
		return INVALID_VALUE;
	if (graph_allocates(g))
		return NOT_SUPPORTED;
	for (int removes = 0; removes < 2; removes++)
		for (size_t i = 0; i < n; i++) {
			struct node *a = handle_get(NODE, from[i]), *b = handle_get(NODE, to[i]);

			if (!a || !b || a->graph != g || b->graph != g || !edges_match(&b->deps, a, data ? &data[i] : &plain))
				return INVALID_VALUE; /* nothing is removed yet, unless an edge is named twice */
			if (removes)
				edges_remove(&b->deps, a);
		}
	return OK;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	return sever(graph, from, to, 0, n);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	return sever(graph, from, to, data, n);
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
	ENTER(0, .does = ALTERS, .node = handle);
	struct node *n = handle_get(NODE, handle);

	if (!n)
		return INVALID_VALUE;
	if (graph_captured(graph_outermost(n->graph))) {
		violation("a node of a graph is destroyed that a stream captures into");
		return ILLEGAL_STATE;
	}
	if (graph_allocates(n->graph))
		return NOT_SUPPORTED;
	graph_remove(n);
	return OK;
}
