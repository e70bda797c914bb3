#include "sim.h"

/* Kernel nodes as they were before CUDA 12.0, without kernels that have no context. */

/* newer returns the parameters as they are now, in room, or 0 for 0. */
static const CUDA_KERNEL_NODE_PARAMS *newer(const CUDA_KERNEL_NODE_PARAMS_v1 *p, CUDA_KERNEL_NODE_PARAMS *room)
{
	*room = (CUDA_KERNEL_NODE_PARAMS){0};
	if (!p)
		return 0;
	memcpy(room, p, sizeof *p);
	return room;
}

CUresult cuGraphAddKernelNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	ENTER(0);
	CUDA_KERNEL_NODE_PARAMS room;
	struct item *i = 0;
	CUresult r = make_kernel(newer(p, &room), &i);

	return node_add(handle, graph, deps, 0, n, r, i);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	ENTER(0);
	CUDA_KERNEL_NODE_PARAMS now;
	struct node *n = handle_get(NODE, handle);

	if (!n || n->item->work != RUN || !p)
		return INVALID_VALUE;
	describe_kernel(n->item, &now);
	memcpy(p, &now, sizeof *p);
	return OK;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	ENTER(0);
	CUDA_KERNEL_NODE_PARAMS room;
	struct node *n = handle_get(NODE, handle);
	struct item *i = 0;
	CUresult r = n ? make_kernel(newer(p, &room), &i) : INVALID_VALUE;

	return node_set(n, r, i);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	ENTER(0);
	CUDA_KERNEL_NODE_PARAMS room;
	struct item *i = 0;
	CUresult r = make_kernel(newer(p, &room), &i);

	return exec_set(exec, node, r, i);
}
