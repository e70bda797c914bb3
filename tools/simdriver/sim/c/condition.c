#include "sim.h"

/* Conditions: values that kernels set, and the nodes that run a body by them. */

enum { ASSIGN_DEFAULT = 1 };
enum { IF, WHILE, SWITCH, CHOICES };

struct condition {
	CUgraphConditionalHandle handle;
	int refs;
	struct condition *next; /* of the graph */
	struct graph *graph;    /* 0 when that is gone */
	struct context *context;
	unsigned initial, flags, value;
	bool used; /* by a node */
};

void condition_hold(struct condition *c)
{
	if (c)
		c->refs++;
}

void condition_drop(struct condition *c)
{
	if (!c || --c->refs)
		return;
	handle_end((void *)c->handle);
	free(c);
}

void condition_use(struct condition *c, bool used)
{
	if (c)
		c->used = used;
}

void conditions_drop(struct graph *g)
{
	for (struct condition *c = g->conditions, *next; c; c = next) {
		next = c->next;
		c->graph = 0;
		condition_drop(c);
	}
}

/* conditions_unused tells whether a handle of a graph is of no node. */
bool conditions_unused(const struct graph *g)
{
	for (struct condition *c = g->conditions; c; c = c->next)
		if (!c->used)
			return true;
	for (int i = 0; i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->item->ngraphs; k++)
			if (conditions_unused(g->nodes[i]->item->graphs[k]))
				return true;
	return false;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context, unsigned initial, unsigned flags)
{
	ENTER(0, .does = ALTERS, .graph = graph);
	struct graph *g = graph_get(graph);
	struct context *in = context ? context_of(context) : current();
	struct condition *c;

	if (!handle || !g || flags > ASSIGN_DEFAULT)
		return INVALID_VALUE;
	if (!in)
		return INVALID_CONTEXT;
	c = calloc(1, sizeof *c);
	c->handle = *handle = (uintptr_t)handle_new(CONDITION_HANDLE, c);
	c->refs = 1;
	c->graph = g;
	c->context = in;
	c->initial = initial;
	c->flags = flags;
	c->next = g->conditions;
	g->conditions = c;
	return OK;
}

/* sized tells whether a condition may have so many bodies. */
static bool sized(unsigned choice, unsigned n)
{
	bool more = SIM_VERSION >= 12080; /* else and switch */

	return choice < (more ? CHOICES : SWITCH) && n && (choice == SWITCH || n <= (choice == IF && more ? 2 : 1));
}

CUresult make_condition(CUgraphNodeParams *p, struct graph *g, struct item **item)
{
	struct condition *c = handle_get(CONDITION_HANDLE, (void *)p->condition.handle);
	struct context *in = p->condition.ctx ? context_of(p->condition.ctx) : current();
	struct item *i;

	if (!g || !c || c->used || !c->graph || !graph_within(g, c->graph) || c->context != in)
		return INVALID_VALUE;
	if (!sized(p->condition.choice, p->condition.n))
		return INVALID_VALUE;
	i = *item = item_new(CONDITION);
	i->context = in;
	i->choice = p->condition.choice;
	i->condition = c;
	c->refs++;
	i->bodies = calloc(p->condition.n, sizeof *i->bodies);
	for (unsigned k = 0; k < p->condition.n; k++) {
		embed(i, graph_new());
		i->bodies[k] = graph_handle(i->graphs[k]);
	}
	p->condition.graphs = i->bodies;
	return OK;
}

void condition_describe(const struct item *i, CUgraphNodeParams *p)
{
	p->condition.handle = i->condition->handle;
	p->condition.choice = i->choice;
	p->condition.n = i->ngraphs;
	p->condition.graphs = i->bodies;
	p->condition.ctx = i->context->handle;
}

/* condition_update gives an executable's node the condition of another. */
void condition_update(struct item *i, const struct item *from)
{
	condition_hold(from->condition);
	condition_drop(i->condition);
	i->condition = from->condition;
}

static void begin(struct item *i)
{
	if (i->condition && i->condition->flags & ASSIGN_DEFAULT)
		i->condition->value = i->condition->initial;
	for (int k = 0; k < i->ngraphs; k++)
		for (int n = 0; n < i->graphs[k]->n; n++)
			begin(i->graphs[k]->nodes[n]->item);
}

void conditions_begin(struct item *launch)
{
	for (int k = 0; k < launch->n; k++)
		begin(launch->steps[k]);
}

bool condition_set(CUgraphConditionalHandle handle, unsigned value, const struct context *from)
{
	struct condition *c = handle_get(CONDITION_HANDLE, (void *)handle);

	if (!c || c->context != from)
		return false;
	c->value = value;
	return true;
}

/* body is what the value of a condition asks for. */
static struct graph *body(const struct item *i)
{
	unsigned value = i->condition->value;

	if (i->choice != SWITCH)
		value = !value;
	if (i->choice == WHILE && value)
		return 0;
	return value < (unsigned)i->ngraphs ? i->graphs[value] : 0;
}

bool condition_run(struct item *i)
{
	if (!i->steps) {
		struct graph *g = body(i);
		struct node **nodes = 0;
		int n = 0;

		if (!g)
			return true;
		nodes = graph_flat(g, nodes, &n);
		steps_make(i, nodes, n);
		free(nodes);
	}
	if (!steps_run(i))
		return false;
	steps_free(i);
	if (i->choice != WHILE)
		return true;
	i->until = now_ns(); /* others have a turn before the next */
	return false;
}
