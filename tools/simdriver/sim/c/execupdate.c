#include "sim.h"

enum { UPDATED, FAILED, TOPOLOGY, TYPE, FUNCTION_CHANGED, PARAMETERS, UNSUPPORTED, UNSUPPORTED_FUNCTION };

static int device_of(CUdeviceptr address)
{
	struct block *b = block_at(address);

	return b && b->place != HOST_MEMORY ? b->device : -1;
}

/* dimensions tells whether copies or sets of more than one row are so of as many. */
static bool dimensions(const struct item *a, const struct item *b)
{
	if (a->work == SET)
		return (one_row(a) && one_row(b)) || (a->size == b->size && a->width == b->width && !memcmp(&a->rows, &b->rows, sizeof a->rows));
	return one_row(a) == one_row(b);
}

unsigned update_allowed(const struct item *from, const struct item *to)
{
	switch (from->work) {
	case RUN:
		return from->context == to->context && from->green == to->green ? UPDATED : UNSUPPORTED_FUNCTION;
	case COPY:
		return dimensions(from, to) && device_of(from->dst) == device_of(to->dst) && device_of(from->src) == device_of(to->src) ? UPDATED : PARAMETERS;
	case SET:
		return dimensions(from, to) && device_of(from->dst) == device_of(to->dst) && from->green == to->green ? UPDATED : PARAMETERS;
	case MEMOP:
		return memop_alike(from, to) && from->context == to->context ? UPDATED : PARAMETERS;
	case SIGNAL:
	case AWAIT:
		return from->n == to->n ? UPDATED : PARAMETERS;
	case CONDITION:
		return from->choice == to->choice && from->ngraphs == to->ngraphs ? UPDATED : PARAMETERS;
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
		r = update_allowed(a->item, b->item);
		for (int k = 0; !r && k < a->item->ngraphs; k++)
			r = compare(a->item->graphs[k], b->item->graphs[k], node, dep);
		if (r)
			return r;
	}
	*node = 0;
	return UPDATED;
}

/* renew gives nodes the work of others. Graphs in them stay, as their nodes are known. */
static void renew(struct graph *from, struct graph *to)
{
	for (int i = 0; i < to->n; i++) {
		struct item *a = from->nodes[i]->item, *b = to->nodes[i]->item;

		if (!a->ngraphs) {
			node_renew(from->nodes[i], item_copy(b, false));
			from->nodes[i]->item->doomed = b->contextless;
			continue;
		}
		if (a->condition)
			condition_update(a, b);
		for (int k = 0; k < a->ngraphs; k++)
			renew(a->graphs[k], b->graphs[k]);
	}
}

unsigned update_graph(struct graph *from, struct graph *to, CUgraphNode *node, CUgraphNode *dep)
{
	unsigned r = compare(from, to, node, dep);

	if (!r)
		renew(from, to);
	return r;
}

static CUresult update(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	struct exec *e = handle_get(EXEC, handle);
	struct graph *g = graph_get(graph);

	*info = (CUgraphExecUpdateResultInfo){.result = FAILED};
	if (!e || !g || graph_captured(g) || g->inner)
		return INVALID_VALUE;
	if ((info->result = update_graph(e->graph, g, &info->node, &info->from)))
		return UPDATE_FAILURE;
	exec_hold(e, g);
	return OK;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	ENTER(0, .does = READS, .exec = exec, .graph = graph);
	CUgraphExecUpdateResultInfo unwanted;

	return update(exec, graph, info ? info : &unwanted);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result)
{
	ENTER(0, .does = READS, .exec = exec, .graph = graph);
	CUgraphExecUpdateResultInfo info;
	CUresult r = update(exec, graph, &info);

	if (node)
		*node = info.node;
	if (result)
		*result = info.result;
	return r;
}
