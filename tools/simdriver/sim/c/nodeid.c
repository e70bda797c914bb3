#include "sim.h"

/* Where nodes are, and the numbers by which a DOT file and tools name them. */

CUresult cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph *graph)
{
	ENTER(0, .does = READS, .node = handle);
	struct node *n = handle_get(NODE, handle);

	if (!n || !graph)
		return INVALID_VALUE;
	*graph = graph_handle(n->graph);
	return OK;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode handle, unsigned *id)
{
	ENTER(0, .does = READS, .node = handle);
	struct node *n = handle_get(NODE, handle);

	if (!n || !id)
		return INVALID_VALUE;
	*id = n->id;
	return OK;
}

CUresult cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long *id)
{
	ENTER(0, .does = READS, .node = handle);
	struct node *n = handle_get(NODE, handle);

	if (!n || !id)
		return INVALID_VALUE;
	*id = (unsigned long long)n->graph->id << 32 | n->id;
	return OK;
}

CUresult cuGraphGetId(CUgraph handle, unsigned *id)
{
	ENTER(0, .does = READS, .graph = handle);
	struct graph *g = graph_get(handle);

	if (!g || !id)
		return INVALID_VALUE;
	*id = g->id;
	return OK;
}

CUresult cuGraphExecGetId(CUgraphExec handle, unsigned *id)
{
	ENTER(0, .does = READS, .exec = handle);
	struct exec *e = handle_get(EXEC, handle);

	if (!e || !id)
		return INVALID_VALUE;
	*id = e->graph->id;
	return OK;
}
