#include "sim.h"

/* The program's function is asked about every node that is not as it was. It may not be Go: it runs in the capturing call. */
typedef CUresult (*ask)(void *data, CUgraphNode node, const CUgraphNodeParams *before, const CUgraphNodeParams *now, unsigned status);

static bool same(const struct item *a, const struct item *b)
{
	switch (a->work) {
	case RUN:
		return a->function == b->function && !memcmp(a->grid, b->grid, sizeof a->grid) && !memcmp(a->threads, b->threads, sizeof a->threads)
			&& a->shared == b->shared && a->packed == b->packed
			&& !memcmp(a->params + a->nparams, b->params + b->nparams, a->packed - a->nparams * sizeof *a->params);
	case COPY:
		return a->dst == b->dst && a->src == b->src && a->size == b->size && !memcmp(&a->rows, &b->rows, sizeof a->rows);
	case SET:
		return a->dst == b->dst && a->src == b->src && a->size == b->size && a->width == b->width && !memcmp(&a->rows, &b->rows, sizeof a->rows);
	case HOST:
		return a->host == b->host && a->data == b->data;
	case RECORD:
	case WAIT:
		return a->event == b->event;
	case MEMOP:
		return a->n == b->n && !memcmp(a->ops, b->ops, a->n * sizeof *a->ops);
	default:
		return a->block == b->block;
	}
}

static bool same_edges(const struct edges *a, const struct edges *b)
{
	for (int i = 0; i < a->n && a->n == b->n; i++)
		if (!edges_have(b, a->list[i].node))
			return false;
	return a->n == b->n;
}

/* allowed asks the program, without the lock. */
static bool allowed(struct capture *c, struct node *n, const struct item *i)
{
	CUgraphNodeParams before, now;
	CUresult r;

	if (!c->callback)
		return true;
	describe(n->item, &before);
	describe(i, &now);
	pthread_mutex_unlock(&sim.lock);
	r = ((ask)c->callback)(c->data, n->handle, &before, &now, n->item->context == i->context ? 0 : 1);
	pthread_mutex_lock(&sim.lock);
	return !r;
}

CUresult recapture_item(struct capture *c, const struct edges *deps, struct item *i, struct node **node)
{
	struct node *n = c->at < c->graph->n ? c->graph->nodes[c->at] : 0;
	bool allocates = i->work == APPEAR || i->work == VANISH;

	if (!n || n->item->work != i->work || !same_edges(&n->deps, deps)
			|| (!same(n->item, i) && (allocates || !allowed(c, n, i)))) {
		item_free(i);
		return RECAPTURE_FAILURE;
	}
	c->at++;
	node_renew(n, i);
	*node = n;
	return OK;
}

struct block *recapture_block(struct capture *c, size_t size)
{
	struct item *i = c->again && c->at < c->graph->n ? c->graph->nodes[c->at]->item : 0;

	return i && i->work == APPEAR && i->block->size == size ? i->block : 0;
}

CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data)
{
	ENTER(0, .does = BEGINS, .stream = stream, .graph = graph, .global = !mode);
	struct graph *g = graph_get(graph);
	CUresult r;

	if (!g)
		return INVALID_VALUE;
	if (g->capture)
		return ILLEGAL_STATE;
	if ((r = capture_begin(stream, mode, g, 0)))
		return r;
	g->capture->again = true;
	g->capture->callback = (void *)callback;
	g->capture->data = data;
	users_drop(g->users, HERE);
	g->users = users_new();
	return OK;
}
