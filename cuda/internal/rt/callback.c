//go:build cgo && linux && (amd64 || arm64)

#include "rt_internal.h"

/* Exported by rt_cgo.go. */
void cudabindHostFunc(uintptr_t token);
void cudabindStatus(uintptr_t token, unsigned code);

__thread unsigned rt_called_back;

/* The thread may be marked already: by foreign code that runs on it, or a callback. It stays so afterwards. */
static void host_func(void *token)
{
	unsigned before = rt_called_back;

	rt_called_back = 1;
	cudabindHostFunc((uintptr_t)token);
	rt_called_back = before;
}

static void status_func(CUstream stream, CUresult code, void *token)
{
	unsigned before = rt_called_back;

	(void)stream;
	rt_called_back = 1;
	cudabindStatus((uintptr_t)token, code);
	rt_called_back = before;
}

/* rt_in_callback returns whether the driver is calling this thread, or foreign code runs on it. */
unsigned rt_in_callback(void)
{
	return rt_called_back;
}

/* rt_host_function returns the function for host nodes. */
uintptr_t rt_host_function(void)
{
	return (uintptr_t)host_func;
}

/* rt_status_function returns the function for stream callbacks. */
uintptr_t rt_status_function(void)
{
	return (uintptr_t)status_func;
}
