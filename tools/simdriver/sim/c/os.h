/* What systems do in ways of their own: os_posix.c and os_windows.c. Times are in ns of a clock that only goes forward. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
typedef struct { void *state; } pthread_mutex_t;
typedef struct { void *state; } pthread_cond_t;
#define PTHREAD_MUTEX_INITIALIZER {0}
#define PTHREAD_COND_INITIALIZER {0}
void pthread_mutex_lock(pthread_mutex_t *m);
void pthread_mutex_unlock(pthread_mutex_t *m);
void pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
void pthread_cond_signal(pthread_cond_t *c);
void pthread_cond_broadcast(pthread_cond_t *c);
#define localtime_r(time, to) (localtime_s(to, time) ? (struct tm *)0 : (to))
#define FORMAT(n) __attribute__((format(gnu_printf, n, n + 1)))
enum { FILES = false }; /* by whose descriptors memory, pools and semaphores are shared */
#else
#include <pthread.h>
#define FORMAT(n) __attribute__((format(printf, n, n + 1)))
enum { FILES = true };
#endif

int64_t now_ns(void);
/* os_timed makes a condition one for os_wait_until. */
void os_timed(pthread_cond_t *c);
void os_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t time);
/* os_start starts a thread that never ends. */
void os_start(void *(*f)(void *), void *data);
int os_thread(void);
int os_process(void);
void os_yield(void);
void os_sleep(int64_t us);

/* os_memory returns zeroed memory that takes no room before use, or 0. Memory of os_reserve needs os_commit first. */
void *os_memory(size_t size);
void *os_reserve(size_t size);
void os_commit(void *at, size_t size);
/* os_forget takes the room back. */
void os_forget(void *at, size_t size);

/* os_span returns addresses at which os_map can map, or 0. */
void *os_span(size_t size);
/* os_shared returns memory that can be mapped at several places, or -1. */
intptr_t os_shared(size_t size);
void os_unshare(intptr_t memory);
bool os_map(void *at, size_t size, intptr_t memory);
void os_unmap(void *at, size_t size);

/* os_read_only tells whether the process may only read a part of the memory, and os_private_file whether a part is a private mapping of a file on a disk. */
bool os_read_only(uintptr_t from, size_t size);
bool os_private_file(uintptr_t from, size_t size);

/* Files by their descriptors, which fail where there are none. os_file_new makes one of bytes. */
int64_t os_file_size(int file);
void *os_file_map(int file, size_t offset, size_t size);
void os_file_unmap(void *at, size_t size);
int os_file_new(const void *bytes, size_t n);
bool os_file_read(int file, void *bytes, size_t n);
int os_file_copy(int file);
void os_file_close(int file);

/* os_library opens a library in the folder of this one, or returns 0. Then why is empty if there is none. */
void *os_library(const char *name, char *why, size_t room);
void *os_symbol(void *library, const char *name);
