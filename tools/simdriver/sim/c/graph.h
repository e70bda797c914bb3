/* Graphs, what becomes one, and what runs one. */
#pragma once

/* -- edges and nodes: graph.c -- */

/* Edges are what a node, or the next node of a stream, waits for. */
struct edges {
	struct edge { struct node *node; CUgraphEdgeData data; } *list;
	int n;
};

void edges_add(struct edges *e, struct node *node, const CUgraphEdgeData *data);
void edges_add_all(struct edges *e, const struct edges *more);
void edges_clear(struct edges *e);
bool edges_have(const struct edges *e, const struct node *node);
void edges_remove(struct edges *e, const struct node *node);
/* edges_match tells whether there is an edge from a node with such data. */
bool edges_match(const struct edges *e, const struct node *node, const CUgraphEdgeData *data);
/* edges_read makes edges of an array that the program gives; data may be 0. */
CUresult edges_read(struct edges *e, struct graph *g, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n);
/* edges_fit tells whether an item may wait for them: only kernels wait for less than the end of kernels. */
bool edges_fit(const struct edges *e, const struct item *i);
bool edge_plain(const CUgraphEdgeData *data);

struct node {
	CUgraphNode handle; /* 0 inside of an executable */
	unsigned long long made, source; /* which of all nodes it is, and what it is a copy of */
	unsigned id;
	struct graph *graph;
	struct item *item;
	struct edges deps;
	int at; /* its place in the graph */
	unsigned long long walked; /* the last walk that has seen it */
	bool placed;
	bool disabled; /* in an executable */
	bool ends;     /* is one of its block's enders */
};

struct graph {
	CUgraph handle; /* 0 as long as the program does not know the graph */
	unsigned id, ids; /* its own, and of its last node */
	unsigned family;    /* the same for all copies, those of executables and child nodes, too */
	bool inner;         /* it is a child or a body */
	struct node *owner; /* whose */
	struct node **nodes;
	int n;
	struct condition *conditions; /* made for it */
	struct users *users;
	struct capture *capture; /* that adds nodes to it */
	const char *holed;       /* the call that has destroyed a graph inside of it */
	int execs;
};

struct graph *graph_new(void);
/* graph_get finds the graph of a handle, or 0. */
struct graph *graph_get(CUgraph handle);
CUgraph graph_handle(struct graph *g);
struct node *graph_add(struct graph *g, struct item *i, const struct edges *deps);
void graph_remove(struct node *n);
/* graph_copy copies nodes and edges. The nodes get handles if they are for the program. */
struct graph *graph_copy(struct graph *g, bool handles);
/* graph_clone also copies the references to user objects. */
struct graph *graph_clone(struct graph *g);
/* graph_order returns the nodes in an order they can run in, or 0 and one of those that wait for each other. */
struct node **graph_order(struct graph *g, struct node **wrong);
void graph_free(struct graph *g);
/* graph_check stops the program if CUDA would: a graph inside of one was destroyed. */
void graph_check(const struct graph *g);
/* graph_lose frees a graph whose handle the program keeps without knowing. */
void graph_lose(struct graph *g);
void graphs_end(void);
unsigned node_type(const struct item *i);
/* graph_odd makes every node be of a type, 0 takes that back. */
void graph_odd(unsigned type);
/* graph_may_free tells whether a node of the graph may free a block: once, in the graph that allocates it or in any others. */
bool graph_may_free(const struct graph *g, const struct block *b);
/* node_renew gives a node other work. */
void node_renew(struct node *n, struct item *i);

/* -- what nodes by hand do: nodemake.c, box.c, graphmem.c, subgraph.c, condition.c -- */

/* make reads the parameters of any node. The item is there if the result is OK. */
CUresult make(CUgraphNodeParams *p, struct graph *g, struct item **i);
/* make_suits tells whether the contexts of a kernel and of its node are one. */
CUresult make_suits(const CUgraphNodeParams *p);
CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS *p, struct item **i);
CUresult make_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p, struct item **i);
CUresult make_copy(const CUDA_MEMCPY3D *p, CUcontext context, struct item **i);
CUresult make_set(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context, struct item **i);
CUresult make_host(const CUDA_HOST_NODE_PARAMS *p, unsigned mode, struct item **i);
CUresult make_event(enum work work, CUevent event, struct item **i);
CUresult make_ops(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct item **i);
CUresult make_signals(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p, struct item **i);
CUresult make_awaits(const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p, struct item **i);
CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct item **i);
CUresult make_free(CUdeviceptr address, struct graph *g, struct item **i);
CUresult make_child(CUgraph handle, int ownership, struct graph *g, struct item **i);
CUresult make_condition(CUgraphNodeParams *p, struct graph *g, struct item **i);
/* node_set gives a node new parameters: the item that was made of them, if r is OK. What they do not tell stays. */
CUresult node_set(struct node *n, CUresult r, struct item *i);
/* settable tells whether parameters are of a type whose nodes can be changed. */
CUresult settable(const CUgraphNodeParams *p);
/* describe is the reverse: what a node does. */
void describe(const struct item *i, CUgraphNodeParams *p);

CUDA_MEM_ALLOC_NODE_PARAMS *alloc_copy(const CUDA_MEM_ALLOC_NODE_PARAMS *p);

/* box_item makes a copy, and tells which of its ends the driver would have to copy by itself. */
CUresult box_item(const CUDA_MEMCPY3D *p, struct item **i, bool *to_pageable, bool *from_pageable);
/* one_row tells whether a copy or a memset is of one row. */
bool one_row(const struct item *i);

void embed(struct item *i, struct graph *g);
/* own makes a new node the owner of the graphs in it. */
void own(struct node *n);
void inner_copy(struct item *i, bool handles);
void inner_free(struct item *i);
/* graph_has tells whether there is such an item in a graph, at any depth. */
bool graph_has(const struct graph *g, bool (*is)(const struct item *));
/* graph_outermost is the one that a graph is in, at any depth, or itself. */
struct graph *graph_outermost(struct graph *g);
/* graph_captured tells whether a stream captures into a graph, or into one in it. */
bool graph_captured(const struct graph *g);
/* graph_allocates tells whether a graph allocates or frees memory, graph_decides whether it has conditions. */
bool graph_allocates(const struct graph *g);
bool graph_decides(const struct graph *g);
/* graph_takes tells whether a graph may have such a node. */
CUresult graph_takes(const struct graph *g, const struct item *i);
/* graph_misfit finds a node in the body of a condition that may not be there, or 0. */
struct node *graph_misfit(const struct graph *g, bool in_body);
/* graph_within tells whether a graph is another, or in it at any depth. */
bool graph_within(const struct graph *g, const struct graph *outer);
/* graph_flat adds the nodes of a graph to a list of n, in an order they can run in, with those of children in their place. */
struct node **graph_flat(struct graph *g, struct node **list, int *n);

void condition_hold(struct condition *c);
void condition_drop(struct condition *c);
void condition_use(struct condition *c, bool used);
void conditions_drop(struct graph *g);
bool conditions_unused(const struct graph *g);
void condition_describe(const struct item *i, CUgraphNodeParams *p);
void condition_update(struct item *i, const struct item *from);
/* conditions_begin sets the conditions of a launch to their default values. */
void conditions_begin(struct item *launch);
/* condition_set is done by a kernel in a context. */
bool condition_set(CUgraphConditionalHandle handle, unsigned value, const struct context *from);
bool condition_run(struct item *i);

/* -- user objects: user.c -- */

struct users; /* the references that a graph or an executable holds */
/* Where a destructor runs: at the end of this call, or on the thread of the host functions. */
enum where { HERE, THERE };

struct users *users_new(void);
struct users *users_copy(const struct users *from);
void users_add(struct users *u, const struct users *from);
struct users *users_share(struct users *u);
void users_drop(struct users *u, enum where where);
void users_end(void);
/* users_finish runs the destructors that this thread owes. It must not hold the lock. */
void users_finish(void);

/* -- executables: exec.c -- */

struct exec {
	CUgraphExec handle;
	CUgraph source;
	unsigned source_id;
	struct graph *graph;
	struct node **order; /* of all nodes, with those of children */
	int n;
	unsigned long long flags;
	struct users *users;
	struct mark *last; /* the end of its last launch */
};

void exec_free(struct exec *e, enum where where);
/* exec_source finds the graph that an executable was made of, or 0 once that is destroyed. */
struct graph *exec_source(const struct exec *e);
/* exec_hold lets an executable hold the user objects of a graph, and of those in it, instead of others. */
void exec_hold(struct exec *e, const struct graph *g);
/* exec_node finds what became of a node of the program, or 0. */
struct node *exec_node(struct exec *e, CUgraphNode handle);
/* steps_make gives an item the work of nodes, steps_run goes on with it and tells whether it is over. */
void steps_make(struct item *i, struct node **nodes, int n);
bool steps_run(struct item *i);
void steps_free(struct item *i);
/* update_allowed tells whether an executable's node may do something else, as an update result. */
unsigned update_allowed(const struct item *from, const struct item *to);
/* update_graph gives the nodes of one graph the work of another, if that is alike. It tells where it is not. */
unsigned update_graph(struct graph *from, struct graph *to, CUgraphNode *node, CUgraphNode *dep);
/* launch_run goes on with a launch, launch_end frees what it holds. */
bool launch_run(struct item *i);
void launch_end(struct item *i);

/* -- captures: capture.c, recapture.c -- */

struct capture {
	struct capture *next;
	unsigned long long id;
	unsigned mode;
	int thread;
	bool lost, given; /* given is the graph, by the program */
	struct stream *origin;
	struct graph *graph;
	const char *orphaned; /* the call that has destroyed the graph that its own was in */
	/* when a graph is captured once more */
	bool again;
	int at;
	void *callback, *data;
};

/* unsafe is called by what captures forbid, and tells whether one of them is lost by it. */
CUresult unsafe_call(void);
/* on_stream is called by what no capturing stream may be asked. */
CUresult on_stream(struct stream *s);
/* on_legacy is called by what uses the legacy stream. */
CUresult on_legacy(struct context *c);
/* legacy_waits tells whether on_legacy would lose a capture. */
bool legacy_waits(struct context *c);
CUresult capture_item(struct stream *s, struct item *i);
CUresult capture_record(struct stream *s, struct event *e);
CUresult capture_wait(struct stream *s, struct event *e);
/* capture_begin begins a capture, into the program's graph or a new one for 0, after deps unless 0. */
CUresult capture_begin(CUstream handle, CUstreamCaptureMode mode, struct graph *g, const struct edges *deps);
void capture_lose(struct capture *c);
/* captures_lose loses the captures into a graph, and into those in it. */
void captures_lose(struct graph *g);
void capture_lose_context(struct context *c);
/* captures_leave is capture_lose_context for a context that ends. */
void captures_leave(struct context *c);
void capture_forget(struct stream *s);
bool captured_event(struct event *e);
/* capture_blocks tells whether a blocking stream of a context is in a capture, context_captures whether any of it, or of a green one, captures. */
bool capture_blocks(struct capture *c, struct context *of);
bool context_captures(struct context *c, struct green *g);
/* capture_global tells whether a capture, if it is one, is in mode global, captures_global whether there is such a one. */
bool capture_global(struct capture *c);
bool captures_global(void);
/* recapture_item gives the next node of a graph that is captured once more its new work. */
CUresult recapture_item(struct capture *c, const struct edges *deps, struct item *i, struct node **n);
/* recapture_block is the memory of the next node, if that allocates so much. */
struct block *recapture_block(struct capture *c, size_t size);
