#include "sim.h"

struct graph *graph_new(void)
{
	return calloc(1, sizeof(struct graph));
}

/* graph_add adds a node behind others, so that the order of the nodes is one they can run in. */
struct node *graph_add(struct graph *g, struct item *i, struct node **deps, int ndeps)
{
	struct node *n = calloc(1, sizeof *n);

	n->item = i;
	n->deps = malloc((ndeps + 1) * sizeof *deps);
	if (ndeps)
		memcpy(n->deps, deps, ndeps * sizeof *deps);
	n->ndeps = ndeps;
	n->handle = handle_new(NODE, n);
	g->nodes = realloc(g->nodes, (g->nnodes + 1) * sizeof *g->nodes);
	g->nodes[g->nnodes++] = n;
	return n;
}

void graph_free(struct graph *g)
{
	for (int i = 0; i < g->nnodes; i++) {
		struct node *n = g->nodes[i];

		handle_end(n->handle);
		item_free(n->item);
		free(n->deps);
		free(n);
	}
	if (g->handle)
		handle_end(g->handle);
	free(g->nodes);
	free(g);
}

/* An executable is the work of a graph's nodes, in their order. */
struct exec {
	struct item **items;
	int n;
};

static void exec_free(struct exec *e)
{
	for (int i = 0; i < e->n; i++)
		item_free(e->items[i]);
	free(e->items);
	free(e);
}

static void end(enum kind kind, void *handle, void *object)
{
	if (kind == EXEC) {
		exec_free(object);
		handle_end(handle);
	} else if (kind == GRAPH) {
		graph_free(object);
	}
}

void graphs_end(void) { handles_each(end); }

CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph, unsigned long long flags)
{
	ENTER(0);
	struct graph *g = handle_get(GRAPH, graph);
	struct exec *e;

	if (!g)
		return INVALID_VALUE;
	if (!handle || flags > 15)
		return INVALID_VALUE;
	e = calloc(1, sizeof *e);
	e->items = calloc(g->nnodes + 1, sizeof *e->items);
	for (; e->n < g->nnodes; e->n++)
		e->items[e->n] = item_copy(g->nodes[e->n]->item);
	*handle = handle_new(EXEC, e);
	return OK;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
	ENTER(0);
	struct exec *e = handle_get(EXEC, handle);
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	if (r)
		return r;
	if (!e)
		return INVALID_VALUE;
	if ((r = on_stream(s)))
		return r;
	for (int i = 0; i < e->n && !r; i++)
		r = enqueue(s, item_copy(e->items[i]));
	return r;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	ENTER(0);
	struct graph *g = handle_get(GRAPH, graph);

	if (!g || !n)
		return INVALID_VALUE;
	for (size_t i = 0; nodes && i < *n; i++)
		nodes[i] = i < (size_t)g->nnodes ? g->nodes[i]->handle : 0;
	if (!nodes || *n > (size_t)g->nnodes)
		*n = g->nnodes;
	return OK;
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
	ENTER(DEAD);
	struct exec *e = handle_get(EXEC, handle);

	if (!e)
		return INVALID_VALUE;
	exec_free(e);
	handle_end(handle);
	return OK;
}

CUresult cuGraphDestroy(CUgraph handle)
{
	ENTER(DEAD);
	struct graph *g = handle_get(GRAPH, handle);

	if (!g)
		return INVALID_VALUE;
	graph_free(g);
	return OK;
}
