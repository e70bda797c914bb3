/*
 * A simulated libcuda.so.1: a test double for programs that are tested on
 * machines without a GPU. It is made after measurements of the real driver, and
 * proves nothing about it.
 *
 * One lock guards everything. One thread runs the work of all streams, one more
 * the host functions. Device memory is the process's own, with guards around
 * every block, so that a use after free or out of bounds is noticed.
 */
#pragma once

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os.h"
#define CUgraphConditionalHandle long_handle /* a long, which has 32 bits on Windows */
#include "ztypes.h"
#undef CUgraphConditionalHandle
typedef uint64_t CUgraphConditionalHandle;
#include "zprotos.h"
#include "layouts.h"

#include "functions.h"
#define DECLARE(name) __typeof__(*(fn_##name)0) name;
FUNCTIONS(DECLARE)
#undef DECLARE

#include "simulate.h"

enum { /* CUresult */
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_IMAGE = 200, INVALID_CONTEXT = 201, FILE_NOT_FOUND = 301, OPERATING_SYSTEM = 304, PEER_ENABLED = 704, PEER_NOT_ENABLED = 705, INVALID_PTX = 218, NEWER_PTX = 222,
	INVALID_HANDLE = 400, ILLEGAL_STATE = 401, LOSSY_QUERY = 402, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
	OUT_OF_RESOURCES = 701, CONTEXT_DESTROYED = 709, HOST_REGISTERED = 712, HOST_NOT_REGISTERED = 713,
	MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719, COOPERATIVE_TOO_LARGE = 720, NOT_PERMITTED = 800, NOT_SUPPORTED = 801,
	CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902, CAPTURE_UNMATCHED = 903,
	CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907,
	CAPTURE_WRONG_THREAD = 908, UPDATE_FAILURE = 910, RECAPTURE_FAILURE = 918,
	INVALID_RESOURCE_TYPE = 914, INVALID_RESOURCE_CONFIGURATION = 915, STREAM_DETACHED = 917,
};

#define MAX_DEVICES 16

/* -- handles: handle.c -- */

enum kind {
	NO_KIND, CONTEXT, STREAM, EVENT, MODULE, LIBRARY, FUNCTION, KERNEL, GRAPH, NODE, EXEC, USER, CONDITION_HANDLE, GREEN, DESC,
	PHYSICAL, LINKER, POOL, ARRAY, TEXTURE, SURFACE, EXTERNAL_MEMORY, EXTERNAL_SEMAPHORE, KINDS,
};

void *handle_new(enum kind kind, void *object);
/* handle_get returns the object, or 0 for a handle of nothing. Using what was destroyed is a violation. */
void *handle_get(enum kind kind, const void *handle);
/* handle_find is handle_get without a complaint. */
void *handle_find(enum kind kind, const void *handle);
void handle_end(void *handle);
/* handle_lose is handle_end for what the program may go on asking about. */
void handle_lose(void *handle);
/* handles_each calls f for every object. */
void handles_each(void (*f)(enum kind kind, void *handle, void *object));

/* -- live objects: live.c -- */

void live_count(enum kind kind, int by);
void live_lost(int n);

#include "overlap.h"

/* -- control: control.c -- */

enum { /* what a function needs, or may */
	BARE = 1,      /* the brackets around other calls, which injected failures of any function pass by */
	EARLY = 2,     /* works before cuInit */
	DEAD = 4,      /* works after a fault */
	CALLBACK = 8,  /* works inside a host function */
	CURRENT = 16,  /* needs a current context */
};

struct call {
	const char *name;
	struct call *next;
	bool known;
	unsigned needs;
	int64_t calls, delay, fail_at;
	CUresult fail;
};

/*
 * ENTER begins a function of the API: it takes the lock until the function returns.
 * What follows the flags is said of the flight; see overlap.h.
 */
#define ENTER(...) \
	ENTER_ANYWAY(__VA_ARGS__); \
	if (entered_) \
		return entered_

/* ENTER_ANYWAY is for a function that does something also where it fails, with entered_. */
#define ENTER_ANYWAY(flags, ...) \
	static struct call call_ = {.name = __func__, .needs = (flags)}; \
	struct flight flight_ __attribute__((cleanup(leave_call), unused)) = {.name = __func__, __VA_ARGS__}; \
	CUresult entered_ = enter_call(&call_, &flight_)

CUresult enter_call(struct call *call, struct flight *f);
void leave_call(struct flight *f);
void violation(const char *format, ...) FORMAT(1);
/* crash is a violation that stops the program, as CUDA crashes. */
void crash(const char *format, ...) FORMAT(1) __attribute__((noreturn));
/* logged is a violation that also stands in CUDA's log; log.c. */
void logged(const char *format, ...) FORMAT(1);

/* -- the state of all: control.c -- */

extern struct sim {
	pthread_mutex_t lock;
	pthread_cond_t work;    /* there is work for the engine */
	pthread_cond_t changed; /* some work is over */
	int waiters;            /* for changed */
	bool initialized, held, strict;
	CUresult faulted; /* by the work that runs just now */
	CUresult fault_code; /* the fault that shows then */
	int64_t fault_at, fault_delay; /* ns; at 0 there is none */
	CUresult dead;    /* the code of the fault that has killed the process's contexts */
	unsigned long long contexts, ids, order;
} sim;

void await_change(void);

/* -- devices and contexts: device.c, context.c -- */

struct context {
	CUcontext handle;
	struct context *next;
	int device, refs;
	unsigned flags;
	bool primary, alive, ending;
	unsigned long long id;
	size_t limits[16];
	int cache;
	unsigned peers; /* bits of devices that kernels may reach */
	struct stream *legacy;
	struct stream *streams;
	int blocked;          /* calls that wait for room on a stream */
	int greens;           /* green contexts that retain this one */
	unsigned long long barrier; /* from this order on, work waits for a green context that is being created; 0: none is */
	struct green *green;  /* of the context that stands for a green one: that, */
	struct context *of;   /* and the primary context, in which all it has lives */
};

struct device {
	struct context primary;
	size_t used;
};
extern struct device devices[MAX_DEVICES];
int device_count(void);
size_t device_memory(void);
struct device *device_get(CUdevice d);
int device_attribute(int attribute, int device);
void device_capability(int major, int minor); /* 0 for its own */

struct stream;
/* current is where what a thread makes lives: for a green context the primary one. */
struct context *current(void);
/* current_view is current, but as the program knows it. */
struct context *current_view(void);
/* context_of finds a context by its handle, as current does. */
struct context *context_of(CUcontext handle);
/* context_behind is the context in which lives what a context has, if that is not dead. */
struct context *context_behind(struct context *c);
struct context *context_retain(struct device *v);
/* context_release ends a primary context that is not retained and has no green contexts. */
void context_release(struct context *c);
/* owner checks that a context is alive and, for a strict driver, current: calls for its objects need that. */
CUresult owner(struct context *c);
void context_end(struct context *c);
void contexts_end(void);
/* contexts_each calls f for every stream of every context. */
void contexts_each(void (*f)(struct stream *, void *), void *data);

extern __thread struct thread {
	struct context *stack[64];
	int depth;
	unsigned mode;    /* of captures */
	bool in_callback;
	int id;
} thread;
int thread_id(void);

#include "memory.h"

/* -- graphs, which streams and events have to do with -- */

/* What an item does. */
enum work { NOTHING, RUN, COPY, SET, RECORD, WAIT, HOST, STATUS, APPEAR, VANISH, MEMOP, SIGNAL, AWAIT, LAUNCH, DESTROY, CHILD, CONDITION };

struct node;
struct graph;
struct event;
struct item;
#include "graph.h"

/* -- streams and their work: stream.c, engine.c -- */

/* A mark is one record of an event. */
struct mark {
	int refs;
	bool done;
	int64_t time; /* ns */
	unsigned long long stream, releases; /* on which it was recorded, and what pools_releases was then */
};
struct mark *mark_new(void);
void mark_drop(struct mark *m);

/* Rows of bytes, and slices of rows, at both ends of a copy, or of a memset. All 0 is one row. */
struct rows {
	size_t height, depth;
	size_t dst_pitch, dst_slice, src_pitch, src_slice;
};

struct item {
	enum work work;
	int room; /* what a record or a prefetch takes of the queue; queue.c */
	struct item *next;
	unsigned long long order;
	struct context *context; /* where it runs */
	bool started, finished;
	bool stuck;            /* it had a fault */
	bool orphan, spared;   /* by a fault: what no stream holds any more, what does not see it */
	int64_t until; /* ns: when to look again */
	struct item *queued; /* for another thread, such as that of the host functions */
	struct mark *mark;
	struct block *block;
	/* kernels */
	const struct kernel *kernel;
	size_t *rest;    /* bytes from each address, once a kernel of the program's begins */
	CUresult failed; /* by such a kernel */
	struct function *function;
	CUfunction called;
	unsigned grid[3], threads[3], shared;
	void **params;
	int nparams;
	size_t packed; /* bytes, of the pointers and what they point to */
	struct launch_attribute *attributes;
	int nattributes;
	bool green; /* captured on a stream of a green context */
	/* copies and sets */
	CUdeviceptr dst, src;
	size_t size, width;
	struct rows rows; /* size is that of one */
	CUDA_MEMCPY3D *box; /* what a node by hand was told */
	bool doomed;        /* an executable was updated to a copy which is */
	bool contextless;   /* captured from or to memory of a pool by a thread without a context */
	void *staged;
	/* host functions */
	void (*host)(void *);
	void (*status)(CUstream, CUresult, void *);
	void *data;
	CUstream stream;
	unsigned mode;
	/* events in graphs */
	CUevent event;
	/* operations on memory */
	CUstreamBatchMemOpParams *ops;
	/* external semaphores */
	struct semaphore_op { CUexternalSemaphore semaphore; struct semaphore_params params; } *semaphores;
	/* memory of graphs */
	CUDA_MEM_ALLOC_NODE_PARAMS *alloc; /* what a node by hand allocates */
	/* graphs within graphs: a child, or the bodies of a condition, which runs one of them as steps */
	struct graph **graphs;
	int ngraphs;
	unsigned choice; /* if, while, switch */
	struct condition *condition;
	CUgraph *bodies; /* as the program was told */
	/* launches of graphs */
	struct item **steps;
	int n, at; /* steps or operations */
	struct mark *after;
	struct users *users;
};

#define STREAM_ATTRIBUTES 5

struct stream {
	CUstream handle;
	struct context *context;
	struct stream *next, *active;
	unsigned flags;
	int priority;
	unsigned long long id;
	bool destroyed, listed;
	struct green *green; /* where the kernels run, 0 for anywhere */
	bool detached;       /* the green context was destroyed first */
	int waiting;
	int filled, blocked; /* by items, calls that wait for room */
	struct item *head, **tail;
	unsigned long long enqueued, executed;
	CUstreamAttrValue attributes[STREAM_ATTRIBUTES];
	/* capture */
	struct capture *capture;
	struct edges deps;
	CUgraphNode *told; /* what the program was told of deps */
	CUgraphEdgeData *told_data;
};

struct stream *stream_new(struct context *c, unsigned flags, int priority);
/* stream_get finds a stream by its handle, also the default ones. */
CUresult stream_get(CUstream handle, struct stream **s);
void stream_end(struct stream *s);
void stream_collect(struct stream *s);
bool stream_busy(struct stream *s);
struct item *item_new(enum work work);
void item_free(struct item *i);
struct item *item_copy(const struct item *i, bool handles);
void **params_copy(const struct item *i);
void item_block(struct item *i, struct block *b);
/* attribute_valid tells whether an attribute of a stream or kernel may have a value. */
bool attribute_valid(unsigned id, const CUstreamAttrValue *v, int device);
/* attributes_begin sets what a new stream has. */
void attributes_begin(struct stream *s);
/* enqueue puts an item on a stream, or into the graph that the stream captures. */
CUresult enqueue(struct stream *s, struct item *i);
/* queue_room waits until a stream has room for an item, and tells whether it had none; queue.c. */
bool queue_room(struct stream *s, const struct item *i);
void queue_add(struct stream *s, const struct item *i);
void queue_remove(struct stream *s, const struct item *i);
/* queue_pass waits while a call waits for room on a stream, queue_pass_all on any of a context. */
void queue_pass(struct stream *s);
void queue_pass_all(struct context *c);
void stream_wait(struct stream *s);
void context_wait(struct context *c);
void fault(CUresult code);
void fault_later(CUresult code);
/* run goes on with an item and tells whether it is over. */
bool run(struct item *i);
bool memop_run(struct item *i);
bool semaphores_run(struct item *i);
/* memop_check tells whether operations on memory may be enqueued. */
CUresult memop_check(const CUstreamBatchMemOpParams *ops, unsigned n);
/* memop_alike tells whether the operations of two items are of the same types. */
bool memop_alike(const struct item *a, const struct item *b);
/* changed wakes those who wait for some work. */
void changed(void);
void engine_start(void);
void engine_wake(void);
/* elsewhere_push gives an item to the thread that runs host functions, or that of kernels. */
void elsewhere_push(struct item *i);
/* elsewhere tells whether such a thread has an item. */
bool elsewhere(const struct item *i);
void elsewhere_start(void);
/* callbacks_await waits until no host function runs: contexts of any device begin and end only then. */
void callbacks_await(void);

void events_end(struct context *c);

struct event {
	CUevent handle;
	struct event *next, **at; /* in the list of all */
	struct context *context;
	unsigned flags;
	struct mark *mark;
	struct capture *capture;
	unsigned long long capture_id;
	struct edges deps;
};
CUresult event_record(struct event *e, struct stream *s);
int event_room(const struct event *e);
/* event_stale tells whether an event has no state since its capture ended. */
bool event_stale(struct event *e);

/* -- green contexts: resource.c, green.c -- */

/* resource_tell gives a part, or where there is none all of a device. */
CUresult resource_tell(struct z_CUdevResource *to, unsigned type, const struct z_CUdevResource *part, unsigned device);
/* green_join makes a new stream one of a green context. */
void green_join(struct stream *s, struct green *g);
CUcontext green_view(struct green *g);
struct context *green_context(struct green *g);
/* greens_end ends those that retain a context that is reset. */
void greens_end(struct context *c);

#include "module.h"
