/* What tests tell the simulated driver, by dlsym. All of it may be called at any time, from any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "simkernel.h"

/* The nth call from now of a function (0 for any), 1 being the next, returns code and does nothing. */
void simFail(const char *function, int64_t nth, unsigned code);
/* The function that was made to fail last, "" for none. */
const char *simFailed(void);
/* How many calls of a function there were, 0 for all that count for simFail. */
int64_t simCalls(const char *function);
/* Every call of a function takes so much longer, or until simReset. */
void simDelay(const char *function, int64_t microseconds);
/* While it is held, no stream begins new work. */
void simHold(int on);
/* Kills the contexts of the process as a bad store does: a little later. */
void simFault(unsigned code);
/* How long it takes until a fault shows, 20 ms if this is not called. */
void simFaultDelay(int64_t microseconds);
/* Calls that crash at once with others last longer: one of 16 for so many microseconds. */
void simWiden(int64_t microseconds);
/* How many of them have begun and do not wait for work. */
int simFlying(void);
/* Takes back failures, delays, a hold, odd nodes, a compute capability, a fault and how late it is, and forgets violations. */
void simReset(void);
/* How many objects are alive, by kind: primary context stream event memory async host registered module graph exec userobject physical reserved linker green pool ipc array texture surface external, 0 for all. */
int simLive(const char *kind);
/* Lists how many objects are alive, a line for each kind. */
void simList(char *text, size_t size);
/* Destroys whatever is alive. */
void simPurge(void);
/* How many objects went with their context, which no program should leave to it. */
int simLost(void);
/* How many wrong uses were seen, and the first of them. */
int simViolations(void);
const char *simViolation(void);
/* Every node of a graph is said to be of a type, as one of a newer driver may be. 0 takes that back. */
void simOddNodes(unsigned type);
/* The devices say that they have this compute capability. 0 takes that back. */
void simCapability(int major, int minor);
/* Every call needs the context of what it is called for to be current, as with older drivers. */
void simStrict(int on);
/* How many devices there are, before cuInit. */
void simDevices(int n);

/* A parameter of a kernel: a value of so many bytes, or an address of values of so many bytes. */
struct simParameter {
	int address;
	size_t size, align;
};
/*
 * A kernel of the program's. args are as in simkernel.h, and rest[k] tells how many bytes there are from the address
 * that is parameter k. A code other than 0 fails the launch, for a reason that is written to why.
 */
typedef unsigned (*simRun)(size_t id, struct simGrid *g, void **args, size_t *rest, char *why, size_t room);
/* Registers a kernel, in place of an older one of that name. */
void simKernel(const char *name, size_t id, simRun run, const struct simParameter *parameters, int n);
/* Kernels that nobody has registered do nothing, rather than that their launch is refused. */
void simEmpty(int on);
/* Forbids this thread to call CUDA, as within a host function, or takes that back. */
void simInside(int on);
/* Tells how many bytes there are from an address of values with an alignment, for the kernel that runs. A code other than 0 says that there are none. */
unsigned simMemory(unsigned long long address, size_t align, size_t *rest);
/* Finds a variable of the module of the kernel that runs. */
unsigned simVariable(const char *name, unsigned long long *address, size_t *size);
/* Sets a condition of a graph, as the kernel that runs. Without one, and for another handle, that is a violation. */
void simCondition(unsigned long long handle, unsigned value);
