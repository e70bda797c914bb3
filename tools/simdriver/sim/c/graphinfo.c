#include "sim.h"

/* A list is what a query tells: as much as fits, or with no room how much there is. */
struct list {
	CUgraphNode *nodes, *to;
	CUgraphEdgeData *data;
	size_t room, n;
	bool counts, lossy;
};

static struct list list_of(CUgraphNode *nodes, CUgraphNode *to, CUgraphEdgeData *data, size_t room)
{
	return (struct list){nodes, to, data, room, 0, !nodes && !to, false};
}

static void list_add(struct list *l, struct node *node, struct node *to, const CUgraphEdgeData *data)
{
	if (data && !edge_plain(data) && !l->data && !l->counts)
		l->lossy = true;
	if (l->n < l->room && !l->counts) {
		if (l->nodes)
			l->nodes[l->n] = node->handle;
		if (l->to)
			l->to[l->n] = to->handle;
		if (l->data)
			l->data[l->n] = data ? *data : (CUgraphEdgeData){0};
	}
	l->n++;
}

static CUresult list_end(struct list *l, size_t *n)
{
	if (l->lossy)
		return LOSSY_QUERY;
	for (size_t i = l->n; i < l->room && !l->counts; i++) {
		if (l->nodes)
			l->nodes[i] = 0;
		if (l->to)
			l->to[i] = 0;
	}
	if (l->counts || *n > l->n)
		*n = l->n;
	return OK;
}

static CUresult nodes(CUgraph graph, CUgraphNode *out, size_t *n, bool roots)
{
	struct graph *g = graph_get(graph);

	if (!g || !n || (out && !*n))
		return INVALID_VALUE;
	struct list l = list_of(out, 0, 0, *n);

	for (int i = 0; i < g->n; i++)
		if (!roots || !g->nodes[i]->deps.n)
			list_add(&l, g->nodes[i], 0, 0);
	return list_end(&l, n);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *n)
{
	ENTER(0, .does = READS, .graph = graph);
	return nodes(graph, out, n, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *out, size_t *n)
{
	ENTER(0, .does = READS, .graph = graph);
	return nodes(graph, out, n, true);
}

static CUresult edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n)
{
	struct graph *g = graph_get(graph);

	if (!g || !n || !from != !to || (data && !from) || (from && !*n))
		return INVALID_VALUE;
	struct list l = list_of(from, to, data, *n);

	for (int i = 0; i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->deps.n; k++)
			list_add(&l, g->nodes[i]->deps.list[k].node, g->nodes[i], &g->nodes[i]->deps.list[k].data);
	return list_end(&l, n);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
	ENTER(0, .does = READS, .graph = graph);
	return edges(graph, from, to, 0, n);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n)
{
	ENTER(0, .does = READS, .graph = graph);
	return edges(graph, from, to, data, n);
}

static CUresult dependencies(CUgraphNode handle, CUgraphNode *out, CUgraphEdgeData *data, size_t *n)
{
	struct node *node = handle_get(NODE, handle);

	if (!node || !n || (data && !out) || (out && !*n))
		return INVALID_VALUE;
	struct list l = list_of(out, 0, data, *n);

	for (int i = 0; i < node->deps.n; i++)
		list_add(&l, node->deps.list[i].node, 0, &node->deps.list[i].data);
	return list_end(&l, n);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *out, size_t *n)
{
	ENTER(0, .does = READS, .node = node);
	return dependencies(node, out, 0, n);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *data, size_t *n)
{
	ENTER(0, .does = READS, .node = node);
	return dependencies(node, out, data, n);
}

static CUresult dependents(CUgraphNode handle, CUgraphNode *out, CUgraphEdgeData *data, size_t *n)
{
	struct node *node = handle_get(NODE, handle);

	if (!node || !n || (data && !out) || (out && !*n))
		return INVALID_VALUE;
	struct list l = list_of(out, 0, data, *n);

	for (int i = 0; i < node->graph->n; i++) {
		struct node *other = node->graph->nodes[i];

		for (int k = 0; k < other->deps.n; k++)
			if (other->deps.list[k].node == node)
				list_add(&l, other, 0, &other->deps.list[k].data);
	}
	return list_end(&l, n);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *out, size_t *n)
{
	ENTER(0, .does = READS, .node = node);
	return dependents(node, out, 0, n);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *data, size_t *n)
{
	ENTER(0, .does = READS, .node = node);
	return dependents(node, out, data, n);
}

static unsigned odd_type;

void graph_odd(unsigned type) { odd_type = type; }

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	ENTER(0, .does = READS, .node = handle);
	struct node *node = handle_get(NODE, handle);

	if (!node || !type)
		return INVALID_VALUE;
	*type = odd_type ? odd_type : node_type(node->item);
	return OK;
}

static const char *name_of(const struct item *i)
{
	static const char *const names[] = {
		[0] = "KERNEL", [1] = "MEMCPY", [2] = "MEMSET", [3] = "HOST", [4] = "GRAPH", [5] = "EMPTY", [6] = "EVENT_WAIT",
		[7] = "EVENT_RECORD", [10] = "MEM_ALLOC", [11] = "MEM_FREE", [12] = "BATCH_MEM_OP", [13] = "CONDITIONAL",
	};

	return names[node_type(i)];
}

/* print_graph writes a graph, and after it those in its nodes. */
static void print_graph(FILE *f, const struct graph *g)
{
	fprintf(f, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", g->id, g->id);
	for (int i = 0; i < g->n; i++) {
		const struct node *n = g->nodes[i];
		bool kernel = n->item->work == RUN && kernel_loaded(n->item);

		fprintf(f, "\"graph_%u_node_%u\" [label=\"%u %s%s%s\"];\n", g->id, n->id, n->id, name_of(n->item),
			kernel ? " " : "", kernel ? n->item->function->name : "");
	}
	for (int i = 0; i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->deps.n; k++)
			fprintf(f, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", g->id, g->nodes[i]->deps.list[k].node->id, g->id, g->nodes[i]->id);
	fprintf(f, "}\n");
	for (int i = 0; i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->item->ngraphs; k++)
			print_graph(f, g->nodes[i]->item->graphs[k]);
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags)
{
	ENTER(0, .does = READS, .graph = graph);
	struct graph *g = graph_get(graph);
	FILE *f;

	(void)flags;
	if (!g || !path)
		return INVALID_VALUE;
	if (!(f = fopen(path, "w")))
		return OPERATING_SYSTEM;
	fprintf(f, "digraph dot {\n");
	print_graph(f, g);
	fprintf(f, "}\n");
	return fclose(f) ? OPERATING_SYSTEM : OK;
}
