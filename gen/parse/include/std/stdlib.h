/* What headers need of stdlib.h, for parsing alone: as on Linux. */
#pragma once
#include <stddef.h>
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);
void free(void *p);
void abort(void);
void exit(int status);
char *getenv(const char *name);
int abs(int x);
