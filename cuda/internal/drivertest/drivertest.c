//go:build cgo && linux

#define _GNU_SOURCE
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

void drivertest_call(uintptr_t fn, uintptr_t a, uintptr_t b, uintptr_t c)
{
	((void (*)(uintptr_t, uintptr_t, uintptr_t))fn)(a, b, c);
}
