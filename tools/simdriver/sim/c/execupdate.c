#include "sim.h"

enum { UPDATED, FAILED, TOPOLOGY, TYPE, FUNCTION_CHANGED, PARAMETERS, UNSUPPORTED, UNSUPPORTED_FUNCTION };

static int device_of(CUdeviceptr address)
{
	struct block *b = block_at(address);

	return b && b->place != HOST_MEMORY ? b->device : -1;
}

/* parameters tells whether an item may become another of its type. */
static unsigned parameters(const struct item *from, const struct item *to)
{
	switch (from->work) {
	case RUN:
		return from->context == to->context ? UPDATED : UNSUPPORTED_FUNCTION;
	case COPY:
		return device_of(from->dst) == device_of(to->dst) && device_of(from->src) == device_of(to->src) ? UPDATED : PARAMETERS;
	case SET:
		return device_of(from->dst) == device_of(to->dst) ? UPDATED : PARAMETERS;
	case MEMOP:
		return from->n == to->n ? UPDATED : PARAMETERS;
	case APPEAR:
	case VANISH:
		return from->block == to->block ? UPDATED : UNSUPPORTED;
	default:
		return UPDATED;
	}
}

/* compare pairs the nodes in the order they were added. */
static unsigned compare(struct graph *from, struct graph *to, CUgraphNode *node, CUgraphNode *dep)
{
	if (from->n != to->n)
		return TOPOLOGY;
	for (int i = 0; i < to->n; i++) {
		struct node *a = from->nodes[i], *b = to->nodes[i];
		unsigned r;

		*node = b->handle;
		if (a->deps.n != b->deps.n)
			return TOPOLOGY;
		for (int k = 0; k < b->deps.n; k++) {
			struct edge *x = &a->deps.list[k], *y = &b->deps.list[k];

			*dep = y->node->handle;
			if (x->node->at != y->node->at || memcmp(&x->data, &y->data, sizeof x->data))
				return TOPOLOGY;
		}
		*dep = 0;
		if (node_type(a->item) != node_type(b->item))
			return TYPE;
		if ((r = parameters(a->item, b->item)))
			return r;
	}
	*node = 0;
	return UPDATED;
}

static CUresult update(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	struct exec *e = handle_get(EXEC, handle);
	struct graph *g = graph_get(graph);

	*info = (CUgraphExecUpdateResultInfo){.result = FAILED};
	if (!e || !g || g->capture)
		return INVALID_VALUE;
	if ((info->result = compare(e->graph, g, &info->node, &info->from)))
		return UPDATE_FAILURE;
	for (int i = 0; i < g->n; i++) {
		item_free(e->graph->nodes[i]->item);
		e->graph->nodes[i]->item = item_copy(g->nodes[i]->item);
	}
	users_drop(e->users, THERE);
	e->users = users_copy(g->users);
	return OK;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	ENTER(0);
	CUgraphExecUpdateResultInfo unwanted;

	return update(exec, graph, info ? info : &unwanted);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result)
{
	ENTER(0);
	CUgraphExecUpdateResultInfo info;
	CUresult r = update(exec, graph, &info);

	if (node)
		*node = info.node;
	if (result)
		*result = info.result;
	return r;
}
