#include "sim.h"

unsigned node_type(const struct item *i)
{
	static const unsigned char types[] = {
		[RUN] = 0, [COPY] = 1, [SET] = 2, [HOST] = 3, [NOTHING] = 5, [WAIT] = 6, [RECORD] = 7,
		[APPEAR] = 10, [VANISH] = 11, [MEMOP] = 12,
	};

	return types[i->work];
}

/* add adds the node of an item, which there is if r is OK. */
static CUresult add(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, CUresult r, struct item *i)
{
	struct graph *g = graph_get(graph);
	struct edges edges = {0};

	if (r)
		return r;
	if (!g || !handle || (g->capture && g->capture->again))
		r = INVALID_VALUE;
	else
		r = edges_read(&edges, g, deps, 0, n);
	if (r) {
		item_free(i);
		return r;
	}
	*handle = graph_add(g, i, &edges)->handle;
	edges_clear(&edges);
	return OK;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n)
{
	ENTER(0);
	return add(handle, graph, deps, n, OK, item_new(NOTHING));
}

CUresult cuGraphAddHostNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_HOST_NODE_PARAMS *p)
{
	ENTER(0);
	struct item *i;

	if (!p || !p->fn)
		return INVALID_VALUE;
	i = item_new(HOST);
	i->host = p->fn;
	i->data = p->data;
	return add(handle, graph, deps, n, OK, i);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	ENTER(0);
	CUlaunchConfig c = {0};
	CUfunction f;
	struct item *i = 0;
	CUresult r;

	if (!p)
		return INVALID_VALUE;
	if (!current() && (p->func || !p->ctx)) {
		if (p->func)
			violation("a kernel node is added without a current context, which crashes the process");
		return INVALID_CONTEXT;
	}
	f = p->func ? p->func : (CUfunction)p->kern;
	memcpy(c.grid, p->grid, sizeof c.grid);
	memcpy(c.block, p->block, sizeof c.block);
	c.shared = p->shared;
	r = kernel_item(&c, f, p->params, p->extra, &i);
	return add(handle, graph, deps, n, r, i);
}

static CUresult context_get(CUcontext handle, struct context **c)
{
	*c = handle ? handle_get(CONTEXT, handle) : 0; /* that of the stream then */
	return *c || !handle ? OK : INVALID_CONTEXT;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
	ENTER(0);
	struct context *c;
	struct item *i;
	CUresult r = p ? context_get(context, &c) : INVALID_VALUE;

	if (r)
		return r;
	if (p->height > 1)
		return NOT_SUPPORTED; /* here */
	if (!p->width || !p->height || (p->element != 1 && p->element != 2 && p->element != 4) || p->dst % p->element)
		return INVALID_VALUE;
	if (p->width > SIZE_MAX / p->element || !usable(p->dst, p->width * p->element, "a memset of"))
		return INVALID_VALUE;
	i = item_new(SET);
	i->context = c;
	i->dst = p->dst;
	i->src = p->value;
	i->width = p->element;
	i->size = p->width;
	return add(handle, graph, deps, n, OK, i);
}

enum { HOST_END = 1, DEVICE_END, ARRAY_END, UNIFIED_END };

/* address tells where an end of a copy is. Only a row of bytes is simulated. */
static CUresult address(const struct end *e, size_t size, const char *who, CUdeviceptr *at)
{
	if (e->type == ARRAY_END || e->y || e->z)
		return NOT_SUPPORTED; /* here */
	if (!e->type || e->type > UNIFIED_END || e->lod)
		return INVALID_VALUE;
	*at = (e->type == HOST_END ? e->host : e->device) + e->x;
	return e->type == HOST_END || usable(*at, size, who) ? OK : INVALID_VALUE;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_MEMCPY3D *p, CUcontext context)
{
	ENTER(0);
	struct context *c;
	struct item *i;
	CUdeviceptr dst, src;
	CUresult r = p ? context_get(context, &c) : INVALID_VALUE;

	if (!r && (!p->width || !p->height || !p->depth))
		r = INVALID_VALUE;
	if (!r && (p->height > 1 || p->depth > 1))
		r = NOT_SUPPORTED; /* here */
	if (!r)
		r = address(&p->dst, p->width, "a copy to", &dst);
	if (!r)
		r = address(&p->src, p->width, "a copy from", &src);
	if (r)
		return r;
	i = item_new(COPY);
	i->context = c;
	i->dst = dst;
	i->src = src;
	i->size = p->width;
	return add(handle, graph, deps, n, OK, i);
}

/* edge_of is the one that two nodes would be joined by, if they may be. */
static bool edge_of(struct graph *g, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data, struct edges *e)
{
	struct node *node = handle_get(NODE, to);

	return node && node->graph == g && from != to && !edges_read(e, g, &from, data, 1)
		&& edges_fit(e, node->item) && !edges_have(&node->deps, e->list[0].node);
}

/* depend adds all edges or none. */
static CUresult depend(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n)
{
	struct graph *g = graph_get(graph);

	if (!g || (n && (!from || !to)))
		return INVALID_VALUE;
	for (int adds = 0; adds < 2; adds++)
		for (size_t i = 0; i < n; i++) {
			struct edges e = {0};
			bool fits = edge_of(g, from[i], to[i], data ? &data[i] : 0, &e);

			if (fits && adds)
				edges_add_all(&((struct node *)handle_get(NODE, to[i]))->deps, &e);
			edges_clear(&e);
			if (!fits)
				return INVALID_VALUE;
		}
	return OK;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	ENTER(0);
	return depend(graph, from, to, 0, n);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n)
{
	ENTER(0);
	return depend(graph, from, to, data, n);
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
	ENTER(0);
	struct node *n = handle_get(NODE, handle);

	if (!n)
		return INVALID_VALUE;
	if (n->graph->capture) {
		violation("a node of a graph is destroyed that a stream captures into");
		return INVALID_VALUE;
	}
	if (graph_allocates(n->graph))
		return NOT_SUPPORTED;
	graph_remove(n);
	return OK;
}
