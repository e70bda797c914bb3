#include "sim.h"

enum { LAZY = 2 };

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	ENTER(0);
	if (!mode)
		return INVALID_VALUE;
	*mode = LAZY;
	return OK;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	if (r)
		return r;
	if (!state)
		return INVALID_VALUE;
	*state = f->loaded;
	return OK;
}

CUresult cuFuncLoad(CUfunction handle)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	if (!r)
		f->loaded = true;
	return r;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
	ENTER(0);
	struct function *f;
	CUresult r = function_get(handle, &f);

	if (r)
		return r;
	if (!name)
		return INVALID_VALUE;
	*name = f->name;
	return OK;
}

CUresult cuKernelGetName(const char **name, CUkernel handle)
{
	ENTER(0);
	struct function *f = handle_get(KERNEL, handle);

	if (!f)
		return INVALID_HANDLE;
	if (!name)
		return INVALID_VALUE;
	*name = f->name;
	return OK;
}
