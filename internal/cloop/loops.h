#pragma once
#include <stdint.h>

/* REPEAT makes a call n times and returns the last code that is not 0. */
#define REPEAT(n, call) do { \
	int code, bad = 0; \
	while (n-- > 0) \
		if ((code = (call))) \
			bad = code; \
	return bad; \
} while (0)

/* The loops of other files. */
int loop_graph_build(const uintptr_t *a, long n);
int loop_graph_instantiate(const uintptr_t *a, long n);
int loop_graph_update(const uintptr_t *a, long n);
int loop_graph_set(const uintptr_t *a, long n);
int loop_peers(const uintptr_t *a, long n);
int loop_step(const uintptr_t *a, long n);
int loop_transform(const uintptr_t *a, long n);
int loop_launch_parts(const uintptr_t *a, long n);
