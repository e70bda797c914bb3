#include "sim.h"

/* What kernel nodes are told besides their parameters. */

enum { WINDOW = 1, COOPERATIVE = 2, SPREAD = 5, PRIORITY = 8, DOMAIN_MAP = 9, DOMAIN = 10, WISHED_CLUSTER = 11, CARVEOUT = 14 };

static bool known(unsigned id)
{
	return id == WINDOW || id == COOPERATIVE || id == CLUSTER || id == SPREAD || (id >= PRIORITY && id <= DOMAIN)
		|| (id == WISHED_CLUSTER && SIM_VERSION >= 12080) || (id == CARVEOUT && SIM_VERSION >= 12040);
}

static struct node *kernel_node(CUgraphNode handle)
{
	struct node *n = handle_get(NODE, handle);

	return n && n->item->work == RUN ? n : 0;
}

static struct launch_attribute *find(struct item *i, unsigned id)
{
	for (int n = 0; n < i->nattributes; n++)
		if (i->attributes[n].id == id)
			return &i->attributes[n];
	return 0;
}

static struct launch_attribute *find_or_add(struct item *i, unsigned id)
{
	struct launch_attribute *a = find(i, id);

	if (a)
		return a;
	i->attributes = realloc(i->attributes, (i->nattributes + 1) * sizeof *i->attributes);
	a = &i->attributes[i->nattributes++];
	*a = (struct launch_attribute){.id = id};
	return a;
}

static bool fits(const struct item *i, unsigned id, const CUkernelNodeAttrValue *v)
{
	switch (id) {
	case WINDOW:
	case DOMAIN_MAP:
	case DOMAIN:
		return attribute_valid(id, (const CUstreamAttrValue *)v, i->context->device);
	case COOPERATIVE:
		return v->value <= 1;
	case CLUSTER:
		return v->dim[0] && v->dim[1] && v->dim[2] && !(i->grid[0] % v->dim[0]) && !(i->grid[1] % v->dim[1]) && !(i->grid[2] % v->dim[2]);
	default:
		return true;
	}
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
	ENTER(0, .does = READS, .node = handle);
	struct node *n = kernel_node(handle);
	struct launch_attribute *a;

	if (!n || !value || !known(id))
		return INVALID_VALUE;
	a = find(n->item, id);
	*value = a ? a->value : (CUkernelNodeAttrValue){0};
	return OK;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
	ENTER(0, .does = ALTERS, .node = handle);
	struct node *n = kernel_node(handle);
	CUkernelNodeAttrValue *v;

	if (!n || !value || !known(id) || !fits(n->item, id, value))
		return INVALID_VALUE;
	v = &find_or_add(n->item, id)->value;
	*v = *value;
	if (id == PRIORITY)
		v->priority = v->priority > 0 ? 0 : v->priority < -5 ? -5 : v->priority;
	return OK;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	ENTER(0, .does = ALTERS, .node = to);
	struct node *a = kernel_node(to), *b = kernel_node(from);

	if (!a || !b || a->item->context != b->item->context)
		return INVALID_VALUE;
	for (int n = 0; n < b->item->nattributes; n++)
		find_or_add(a->item, b->item->attributes[n].id)->value = b->item->attributes[n].value;
	return OK;
}
