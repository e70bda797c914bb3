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
/* edges_read makes edges of an array that the program gives; data may be 0. */
CUresult edges_read(struct edges *e, struct graph *g, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n);
/* edges_fit tells whether an item may wait for them: only kernels wait for less than the end of kernels. */
bool edges_fit(const struct edges *e, const struct item *i);
bool edge_plain(const CUgraphEdgeData *data);

struct node {
	CUgraphNode handle; /* 0 inside of an executable */
	struct graph *graph;
	struct item *item;
	struct edges deps;
	int at; /* its place in the graph */
	bool placed;
};

struct graph {
	CUgraph handle; /* 0 as long as the program does not know the graph */
	struct node **nodes;
	int n;
	struct users *users;
	struct capture *capture; /* that adds nodes to it */
	int execs;
};

struct graph *graph_new(void);
/* graph_get finds the graph of a handle, or 0, also when a capture has taken the graph from the program. */
struct graph *graph_get(CUgraph handle);
CUgraph graph_handle(struct graph *g);
struct node *graph_add(struct graph *g, struct item *i, const struct edges *deps);
void graph_remove(struct node *n);
/* graph_copy copies nodes and edges. The nodes get handles if they are for the program. */
struct graph *graph_copy(struct graph *g, bool handles);
/* graph_order returns the nodes in an order they can run in, or 0 and one of those that wait for each other. */
struct node **graph_order(struct graph *g, struct node **wrong);
/* graph_allocates tells whether a graph allocates or frees memory. */
bool graph_allocates(const struct graph *g);
void graph_free(struct graph *g);
/* graph_lose frees a graph whose handle the program keeps without knowing. */
void graph_lose(struct graph *g);
void graphs_end(void);
unsigned node_type(const struct item *i);

/* -- user objects: user.c -- */

struct users; /* the references that a graph or an executable holds */
/* Where a destructor runs: at the end of this call, or on the thread of the host functions. */
enum where { HERE, THERE };

struct users *users_new(void);
struct users *users_copy(const struct users *from);
struct users *users_share(struct users *u);
void users_drop(struct users *u, enum where where);
void users_end(void);
/* users_finish runs the destructors that this thread owes. It must not hold the lock. */
void users_finish(void);

/* -- executables: exec.c -- */

struct exec {
	CUgraphExec handle;
	CUgraph source;
	struct graph *graph;
	struct node **order;
	unsigned long long flags;
	struct users *users;
	struct mark *last; /* the end of its last launch */
};

void exec_free(struct exec *e, enum where where);
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
/* capture_begin begins a capture, into the program's graph or a new one for 0, behind deps unless 0. */
CUresult capture_begin(CUstream handle, CUstreamCaptureMode mode, struct graph *g, const struct edges *deps);
void capture_lose(struct capture *c);
void capture_lose_context(struct context *c);
void capture_forget(struct stream *s);
bool captured_event(struct event *e);
/* recapture_item gives the next node of a graph that is captured once more its new work. */
CUresult recapture_item(struct capture *c, const struct edges *deps, struct item *i, struct node **n);
/* recapture_block is the memory of the next node, if that allocates so much. */
struct block *recapture_block(struct capture *c, size_t size);
