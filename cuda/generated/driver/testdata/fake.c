/*
 * A library that the tests load in place of the driver. It simulates nothing: a
 * function says what it was called with, and what was said last is the text of
 * code 0.
 */
#define _GNU_SOURCE
#define __USE_MINGW_ANSI_STDIO 1
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#define THREAD ((long)GetCurrentThreadId())
#else
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#define THREAD syscall(SYS_gettid)
#endif

typedef int result;
typedef uint64_t device_ptr;
typedef struct { char reserved[64]; } mem_handle;
typedef struct { unsigned type; int id; } location;

static char said[1024];

/* A pointer or an address as a number, which X prints on every system alike. */
#define P(p) ((uintptr_t)(p))
#define X "%#" PRIxPTR

static result say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(said, sizeof said, format, list);
	va_end(list);
	return 0;
}

result cuGetErrorString(result code, const char **text)
{
	*text = code == 0 ? said : 0;
	return code == 0 ? 0 : 1;
}

result cuGetErrorName(result code, const char **text)
{
	*text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : 0;
	return code == 2 ? 0 : 1;
}

/* The code to return is in the flags. */
result cuInit(unsigned flags)
{
	return flags;
}

/* Functions that tell something. */

result cuDriverGetVersion(int *version) { *version = 12040; return 0; }
result cuDeviceGetCount(int *count) { *count = 11; return 0; }
result cuDeviceGet(int *device, int ordinal) { *device = 100 + ordinal; return 0; }
result cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)1 << 40 | device; return 0; }
result cuDeviceGetAttribute(int *value, unsigned attribute, int device) { *value = attribute * 1000 + device; return 0; }
result cuCtxGetDevice(int *device) { *device = 12; return 0; }
result cuCtxGetFlags(unsigned *flags) { *flags = 13; return 0; }
result cuCtxGetApiVersion(void *context, unsigned *version) { *version = 14; return 0; }
result cuStreamGetFlags(void *stream, unsigned *flags) { *flags = 15; return 0; }
result cuStreamGetPriority(void *stream, int *priority) { *priority = -16; return 0; }
result cuStreamGetId(void *stream, uint64_t *id) { *id = (uintptr_t)stream; return 0; }

result cuDeviceGetName(char *name, int len, int device)
{
	snprintf(name, len, "fake device %d", device);
	return 0;
}

/* The code to return is the handle. */
result cuStreamQuery(void *stream) { return (intptr_t)stream; }

/* Arguments of every kind. */

result cuIpcOpenMemHandle_v2(device_ptr *memory, mem_handle handle, unsigned flags)
{
	*memory = 0xfeedfacecafebeef;
	return say("%.64s %u", handle.reserved, flags);
}

result cuMemPrefetchAsync_v2(device_ptr memory, size_t count, location to, unsigned flags, void *stream)
{
	return say(X " %zu {%u %d} %u " X, P(memory), count, to.type, to.id, flags, P(stream));
}

result cuMemAdvise_v2(device_ptr memory, size_t count, unsigned advice, location to)
{
	return say(X " %zu %u {%u %d}", P(memory), count, advice, to.type, to.id);
}

result cuParamSetf(void *function, int offset, float value)
{
	return say(X " %d %g", P(function), offset, value);
}

result cuMemsetD2D8_v2(device_ptr memory, size_t pitch, unsigned char value, size_t width, size_t height)
{
	return say(X " %zu %u %zu %zu", P(memory), pitch, value, width, height);
}

result cuMemsetD16_v2(device_ptr memory, unsigned short value, size_t n)
{
	return say(X " %u %zu", P(memory), value, n);
}

result cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = (char *)module + strlen(name);
	return say(X " %s", P(module), name);
}

result cuTensorMapEncodeIm2col(uint64_t *map, unsigned type, unsigned rank, void *address, const uint64_t *dim,
	const uint64_t *strides, const int *lower, const int *upper, unsigned channels, unsigned pixels,
	const unsigned *element, unsigned interleave, unsigned swizzle, unsigned promotion, unsigned fill)
{
	map[15] = rank;
	return say("%u %u " X " {%" PRIu64 " %" PRIu64 "} {%" PRIu64 "} {%d} {%d} %u %u {%u %u} %u %u %u %u", type, rank, P(address), dim[0], dim[1],
		strides[0], lower[0], upper[0], channels, pixels, element[0], element[1], interleave, swizzle, promotion, fill);
}

/* A kernel of three parameters: an int, a double and a pointer to a short. */
result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, void *stream, void **params, void **extra)
{
	if (params == 0)
		return extra ? say("extra " X " %zu " X, P(extra[0]), *(size_t *)extra[1], P(extra[2])) : 0;
	return say(X " {%u %u %u} {%u %u %u} %u " X " (%d %g %d)", P(function), gx, gy, gz, bx, by, bz, shared, P(stream),
		*(int *)params[0], *(double *)params[1], **(short **)params[2]);
}

/* Callbacks. */

result cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, size_t (*bytes)(int), size_t fixed, int limit)
{
	*block = limit;
	*grid = (int)(bytes ? bytes(limit) : fixed);
	return say("thread %ld", THREAD);
}

struct host_work {
	void (*host)(void *);
	void (*callback)(void *, result, void *);
	void *stream, *user_data;
};

#ifdef _WIN32
static DWORD WINAPI work(void *p)
#else
static void *work(void *p)
#endif
{
	struct host_work w = *(struct host_work *)p;

	free(p);
	if (w.host)
		w.host(w.user_data);
	else
		w.callback(w.stream, 700, w.user_data);
	return 0;
}

static result start(struct host_work w)
{
	struct host_work *p = malloc(sizeof *p);

	*p = w;
#ifdef _WIN32
	HANDLE thread = CreateThread(0, 0, work, p, 0, 0);

	return thread && CloseHandle(thread) ? 0 : 999;
#else
	pthread_t thread;

	if (pthread_create(&thread, 0, work, p) != 0)
		return 999;
	return pthread_detach(thread) ? 999 : 0;
#endif
}

result cuLaunchHostFunc(void *stream, void (*host)(void *), void *user_data)
{
	return start((struct host_work){.host = host, .user_data = user_data});
}

result cuStreamAddCallback(void *stream, void (*callback)(void *, result, void *), void *user_data, unsigned flags)
{
	return start((struct host_work){.callback = callback, .stream = stream, .user_data = user_data});
}

result cuUserObjectCreate(void **object, void *user_data, void (*destroy)(void *), unsigned count, unsigned flags)
{
	destroy(user_data);
	*object = user_data;
	return 0;
}
