#pragma once
#include <stddef.h>
#include <stdint.h>

size_t drivertest_block_bytes(int threads);
int drivertest_block_bytes_thread(void);
void drivertest_destroy(void *amount);
long drivertest_destroyed(void);
void drivertest_call(uintptr_t fn, uintptr_t a, uintptr_t b, uintptr_t c);

/* Go. */
void drivertestHostFunc(uintptr_t userData);
void drivertestStreamCallback(uintptr_t stream, int status, uintptr_t userData);
