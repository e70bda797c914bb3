#include "sim.h"

/*
 * What nodes made by hand do. The same functions read the parameters of a new
 * node, and the new parameters of one that is there.
 */

/* make_context finds the context that a node is to run in. None is that of the launch. */
static CUresult make_context(CUcontext handle, struct context **c)
{
	*c = handle ? context_of(handle) : 0;
	return *c || !handle ? OK : INVALID_CONTEXT;
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS *p, struct item **i)
{
	CUlaunchConfig c = {0};

	if (!p)
		return INVALID_VALUE;
	if (!current() && (p->func || !p->ctx)) {
		if (p->func)
			violation("a kernel node is added without a current context, which crashes the process");
		return INVALID_CONTEXT;
	}
	memcpy(c.grid, p->grid, sizeof c.grid);
	memcpy(c.block, p->block, sizeof c.block);
	c.shared = p->shared;
	return kernel_item(&c, p->func ? p->func : (CUfunction)p->kern, p->params, p->extra, i);
}

CUresult make_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p, struct item **i)
{
	CUDA_KERNEL_NODE_PARAMS all = {0};

	if (!p)
		return INVALID_VALUE;
	memcpy(&all, p, sizeof *p);
	return make_kernel(&all, i);
}

CUresult make_set(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context, struct item **item)
{
	struct context *c;
	struct item *i;
	size_t row, size;
	CUresult r = p ? make_context(context, &c) : INVALID_VALUE;

	if (r)
		return r;
	if (!p->width || !p->height || (p->element != 1 && p->element != 2 && p->element != 4) || p->dst % p->element)
		return INVALID_VALUE;
	if (__builtin_mul_overflow(p->width, p->element, &row) || (p->height > 1 && (p->pitch < row || p->pitch % p->element)))
		return INVALID_VALUE;
	if (__builtin_mul_overflow(p->height - 1, p->pitch, &size) || __builtin_add_overflow(size, row, &size))
		return INVALID_VALUE;
	if (!usable(p->dst, p->height > 1 ? size : row, "a memset of"))
		return INVALID_VALUE;
	i = *item = item_new(SET);
	i->context = c;
	i->dst = p->dst;
	i->src = p->value;
	i->width = p->element;
	i->size = p->width;
	i->rows = (struct rows){.height = p->height, .depth = 1, .dst_pitch = p->pitch};
	return OK;
}

CUresult make_copy(const CUDA_MEMCPY3D *p, CUcontext context, struct item **item)
{
	struct context *c;
	bool pageable;
	CUresult r = p ? make_context(context, &c) : INVALID_VALUE;

	if (!r && !(p->width && p->height && p->depth))
		r = INVALID_VALUE;
	if (!r)
		r = box_item(p, item, &pageable, &pageable);
	if (r)
		return r;
	(*item)->context = c;
	(*item)->box = memcpy(malloc(sizeof *p), p, sizeof *p);
	return OK;
}

CUresult make_host(const CUDA_HOST_NODE_PARAMS *p, unsigned mode, struct item **i)
{
	if (!p || !p->fn || mode > 1)
		return INVALID_VALUE;
	*i = item_new(HOST);
	(*i)->host = p->fn;
	(*i)->data = p->data;
	(*i)->mode = mode;
	return OK;
}

CUresult make_event(enum work work, CUevent event, struct item **i)
{
	struct event *e = handle_get(EVENT, event);

	if (!e)
		return INVALID_VALUE;
	*i = item_new(work);
	(*i)->event = event;
	return OK;
}

CUresult make_ops(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct item **item)
{
	struct context *c;
	struct item *i;
	CUresult r = p ? make_context(p->ctx, &c) : INVALID_VALUE;

	if (!r && (!c || !p->n || p->n >= 256 || !p->ops || p->flags))
		r = INVALID_VALUE;
	if (!r)
		r = memop_check(p->ops, p->n);
	if (r)
		return r;
	i = *item = item_new(MEMOP);
	i->context = c;
	i->n = p->n;
	i->ops = memcpy(malloc(p->n * sizeof *p->ops), p->ops, p->n * sizeof *p->ops);
	return OK;
}

/* clean tells whether all bytes past those that a type of node uses are 0, as they must be. */
static bool clean(const CUgraphNodeParams *p, size_t used)
{
	const unsigned char *bytes = (const void *)p->all;

	for (size_t i = used; i < sizeof p->all; i++)
		if (bytes[i])
			return false;
	return !p->reserved0[0] && !p->reserved0[1] && !p->reserved0[2] && !p->reserved2;
}

CUresult make_suits(const CUgraphNodeParams *p)
{
	struct function *f;

	if (!p || p->type || !p->kernel.func || !p->kernel.ctx)
		return OK;
	return function_get(p->kernel.func, &f) || f->module->context->handle == p->kernel.ctx ? OK : INVALID_CONTEXT;
}

CUresult make(CUgraphNodeParams *p, struct graph *g, struct item **i)
{
	static const size_t used[] = {
		[0] = sizeof p->kernel, [1] = sizeof p->copy, [2] = sizeof p->set, [3] = sizeof p->host, [4] = sizeof p->child,
		[6] = sizeof p->event.event, [7] = sizeof p->event,
		[8] = sizeof p->signals, [9] = sizeof p->awaits, [10] = sizeof p->alloc, [11] = sizeof p->freed,
		[12] = sizeof p->ops, [13] = sizeof p->condition,
	};

	if (!p || p->type < 0 || (size_t)p->type >= sizeof used / sizeof *used || !clean(p, used[p->type]))
		return INVALID_VALUE;
	switch (p->type) {
	case 0:
		return make_kernel(&p->kernel, i);
	case 1:
		return p->copy.flags || p->copy.reserved ? INVALID_VALUE : make_copy(&p->copy.copy, p->copy.ctx, i);
	case 2:
		return make_set(&p->set.set, p->set.ctx, i);
	case 3:
		return make_host(&p->host.host, p->host.mode, i);
	case 4:
		return make_child(p->child.graph, p->child.ownership, g, i);
	case 5:
		*i = item_new(NOTHING);
		return OK;
	case 6:
		return make_event(WAIT, p->event.event, i);
	case 7:
		return make_event(RECORD, p->event.event, i);
	case 8:
		return make_signals(&p->signals, i);
	case 9:
		return make_awaits(&p->awaits, i);
	case 10:
		return make_alloc(&p->alloc, i);
	case 11:
		return make_free(p->freed, g, i);
	case 12:
		return make_ops(&p->ops, i);
	case 13:
		return make_condition(p, g, i);
	default:
		return NOT_SUPPORTED;
	}
}
