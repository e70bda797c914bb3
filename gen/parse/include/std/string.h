/* What headers need of string.h, for parsing alone. */
#pragma once
#include <stddef.h>
void *memset(void *p, int c, size_t n);
void *memcpy(void *to, const void *from, size_t n);
size_t strlen(const char *s);
