//go:build cgo && linux

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drivertest.h"

static int block_bytes_thread;

size_t drivertest_block_bytes(int threads)
{
	block_bytes_thread = syscall(SYS_gettid);
	return 4 * (size_t)threads;
}

int drivertest_block_bytes_thread(void)
{
	return block_bytes_thread;
}

static long destroyed;

void drivertest_destroy(void *amount)
{
	__atomic_add_fetch(&destroyed, (intptr_t)amount, __ATOMIC_SEQ_CST);
}

long drivertest_destroyed(void)
{
	return __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST);
}

void drivertest_empty(void)
{
}

uintptr_t drivertest_symbol(const char *file, const char *name)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	return lib ? (uintptr_t)dlsym(lib, name) : 0;
}

void drivertest_loop_version(uintptr_t fn, long n)
{
	int version;

	while (n-- > 0)
		((int (*)(int *))fn)(&version);
}

void drivertest_loop_query(uintptr_t fn, uintptr_t stream, long n)
{
	while (n-- > 0)
		((int (*)(uintptr_t))fn)(stream);
}

typedef int launch(uintptr_t function, unsigned gx, unsigned gy, unsigned gz,
	unsigned bx, unsigned by, unsigned bz, unsigned shared, uintptr_t stream,
	void **params, void **extra);

void drivertest_loop_launch(uintptr_t fn, uintptr_t function, uintptr_t stream, long n)
{
	while (n-- > 0)
		((launch *)fn)(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
}
