#include "sim.h"

/* What nodes are told to do, and are told anew. */

static CUcontext item_context(const struct item *i)
{
	return i->context ? i->context->handle : 0;
}

static void describe_kernel(const struct item *i, CUDA_KERNEL_NODE_PARAMS *p)
{
	*p = (CUDA_KERNEL_NODE_PARAMS){.shared = i->shared, .params = i->params, .ctx = item_context(i)};
	memcpy(p->grid, i->grid, sizeof i->grid);
	memcpy(p->block, i->threads, sizeof i->threads);
	if (handle_find(KERNEL, i->called))
		p->kern = (CUkernel)i->called;
	else
		p->func = i->called;
}

static void describe_kernel_v1(const struct item *i, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS all;

	describe_kernel(i, &all);
	all.func = i->called;
	memcpy(p, &all, sizeof *p);
}

static void describe_copy(const struct item *i, CUDA_MEMCPY3D *p)
{
	if (i->box)
		*p = *i->box;
	else
		*p = (CUDA_MEMCPY3D){.dst = {.type = 4, .device = i->dst}, .src = {.type = 4, .device = i->src}, .width = i->size, .height = 1, .depth = 1};
}

static void describe_set(const struct item *i, CUDA_MEMSET_NODE_PARAMS *p)
{
	*p = (CUDA_MEMSET_NODE_PARAMS){i->dst, i->rows.dst_pitch, i->src, i->width, i->size, i->rows.height ? i->rows.height : 1};
}

static void describe_host(const struct item *i, CUDA_HOST_NODE_PARAMS *p)
{
	*p = (CUDA_HOST_NODE_PARAMS){i->host, i->data};
}

static void describe_ops(const struct item *i, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	*p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){item_context(i), i->n, i->ops, 0};
}

/* What was captured has no parameters of its own. */
static void describe_alloc(const struct item *i, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	if (i->alloc)
		*p = *i->alloc;
	else
		*p = (CUDA_MEM_ALLOC_NODE_PARAMS){.pool = {.type = 1, .place = 1, .device = i->block->device}, .size = i->block->size, .address = i->block->address};
}

static void describe_freed(const struct item *i, CUdeviceptr *address)
{
	*address = i->block->address;
}

static void describe_event(const struct item *i, CUevent *event)
{
	*event = i->event;
}

void describe(const struct item *i, CUgraphNodeParams *p)
{
	*p = (CUgraphNodeParams){.type = node_type(i)};
	switch (i->work) {
	case RUN:
		describe_kernel(i, &p->kernel);
		break;
	case COPY:
		p->copy.ctx = item_context(i);
		describe_copy(i, &p->copy.copy);
		break;
	case SET:
		p->set.ctx = item_context(i);
		describe_set(i, &p->set.set);
		break;
	case HOST:
		describe_host(i, &p->host.host);
		p->host.mode = i->mode;
		break;
	case CHILD:
		p->child.graph = graph_handle(i->graphs[0]);
		p->child.ownership = -1; /* the driver's, not for another node */
		break;
	case RECORD:
	case WAIT:
		describe_event(i, &p->event.event);
		break;
	case APPEAR:
		describe_alloc(i, &p->alloc);
		break;
	case VANISH:
		describe_freed(i, &p->freed);
		break;
	case MEMOP:
		describe_ops(i, &p->ops);
		break;
	case CONDITION:
		condition_describe(i, p);
		break;
	default:
		break;
	}
}

/* node_of finds a node that does such work. */
static struct node *node_of(CUgraphNode handle, enum work work)
{
	struct node *n = handle_get(NODE, handle);

	return n && n->item->work == work ? n : 0;
}

/* GET defines a query: its function, the work of its nodes, what it tells and by which function. */
#define GET(function, what, type, describes) \
	CUresult function(CUgraphNode handle, type *p) \
	{ \
		ENTER(0, .does = READS, .node = handle); \
		struct node *n = node_of(handle, what); \
		if (!n || !p) \
			return INVALID_VALUE; \
		describes(n->item, p); \
		return OK; \
	}

GET(cuGraphKernelNodeGetParams_v2, RUN, CUDA_KERNEL_NODE_PARAMS, describe_kernel)
GET(cuGraphKernelNodeGetParams, RUN, CUDA_KERNEL_NODE_PARAMS_v1, describe_kernel_v1)
GET(cuGraphMemcpyNodeGetParams, COPY, CUDA_MEMCPY3D, describe_copy)
GET(cuGraphMemsetNodeGetParams, SET, CUDA_MEMSET_NODE_PARAMS, describe_set)
GET(cuGraphHostNodeGetParams, HOST, CUDA_HOST_NODE_PARAMS, describe_host)
GET(cuGraphBatchMemOpNodeGetParams, MEMOP, CUDA_BATCH_MEM_OP_NODE_PARAMS, describe_ops)
GET(cuGraphMemAllocNodeGetParams, APPEAR, CUDA_MEM_ALLOC_NODE_PARAMS, describe_alloc)
GET(cuGraphMemFreeNodeGetParams, VANISH, CUdeviceptr, describe_freed)
GET(cuGraphEventRecordNodeGetEvent, RECORD, CUevent, describe_event)
GET(cuGraphEventWaitNodeGetEvent, WAIT, CUevent, describe_event)

CUresult cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams *p)
{
	ENTER(0, .does = READS, .node = handle);
	struct node *n = handle_get(NODE, handle);

	if (!n || !p)
		return INVALID_VALUE;
	describe(n->item, p);
	return OK;
}

CUresult node_set(struct node *n, CUresult r, struct item *i)
{
	if (r)
		return r;
	if (!n || n->item->work != i->work) {
		item_free(i);
		return INVALID_VALUE;
	}
	if ((r = graph_takes(n->graph, i))) {
		item_free(i);
		return r;
	}
	if (i->work == RUN) {
		free(i->attributes);
		i->attributes = n->item->attributes;
		i->nattributes = n->item->nattributes;
		n->item->attributes = 0;
	}
	if (!i->context)
		i->context = n->item->context;
	node_renew(n, i);
	return OK;
}

/* SET_PARAMS defines a change, of what a maker makes of the rest of a function's parameters. */
#define SET_PARAMS(maker, ...) \
	ENTER(0, .does = ALTERS, .node = handle); \
	struct node *n = handle_get(NODE, handle); \
	struct item *i = 0; \
	CUresult r = n ? maker(__VA_ARGS__, &i) : INVALID_VALUE; \
	return node_set(n, r, i)

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *p)
{
	SET_PARAMS(make_kernel, p);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	SET_PARAMS(make_kernel_v1, p);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D *p)
{
	SET_PARAMS(make_copy, p, 0);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS *p)
{
	SET_PARAMS(make_set, p, 0);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS *p)
{
	SET_PARAMS(make_host, p, 0);
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode handle, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	SET_PARAMS(make_ops, p);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode handle, CUevent event)
{
	SET_PARAMS(make_event, RECORD, event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode handle, CUevent event)
{
	SET_PARAMS(make_event, WAIT, event);
}

CUresult cuGraphExternalSemaphoresSignalNodeSetParams(CUgraphNode handle, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p)
{
	SET_PARAMS(make_signals, p);
}

CUresult cuGraphExternalSemaphoresWaitNodeSetParams(CUgraphNode handle, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p)
{
	SET_PARAMS(make_awaits, p);
}

CUresult settable(const CUgraphNodeParams *p)
{
	enum { ALLOC_TYPE = 10, FREE_TYPE = 11, CONDITION_TYPE = 13 };

	if (!p)
		return INVALID_VALUE;
	return p->type == ALLOC_TYPE || p->type == FREE_TYPE || p->type == CONDITION_TYPE ? NOT_SUPPORTED : OK;
}

static CUresult set_any(CUgraphNode handle, CUgraphNodeParams *p)
{
	struct node *n = handle_get(NODE, handle);
	struct item *i = 0;
	CUresult r = n ? settable(p) : INVALID_VALUE;

	if (!r)
		r = make(p, n->graph, &i);
	return node_set(n, r, i);
}

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams *p)
{
	ENTER(0, .does = ALTERS, .node = handle);
	return set_any(handle, p);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode handle, CUgraphNodeParams *p)
{
	ENTER(0, .does = ALTERS, .node = handle);
	CUresult r = make_suits(p);

	return r ? r : set_any(handle, p);
}
