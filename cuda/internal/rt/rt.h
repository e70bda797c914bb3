#pragma once

#include "../../generated/driver/ztypes.h"
#include "../../generated/driver/zprotos.h"

/* Codes besides CUDA's. The stream is capturing: nothing was done. */
#define RT_CAPTURING 100000u
/* The context was reset: nothing was done. */
#define RT_RESET 100001u
/* rt_record_with has recorded the event as part of a capture. */
#define RT_CAPTURED 100002u
/* The driver has called this thread, or foreign code runs on it: nothing was done. */
#define RT_IN_CALLBACK 100003u

/*
 * The state of the thread before a call. It has plain numbers, because Go
 * holds it while other code runs on the thread.
 */
struct rt_scope {
	uintptr_t before;
	unsigned mode;
	unsigned set;
};
_Static_assert(sizeof(struct rt_scope) == 16, "Scope");

const char *rt_bind(const char *file);
/* Modes of rt_enter: see Go's Mode. */
enum { RT_OWN_MODE, RT_RELAXED, RT_FOREIGN };
CUresult rt_enter(uintptr_t context, unsigned long long id, unsigned mode, unsigned char *scope);
void rt_leave(unsigned char *scope);

CUresult rt_check_home(uintptr_t home, unsigned long long id);
CUresult rt_create_stream(uintptr_t context, unsigned long long id, unsigned char *stream, unsigned flags, int priority);
CUresult rt_create_graph(uintptr_t context, unsigned long long id, unsigned char *graph);
CUresult rt_destroy_graph(uintptr_t context, unsigned long long id, uintptr_t graph);
CUresult rt_begin_capture(uintptr_t context, unsigned long long id, uintptr_t stream, unsigned mode);
CUresult rt_end_capture(uintptr_t context, unsigned long long id, uintptr_t stream, unsigned char *graph);
CUresult rt_destroy_exec(uintptr_t context, unsigned long long id, uintptr_t exec);
CUresult rt_query(uintptr_t context, uintptr_t stream, long spin);
CUresult rt_mark(uintptr_t context, uintptr_t stream, uintptr_t event);
CUresult rt_record(uintptr_t context, uintptr_t event, uintptr_t stream);
CUresult rt_record_with(uintptr_t context, uintptr_t event, uintptr_t stream, unsigned flags);
CUresult rt_wait_event(uintptr_t context, uintptr_t stream, uintptr_t event, unsigned flags, unsigned outside);
CUresult rt_event_query(uintptr_t context, uintptr_t event, long spin);
CUresult rt_home_mark(uintptr_t context, uintptr_t home, unsigned long long id, uintptr_t stream, uintptr_t event);
CUresult rt_home_query(uintptr_t context, uintptr_t home, unsigned long long id, uintptr_t event);
unsigned rt_capturing(uintptr_t context, uintptr_t stream);

/* An argument of a kernel, with the layout of Go's Arg. */
enum { RT_NEAR, RT_FAR };
struct rt_arg {
	void *pointer;
	unsigned kind, size;
	unsigned long long near[2];
};
_Static_assert(sizeof(struct rt_arg) == 32, "Arg");

/* CUlaunchConfig, which ztypes.h only declares. */
struct rt_config {
	unsigned grid[3], block[3];
	unsigned shared;
	CUstream stream;
	void *attributes;
	unsigned count;
};

struct rt_launch {
	uintptr_t context, function;
	struct rt_config config;
	unsigned args, prepared;
};
_Static_assert(sizeof(struct rt_launch) == 80, "Launch");

CUresult rt_launch(unsigned char *launch, unsigned char *args);

/* A copy, a memset with the value in src and the number of elements in size, or a launch, whose list is the host memory. */
enum { RT_HTOD, RT_DTOH, RT_DTOD, RT_PEER, RT_HTOH, RT_SET8, RT_SET16, RT_SET32, RT_FILL_LAUNCH };

struct rt_copy {
	uintptr_t context, stream;
	unsigned long long dst, src, size;
	uintptr_t dst_context, src_context;
	unsigned kind, wait;
	uintptr_t home;
	unsigned long long id; /* the expected id of home, 0 for any */
};
_Static_assert(sizeof(struct rt_copy) == 80, "Copy");

CUresult rt_copy(unsigned char *copy, unsigned char *host);

/* The calls in a list of rt_batch: a word with this number and the size in words, and arguments. */
enum { RT_NOTHING, RT_LAUNCH, RT_COPY, RT_RECORD, RT_WAIT, RT_GRAPH, RT_HOST };
enum { RT_ATTRIBUTE_WORDS = 9 }; /* of a CUlaunchAttribute */

unsigned long long rt_batch(uintptr_t context, uintptr_t stream, unsigned char *list, unsigned n, unsigned outside);

/* Memory to allocate in the order of a stream, from a pool unless that is 0. */
struct rt_alloc {
	uintptr_t context, home;
	unsigned long long id; /* the expected id of home, 0 for any */
	uintptr_t stream, pool;
	unsigned long long size, address;
	unsigned captured; /* also if the stream is capturing */
	unsigned complete; /* no work is ever enqueued on the stream: return once any stream may use the memory */
};
_Static_assert(sizeof(struct rt_alloc) == 64, "Alloc");

CUresult rt_alloc(unsigned char *alloc);
CUresult rt_free_async(uintptr_t context, uintptr_t home, unsigned long long id, unsigned long long address, uintptr_t stream, unsigned captures);

CUresult rt_import_memory(unsigned char *memory, uintptr_t fd);
CUresult rt_import_pool(unsigned char *pool, uintptr_t fd);

/* A kernel node to add to a graph, or to change in a graph or an executable. */
enum { RT_ADD, RT_SET, RT_SET_EXEC };
struct rt_node {
	uintptr_t context, function, graph, exec, node;
	unsigned grid[3], block[3], shared;
	unsigned deps, args, what;
};
_Static_assert(sizeof(struct rt_node) == 80, "KernelNode");

CUresult rt_kernel_node(unsigned char *node, unsigned char *deps, unsigned char *args);
/* In a list of rt_kernel_nodes, a dependency with this bit is the index of a node of the same list, until the node has a handle. */
#define RT_SAME_LIST (1ull << 63)
unsigned long long rt_kernel_nodes(uintptr_t context, uintptr_t of, unsigned what, unsigned n, unsigned char *list, unsigned char *nodes);

/* A graph to instantiate, with the layout of Go's Instantiation. */
struct rt_instantiation {
	uintptr_t context, home;
	unsigned long long id; /* the expected id of home, 0 for any */
	uintptr_t graph;
	unsigned long long flags;
	uintptr_t exec, failed;
	int result;
	unsigned nodes, kernels, graphs;
};
_Static_assert(sizeof(struct rt_instantiation) == 72, "Instantiation");

CUresult rt_instantiate(unsigned char *instantiation);
uintptr_t rt_host_function(void);
CUresult rt_graph(uintptr_t context, uintptr_t exec, uintptr_t stream, unsigned upload);
CUresult rt_host_func(uintptr_t context, uintptr_t stream, uintptr_t token, int mode);
CUresult rt_add_callback(uintptr_t context, uintptr_t stream, uintptr_t token);
unsigned rt_in_callback(void);

/* An event to poll. */
struct rt_entry {
	uintptr_t context, home;
	unsigned long long id; /* the expected id of home, 0 for any */
	uintptr_t event;
	long since, due; /* ns; 0 for now */
	long expected;   /* estimated duration in ns, 0 if unknown */
	unsigned result, unused;
};
_Static_assert(sizeof(struct rt_entry) == 64, "Entry");

struct rt_alarm { unsigned word, asleep; };

unsigned rt_poll(unsigned char *entries, unsigned n, unsigned char *alarm, unsigned seen);
void rt_wake(unsigned char *alarm);
