#include "sim.h"

enum { AUTO_FREE = 1, UPLOAD = 2, DEVICE_LAUNCH = 4 };
enum { INSTANTIATED, FAILED, INVALID_STRUCTURE, NODE_NOT_SUPPORTED, HANDLE_UNUSED = 5 };

struct graph *exec_source(const struct exec *e)
{
	struct graph *g = handle_find(GRAPH, e->source);

	return g && g->id == e->source_id ? g : 0;
}

void exec_free(struct exec *e, enum where where)
{
	struct graph *source = exec_source(e);

	if (source)
		source->execs--;
	handle_end(e->handle);
	mark_drop(e->last);
	users_drop(e->users, where);
	graph_free(e->graph);
	free(e->order);
	free(e);
}

/* What a graph may consist of that device code is to launch. */
static struct node *not_for_devices(struct graph *g)
{
	for (int i = 0; i < g->n; i++)
		if (node_type(g->nodes[i]->item) > 2)
			return g->nodes[i];
	return 0;
}

/* endless finds nodes that wait for each other. */
static bool endless(struct graph *g, struct node **node)
{
	struct node **order = graph_order(g, node);

	for (int i = 0; order && i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->item->ngraphs; k++)
			if (endless(g->nodes[i]->item->graphs[k], node)) {
				free(order);
				return true;
			}
	free(order);
	return !order;
}

/* unfit tells what keeps a graph from being instantiated. */
static unsigned unfit(struct graph *g, unsigned long long flags, struct node **node)
{
	*node = 0;
	if (flags > 15 || (flags & AUTO_FREE && flags & DEVICE_LAUNCH))
		return FAILED;
	if (flags & DEVICE_LAUNCH && (!g->n || (*node = not_for_devices(g))))
		return g->n ? NODE_NOT_SUPPORTED : FAILED;
	if (conditions_unused(g))
		return HANDLE_UNUSED;
	if ((*node = graph_misfit(g, false)))
		return FAILED;
	return endless(g, node) ? INVALID_STRUCTURE : INSTANTIATED;
}

/* gather lets an executable hold the user objects of all graphs that it is made of. */
static void gather(struct users *u, const struct graph *g)
{
	users_add(u, g->users);
	for (int i = 0; i < g->n; i++)
		for (int k = 0; k < g->nodes[i]->item->ngraphs; k++)
			gather(u, g->nodes[i]->item->graphs[k]);
}

void exec_hold(struct exec *e, const struct graph *g)
{
	struct users *before = e->users;

	gather(e->users = users_new(), g);
	if (before)
		users_drop(before, THERE);
}

static struct exec *instantiate(struct graph *g, unsigned long long flags)
{
	struct exec *e = calloc(1, sizeof *e);

	e->graph = graph_copy(g, false);
	e->order = graph_flat(e->graph, 0, &e->n);
	exec_hold(e, g);
	e->flags = flags;
	e->source = g->handle;
	e->source_id = g->id;
	e->handle = handle_new(EXEC, e);
	g->execs++;
	return e;
}

static struct node *find(struct graph *g, unsigned long long source)
{
	struct node *found = 0;

	for (int i = 0; !found && i < g->n; i++) {
		if (g->nodes[i]->source == source)
			return g->nodes[i];
		for (int k = 0; !found && k < g->nodes[i]->item->ngraphs; k++)
			found = find(g->nodes[i]->item->graphs[k], source);
	}
	return found;
}

struct node *exec_node(struct exec *e, CUgraphNode handle)
{
	struct node *n = handle_get(NODE, handle);

	return n ? find(e->graph, n->made) : 0;
}

/* allowed tells whether a graph may be instantiated now. */
static CUresult allowed(struct graph *g)
{
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (graph_captured(g)) {
		captures_lose(g);
		return CAPTURE_UNSUPPORTED;
	}
	if (g->inner)
		return INVALID_VALUE;
	graph_check(g);
	return g->execs && (graph_allocates(g) || graph_decides(g)) ? NOT_SUPPORTED : OK;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph, unsigned long long flags)
{
	ENTER(CURRENT, .does = INSTANTIATES, .graph = graph);
	struct graph *g = graph_get(graph);
	struct node *node;
	CUresult r;

	if (!g || !handle || flags & UPLOAD)
		return INVALID_VALUE;
	if ((r = allowed(g)))
		return r;
	if (unfit(g, flags, &node))
		return INVALID_VALUE;
	*handle = instantiate(g, flags)->handle;
	return OK;
}

void steps_make(struct item *i, struct node **nodes, int n)
{
	i->steps = calloc(n + 1, sizeof *i->steps);
	i->n = n;
	i->at = 0;
	for (int k = 0; k < n; k++) {
		i->steps[k] = nodes[k]->disabled ? item_new(NOTHING) : item_copy(nodes[k]->item, false);
		if (!i->steps[k]->context)
			i->steps[k]->context = i->context;
	}
}

/* launch_item is a launch of an executable on a stream, or what stands for its upload. */
static struct item *launch_item(struct exec *e, struct stream *s, bool upload)
{
	struct item *i = item_new(LAUNCH);

	i->after = e->last;
	i->mark = e->last = mark_new();
	e->last->refs++; /* the executable's and the launch's */
	i->users = users_share(e->users);
	i->context = s->context;
	steps_make(i, e->order, upload ? 0 : e->n);
	return i;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *handle, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	ENTER(CURRENT, .does = INSTANTIATES, .graph = graph);
	struct graph *g = graph_get(graph);
	struct stream *s = 0;
	struct exec *e;
	struct node *node;
	CUresult r;

	if (!p)
		return INVALID_VALUE;
	p->result = FAILED;
	p->node = 0;
	if (!g || !handle)
		return INVALID_VALUE;
	r = allowed(g);
	if (!r && p->flags & UPLOAD && !(r = stream_get(p->upload, &s)))
		r = on_stream(s);
	if (r)
		return r;
	p->result = unfit(g, p->flags, &node);
	p->node = node ? node->handle : 0;
	if (p->result)
		return INVALID_VALUE;
	e = instantiate(g, p->flags);
	*handle = e->handle;
	return s ? enqueue(s, launch_item(e, s, true)) : OK;
}

/* Events in a graph are those of the program: each launch records them anew, and waits for their latest record. */
static void bind(struct item *i)
{
	struct event *e = i->event ? handle_find(EVENT, i->event) : 0;

	if (!e)
		return;
	mark_drop(i->mark);
	if (i->work == RECORD) {
		mark_drop(e->mark);
		e->mark = mark_new();
	}
	if ((i->mark = e->mark))
		i->mark->refs++;
}

static bool unloaded(const struct item *i) { return i->work == RUN && !kernel_loaded(i); }

static bool allocated_here(struct exec *e, struct block *b)
{
	for (int k = 0; k < e->n; k++)
		if (e->order[k]->item->work == APPEAR && e->order[k]->item->block == b)
			return true;
	return false;
}

/* sound tells whether what a launch needs is still there, and what it allocates is not. */
static CUresult sound(struct exec *e)
{
	if (graph_has(e->graph, unloaded)) {
		violation("a graph launches a kernel of a module that was unloaded");
		return INVALID_HANDLE;
	}
	for (int k = 0; k < e->n; k++) {
		struct item *i = e->order[k]->item;

		if (i->doomed)
			crash("a graph that was updated copies memory of a pool, captured without a context");
		/* What it allocated before is still there, or what another graph allocates is not. */
		if ((i->work == APPEAR && i->block->given && !(e->flags & AUTO_FREE)) ||
		    (i->work == VANISH && !i->block->given && !allocated_here(e, i->block))) {
			violation("a graph is launched whose memory is in the wrong state, which crashes under a profiler");
			return INVALID_VALUE;
		}
	}
	return OK;
}

static CUresult launch(CUgraphExec handle, CUstream stream, bool upload)
{
	struct exec *e = handle_get(EXEC, handle);
	struct stream *s;
	struct item *i;
	CUresult r = stream_get(stream, &s);

	if (r)
		return r;
	if (!e)
		return INVALID_VALUE;
	if ((r = on_stream(s)) || (s == s->context->legacy && (r = on_legacy(s->context))) || (r = sound(e)))
		return r;
	i = launch_item(e, s, upload);
	for (int k = 0; k < i->n; k++) {
		struct item *step = i->steps[k];

		bind(step);
		if (step->block)
			step->block->given = step->work == APPEAR;
	}
	return enqueue(s, i);
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
	ENTER(0, .does = LAUNCHES, .stream = stream, .exec = handle);
	if (!current())
		violation("a graph is launched without a current context, which crashes under a profiler");
	return launch(handle, stream, false);
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream)
{
	ENTER(0, .does = LAUNCHES, .stream = stream, .exec = handle);
	return launch(handle, stream, true);
}

bool steps_run(struct item *i)
{
	for (; i->at < i->n; i->at++) {
		struct item *step = i->steps[i->at];

		if (!run(step)) {
			i->until = step->until;
			return false;
		}
		if (sim.faulted)
			break;
		changed();
	}
	return true;
}

void steps_free(struct item *i)
{
	for (int k = 0; k < i->n; k++) {
		struct item *step = i->steps[k];

		if (elsewhere(step))
			step->orphan = true; /* a fault: that thread frees it */
		else
			item_free(step);
	}
	free(i->steps);
	i->steps = 0;
	i->n = i->at = 0;
}

bool launch_run(struct item *i)
{
	if (i->after && !i->after->done)
		return false;
	if (i->n && !i->steps[0]->started)
		conditions_begin(i);
	return steps_run(i);
}

void launch_end(struct item *i)
{
	steps_free(i);
	mark_drop(i->after);
	i->mark->done = true;
	users_drop(i->users, THERE);
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
	ENTER(0, .does = READS, .exec = handle);
	struct exec *e = handle_get(EXEC, handle);

	if (!e || !flags)
		return INVALID_VALUE;
	*flags = e->flags & (AUTO_FREE | DEVICE_LAUNCH); /* the others it does not keep */
	return OK;
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
	ENTER(DEAD, .does = DESTROYS, .exec = handle);
	struct exec *e = handle_get(EXEC, handle);
	CUresult r;

	if (!e)
		return INVALID_VALUE;
	if (!sim.dead && (r = unsafe_call()))
		return r;
	exec_free(e, e->last ? THERE : HERE);
	return OK;
}
