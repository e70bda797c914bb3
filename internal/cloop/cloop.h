#pragma once
#include <stdint.h>

void cloop_empty(void);
int64_t cloop_now(void);
uintptr_t cloop_symbol(const char *file, const char *name);
int cloop_run(unsigned loop, const uintptr_t *args, long n);
int cloop_timed(unsigned loop, const uintptr_t *args, int64_t *ns, long n);

struct cloop_watch;
struct cloop_watch *cloop_watch(const uintptr_t *args);
int cloop_watched(struct cloop_watch *w, int64_t *at);
