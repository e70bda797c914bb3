#pragma once
#include <stdint.h>

void cloop_empty(void);
uintptr_t cloop_symbol(const char *file, const char *name);
int cloop_run(unsigned loop, const uintptr_t *args, long n);
