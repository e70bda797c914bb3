#include "sim.h"

/* -- edges -- */

bool edges_have(const struct edges *e, const struct node *node)
{
	for (int i = 0; i < e->n; i++)
		if (e->list[i].node == node)
			return true;
	return false;
}

void edges_add(struct edges *e, struct node *node, const CUgraphEdgeData *data)
{
	if (edges_have(e, node))
		return;
	e->list = realloc(e->list, (e->n + 1) * sizeof *e->list);
	e->list[e->n++] = (struct edge){node, data ? *data : (CUgraphEdgeData){0}};
}

void edges_add_all(struct edges *e, const struct edges *more)
{
	for (int i = 0; i < more->n; i++)
		edges_add(e, more->list[i].node, &more->list[i].data);
}

void edges_clear(struct edges *e)
{
	free(e->list);
	e->list = 0;
	e->n = 0;
}

void edges_remove(struct edges *e, const struct node *node)
{
	int kept = 0;

	for (int i = 0; i < e->n; i++)
		if (e->list[i].node != node)
			e->list[kept++] = e->list[i];
	e->n = kept;
}

bool edges_match(const struct edges *e, const struct node *node, const CUgraphEdgeData *data)
{
	for (int i = 0; i < e->n; i++)
		if (e->list[i].node == node)
			return !memcmp(&e->list[i].data, data, sizeof *data);
	return false;
}

bool edge_plain(const CUgraphEdgeData *data)
{
	return !memcmp(data, &(CUgraphEdgeData){0}, sizeof *data);
}

static bool valid(const struct node *from, const CUgraphEdgeData *d)
{
	static const unsigned char zeros[sizeof d->reserved];

	if (d->type > 1 || d->to_port || memcmp(d->reserved, zeros, sizeof zeros))
		return false;
	if (d->from_port > 2 || (d->from_port && from->item->work != RUN))
		return false;
	return !d->type || d->from_port;
}

CUresult edges_read(struct edges *e, struct graph *g, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n)
{
	if (n && !nodes)
		return INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		struct node *node = handle_get(NODE, nodes[i]);

		if (!node || node->graph != g || edges_have(e, node) || (data && !valid(node, &data[i]))) {
			edges_clear(e);
			return INVALID_VALUE;
		}
		edges_add(e, node, data ? &data[i] : 0);
	}
	return OK;
}

bool edges_fit(const struct edges *e, const struct item *i)
{
	for (int k = 0; k < e->n; k++)
		if (e->list[k].data.type && i->work != RUN)
			return false;
	return true;
}

/* -- graphs -- */

struct graph *graph_new(void)
{
	static unsigned ids;
	struct graph *g = calloc(1, sizeof *g);

	g->id = g->family = ++ids;
	g->users = users_new();
	return g;
}

struct graph *graph_get(CUgraph handle) { return handle_get(GRAPH, handle); }

CUgraph graph_handle(struct graph *g)
{
	if (!g->handle) {
		g->handle = handle_new(GRAPH, g);
		live_count(GRAPH, -g->inner); /* an inner graph goes with its parent */
	}
	return g->handle;
}

static unsigned long long made;

static struct node *node_new(struct graph *g, struct item *i)
{
	struct node *n = calloc(1, sizeof *n);

	n->graph = g;
	n->item = i;
	n->at = g->n;
	n->id = g->ids++;
	n->made = ++made;
	own(n);
	g->nodes = realloc(g->nodes, (g->n + 1) * sizeof *g->nodes);
	return g->nodes[g->n++] = n;
}

static void node_free(struct node *n)
{
	if (n->handle) {
		condition_use(n->item->condition, false);
		handle_end(n->handle);
	}
	if (n->ends) {
		n->item->block->enders--;
		n->item->block->ended = false;
	}
	item_free(n->item);
	edges_clear(&n->deps);
	free(n);
}

static bool has(const struct graph *g, const struct block *b, enum work work)
{
	for (int k = 0; k < g->n; k++)
		if (g->nodes[k]->item->block == b && g->nodes[k]->item->work == work)
			return true;
	return false;
}

struct node *graph_add(struct graph *g, struct item *i, const struct edges *deps)
{
	struct node *n = node_new(g, i);

	edges_add_all(&n->deps, deps);
	n->handle = handle_new(NODE, n);
	if ((n->ends = i->work == VANISH)) {
		i->block->enders++;
		i->block->ended = has(g, i->block, APPEAR);
	}
	return n;
}

bool graph_may_free(const struct graph *g, const struct block *b)
{
	return !b->enders || (!b->ended && !has(g, b, VANISH) && !has(g, b, APPEAR));
}

void node_renew(struct node *n, struct item *i)
{
	item_free(n->item);
	n->item = i;
	own(n);
}

void graph_remove(struct node *n)
{
	struct graph *g = n->graph;

	g->n--;
	for (int i = n->at; i < g->n; i++) {
		g->nodes[i] = g->nodes[i + 1];
		g->nodes[i]->at = i;
	}
	for (int i = 0; i < g->n; i++)
		edges_remove(&g->nodes[i]->deps, n);
	node_free(n);
}

struct graph *graph_copy(struct graph *g, bool handles)
{
	struct graph *copy = graph_new();

	copy->family = g->family;
	for (int i = 0; i < g->n; i++) {
		struct node *n = node_new(copy, item_copy(g->nodes[i]->item, handles));

		n->source = g->nodes[i]->made;
		n->disabled = g->nodes[i]->disabled;
		if (handles)
			n->handle = handle_new(NODE, n);
	}
	for (int i = 0; i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->deps.n; k++) {
			struct edge *e = &g->nodes[i]->deps.list[k];

			edges_add(&copy->nodes[i]->deps, copy->nodes[e->node->at], &e->data);
		}
	return copy;
}

struct graph *graph_clone(struct graph *g)
{
	struct graph *clone = graph_copy(g, true);

	users_add(clone->users, g->users);
	return clone;
}

static bool may_follow(struct node *n)
{
	for (int i = 0; i < n->deps.n; i++)
		if (!n->deps.list[i].node->placed)
			return false;
	return true;
}

struct node **graph_order(struct graph *g, struct node **wrong)
{
	struct node **order = malloc((g->n + 1) * sizeof *order);
	int placed = 0, before = -1;

	for (int i = 0; i < g->n; i++)
		g->nodes[i]->placed = false;
	while (before < placed) { /* the nodes mostly are in such an order */
		before = placed;
		for (int i = 0; i < g->n; i++)
			if (!g->nodes[i]->placed && may_follow(g->nodes[i])) {
				g->nodes[i]->placed = true;
				order[placed++] = g->nodes[i];
			}
	}
	for (int i = 0; i < g->n; i++)
		if (!g->nodes[i]->placed) {
			*wrong = g->nodes[i];
			free(order);
			return 0;
		}
	return order;
}

static void graph_clear(struct graph *g)
{
	for (int i = 0; i < g->n; i++)
		node_free(g->nodes[i]);
	free(g->nodes);
	g->nodes = 0;
	g->n = 0;
}

void graph_check(const struct graph *g)
{
	if (g->holed)
		crash("%s destroyed a graph inside of a node, and %s meets that", g->holed, flight_name());
}

void graph_free(struct graph *g)
{
	graph_check(g);
	graph_clear(g);
	if (g->handle) {
		live_count(GRAPH, g->inner);
		handle_end(g->handle);
	}
	conditions_drop(g);
	users_drop(g->users, HERE);
	free(g);
}

void graph_lose(struct graph *g)
{
	if (g->handle) {
		live_count(GRAPH, g->inner);
		handle_lose(g->handle);
	}
	g->handle = 0;
	for (int i = 0; i < g->n; i++) {
		handle_lose(g->nodes[i]->handle);
		g->nodes[i]->handle = 0;
	}
	if (g->inner)
		graph_clear(g); /* the node that it is in still has it */
	else
		graph_free(g);
}

static void end(enum kind kind, void *handle, void *object)
{
	(void)handle;
	if (kind == EXEC)
		exec_free(object, HERE);
	else if (kind == GRAPH && !((struct graph *)object)->inner)
		graph_free(object);
}

void graphs_end(void)
{
	handles_each(end);
	users_end();
}

CUresult cuGraphCreate(CUgraph *handle, unsigned flags)
{
	ENTER(0);
	if (!handle || flags)
		return INVALID_VALUE;
	*handle = graph_handle(graph_new());
	return OK;
}

CUresult cuGraphClone(CUgraph *handle, CUgraph graph)
{
	ENTER(0, .does = CLONES, .graph = graph);
	struct graph *g = graph_get(graph);

	if (!g || !handle || graph_captured(g))
		return INVALID_VALUE;
	if (graph_allocates(g) || graph_decides(g))
		return NOT_SUPPORTED;
	*handle = graph_handle(graph_clone(g));
	return OK;
}

CUresult cuGraphDestroy(CUgraph handle)
{
	ENTER(DEAD, .does = DESTROYS, .graph = handle);
	struct graph *g = graph_get(handle);

	if (!g || g->inner)
		return INVALID_VALUE;
	if (graph_captured(g))
		return ILLEGAL_STATE;
	graph_free(g);
	return OK;
}
