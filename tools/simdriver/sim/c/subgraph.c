#include "sim.h"

/* Graphs within graphs: children, and the bodies of conditions. */

enum { CLONE, MOVE };

/* embed makes a graph one of an item's, whose node is to own it. */
void embed(struct item *i, struct graph *g)
{
	i->graphs = realloc(i->graphs, (i->ngraphs + 1) * sizeof *i->graphs);
	i->graphs[i->ngraphs++] = g;
	g->inner = true;
}

void own(struct node *n)
{
	struct item *i = n->item;

	for (int k = 0; k < i->ngraphs; k++) {
		if (!i->graphs[k]->inner)
			live_count(GRAPH, -1); /* it was moved: the parent's from now on */
		i->graphs[k]->inner = true;
		i->graphs[k]->owner = n;
	}
	condition_use(i->condition, true);
}

void inner_copy(struct item *i, bool handles)
{
	struct graph **from = i->graphs;
	int n = i->ngraphs;

	i->graphs = 0;
	i->ngraphs = 0;
	for (int k = 0; k < n; k++)
		embed(i, handles ? graph_clone(from[k]) : graph_copy(from[k], false));
	condition_hold(i->condition);
}

void inner_free(struct item *i)
{
	if (i->work == CONDITION)
		steps_free(i);
	for (int k = 0; k < i->ngraphs; k++)
		if (i->graphs[k]->inner) /* else it could not be moved */
			graph_free(i->graphs[k]);
	free(i->graphs);
	condition_drop(i->condition);
}

bool graph_has(const struct graph *g, bool (*is)(const struct item *))
{
	for (int i = 0; i < g->n; i++) {
		const struct item *item = g->nodes[i]->item;

		if (is(item))
			return true;
		for (int k = 0; k < item->ngraphs; k++)
			if (graph_has(item->graphs[k], is))
				return true;
	}
	return false;
}

bool graph_captured(const struct graph *g)
{
	bool is = g->capture;

	for (int i = 0; i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->item->ngraphs; k++)
			is |= graph_captured(g->nodes[i]->item->graphs[k]);
	return is;
}

struct graph *graph_outermost(struct graph *g)
{
	while (g->owner)
		g = g->owner->graph;
	return g;
}

static bool allocates(const struct item *i) { return i->block; }
static bool decides(const struct item *i) { return i->work == CONDITION; }
bool graph_allocates(const struct graph *g) { return graph_has(g, allocates); }
bool graph_decides(const struct graph *g) { return graph_has(g, decides); }

CUresult graph_takes(const struct graph *g, const struct item *i)
{
	return g->owner && g->owner->item->work == CHILD && i->block ? NOT_SUPPORTED : OK;
}

/* conditional tells whether work may be that of a body of a condition. */
static bool conditional(enum work w)
{
	return w == RUN || w == COPY || w == SET || w == NOTHING || w == CHILD || w == CONDITION;
}

struct node *graph_misfit(const struct graph *g, bool in_body)
{
	struct node *found = 0;

	for (int i = 0; !found && i < g->n; i++) {
		struct item *item = g->nodes[i]->item;

		if (in_body && !conditional(item->work))
			return g->nodes[i];
		for (int k = 0; !found && k < item->ngraphs; k++)
			found = graph_misfit(item->graphs[k], in_body || item->work == CONDITION);
	}
	return found;
}

bool graph_within(const struct graph *g, const struct graph *outer)
{
	while (g != outer && g->owner)
		g = g->owner->graph;
	return g == outer;
}

CUresult make_child(CUgraph handle, int ownership, struct graph *g, struct item **i)
{
	struct graph *child = graph_get(handle);

	if (!g || !child || graph_captured(child) || ownership < CLONE || ownership > (SIM_VERSION < 12090 ? CLONE : MOVE))
		return INVALID_VALUE;
	if (graph_decides(child) || (ownership == CLONE && graph_allocates(child)))
		return NOT_SUPPORTED;
	if (ownership == MOVE && (child->inner || child->execs || graph_within(g, child)))
		return INVALID_VALUE;
	*i = item_new(CHILD);
	embed(*i, ownership == MOVE ? child : graph_clone(child));
	(*i)->graphs[0]->inner = ownership != MOVE; /* until the node is there */
	return OK;
}

struct node **graph_flat(struct graph *g, struct node **list, int *n)
{
	struct node *unused, **order = graph_order(g, &unused);

	for (int i = 0; i < g->n; i++) {
		if (order[i]->item->work == CHILD) {
			list = graph_flat(order[i]->item->graphs[0], list, n);
			continue;
		}
		list = realloc(list, (*n + 1) * sizeof *list);
		list[(*n)++] = order[i];
	}
	free(order);
	return list;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph)
{
	ENTER(0, .does = READS, .node = handle);
	struct node *n = handle_get(NODE, handle);

	if (!n || !graph || n->item->work != CHILD)
		return INVALID_VALUE;
	*graph = graph_handle(n->item->graphs[0]);
	return OK;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
	ENTER(0, .does = READS, .graph = clone);
	struct node *n = handle_get(NODE, original);
	struct graph *g = graph_get(clone);

	if (!n || !g || !node)
		return INVALID_VALUE;
	for (int i = 0; i < g->n; i++)
		if (g->nodes[i]->source == n->made) {
			*node = g->nodes[i]->handle;
			return OK;
		}
	return INVALID_VALUE;
}
