#pragma once

#include "../../generated/driver/ztypes.h"
#include "../../generated/driver/zprotos.h"

/* Codes besides CUDA's. The stream is capturing: nothing was done. */
#define RT_CAPTURING 100000u
/* The context was reset: nothing was done. */
#define RT_RESET 100001u
/* The event was recorded as part of a capture. */
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
	unsigned status; /* of the stream: see Go's Scope */
};
_Static_assert(sizeof(struct rt_scope) == 24, "Scope");

uintptr_t rt_library(const char *file);
unsigned rt_find(unsigned function, uintptr_t library, const char *name);
/* Modes of rt_enter: see Go's Mode. */
enum { RT_OWN_MODE, RT_RELAXED, RT_FOREIGN };
CUresult rt_enter(uintptr_t context, unsigned long long id, unsigned mode, uintptr_t stream, unsigned char *scope);
void rt_leave(unsigned char *scope);

/* A call with what comes before and after it, with the layout of Go's call, which describes it. */
enum { RT_UNCHECKED, RT_NOT_LEGACY, RT_NOT_CAPTURING, RT_TELL };
enum { RT_RELAX = 1, RT_CREATES = 2, RT_WAITS = 4, RT_SETTLES = 8, RT_MARKS = 16 };
struct rt_call {
	uintptr_t context, home;
	unsigned long long id; /* the expected id of home, 0 for any */
	uintptr_t stream;
	unsigned fn, check, flags, words;
	long spin;
	unsigned long long args[6];
	void *host; /* takes the place of args[at], unless 0; a list with the launch for cuLaunchKernel */
	unsigned long long at, created;
	uintptr_t event;
};
_Static_assert(sizeof(struct rt_call) == 136, "call");

CUresult rt_call(unsigned char *call);

/* Calls of other libraries' functions, with the layouts of Go's Calls and Function, which describe them. */
struct rt_calls {
	uintptr_t context, home;
	unsigned long long id; /* the expected id of home, 0 for any */
	uintptr_t stream;
	unsigned n;
};
_Static_assert(sizeof(struct rt_calls) == 40, "Calls");
struct rt_function {
	uintptr_t address;
	unsigned long long args[8], floats[2];
	int result;
	_Bool always, made;
};
_Static_assert(sizeof(struct rt_function) == 96, "Function");

uintptr_t rt_symbol(const char *file, const char *name);
CUresult rt_call_functions(unsigned char *calls, unsigned char *functions);

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

/* The calls in a list of rt_batch: a word with this number and the size in words, and arguments. */
enum { RT_NOTHING, RT_LAUNCH, RT_CALL };
enum { RT_ATTRIBUTE_WORDS = 9 }; /* of a CUlaunchAttribute */

unsigned long long rt_batch(uintptr_t context, uintptr_t stream, unsigned char *list, unsigned n, unsigned outside);

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
uintptr_t rt_status_function(void);
unsigned rt_in_callback(void);

/* An event to poll. */
struct rt_entry {
	uintptr_t context, home;
	unsigned long long id; /* the expected id of home, 0 for any */
	uintptr_t event;
	long since, due; /* ns; 0 for now */
	long expected;   /* estimated duration in ns, 0 if unknown */
	unsigned result;
};
_Static_assert(sizeof(struct rt_entry) == 64, "Entry");

struct rt_alarm { unsigned word, asleep; };

CUresult rt_await(unsigned char *entry);
unsigned rt_poll(unsigned char *entries, unsigned n, unsigned char *alarm, unsigned seen);
void rt_wake(unsigned char *alarm);
