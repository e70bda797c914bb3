#pragma once
#include <stddef.h>
#include <stdint.h>

size_t drivertest_block_bytes(int threads);
int drivertest_block_bytes_thread(void);
void drivertest_destroy(void *amount);
long drivertest_destroyed(void);

void drivertest_empty(void);
uintptr_t drivertest_symbol(const char *file, const char *name);
void drivertest_loop_version(uintptr_t fn, long n);
void drivertest_loop_query(uintptr_t fn, uintptr_t stream, long n);
void drivertest_loop_launch(uintptr_t fn, uintptr_t function, uintptr_t stream, long n);

/* Go. */
void drivertestHostFunc(uintptr_t userData);
void drivertestStreamCallback(uintptr_t stream, int status, uintptr_t userData);
