#include "sim.h"

/* Nodes of executables, which the program names by those that they were made of. */

/* exec_set gives an executable's node new parameters: the item that was made of them, if r is OK. */
static CUresult exec_set(CUgraphExec exec, CUgraphNode handle, CUresult r, struct item *i)
{
	struct exec *e = handle_get(EXEC, exec);
	struct node *n = e ? exec_node(e, handle) : 0;

	if (r)
		return r;
	if (!n || n->item->work != i->work || update_allowed(n->item, i)) {
		item_free(i);
		return INVALID_VALUE;
	}
	return node_set(n, OK, i);
}

/* EXEC_SET defines a change, of what a maker makes of the rest of a function's parameters. */
#define EXEC_SET(maker, ...) \
	ENTER(0, .does = READS, .exec = exec); \
	struct item *i = 0; \
	CUresult r = maker(__VA_ARGS__, &i); \
	return exec_set(exec, node, r, i)

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	EXEC_SET(make_kernel, p);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	EXEC_SET(make_kernel_v1, p);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, CUcontext context)
{
	EXEC_SET(make_copy, p, context);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
	EXEC_SET(make_set, p, context);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	EXEC_SET(make_host, p, 0);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	EXEC_SET(make_ops, p);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	EXEC_SET(make_event, RECORD, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	EXEC_SET(make_event, WAIT, event);
}

CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p)
{
	EXEC_SET(make_signals, p);
}

CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p)
{
	EXEC_SET(make_awaits, p);
}

static CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	struct exec *e = handle_get(EXEC, exec);
	struct node *n = e ? exec_node(e, node) : 0;
	struct graph *g = graph_get(child);
	CUgraphNode wrong, from;

	if (!n || !g || graph_captured(g) || n->item->work != CHILD)
		return INVALID_VALUE;
	return update_graph(n->item->graphs[0], g, &wrong, &from) ? INVALID_VALUE : OK;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	ENTER(0, .does = READS, .exec = exec);
	return set_child(exec, node, child);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
	ENTER(0, .does = READS, .exec = exec);
	struct item *i = 0;
	CUresult r = settable(p);

	if (!r && p->type == 4)
		return p->child.ownership ? INVALID_VALUE : set_child(exec, node, p->child.graph);
	if (!r)
		r = make(p, 0, &i);
	return exec_set(exec, node, r, i);
}

/* switched finds a node that can be disabled. */
static struct node *switched(CUgraphExec exec, CUgraphNode handle)
{
	struct exec *e = handle_get(EXEC, exec);
	struct node *n = e ? exec_node(e, handle) : 0;

	return n && (n->item->work == RUN || n->item->work == COPY || n->item->work == SET) ? n : 0;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned enabled)
{
	ENTER(0, .does = READS, .exec = exec);
	struct node *n = switched(exec, handle);

	if (!n)
		return INVALID_VALUE;
	if (n->item->work == SET && !enabled)
		violation("a disabled memset node: CUDA loses the order of the nodes around it, or faults");
	n->disabled = !enabled;
	return OK;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned *enabled)
{
	ENTER(0, .does = READS, .exec = exec);
	struct node *n = switched(exec, handle);

	if (!n || !enabled)
		return INVALID_VALUE;
	*enabled = !n->disabled;
	return OK;
}
