//go:build cgo && linux && (amd64 || arm64)

#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "rt_internal.h"

/* rt_symbol returns the address of a function of a library that is loaded, or 0. */
uintptr_t rt_symbol(const char *file, const char *name)
{
	void *library = (void *)rt_library(file);
	uintptr_t address = library ? (uintptr_t)dlsym(library, name) : 0;

	if (library)
		dlclose(library);
	return address;
}

/*
 * call calls the function with all arguments that it may have: C's conventions of calls on amd64 and arm64 pass integers
 * and floating-point numbers apart, and allow arguments that the function does not have.
 */
static void call(struct rt_function *f)
{
	typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, double, double);
	const unsigned long long *a = f->args;
	double floats[2];

	memcpy(floats, f->floats, sizeof floats); /* a float is in the lower half */
	f->result = ((any)f->address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], floats[0], floats[1]);
}

CUresult rt_call_functions(unsigned char *calls, unsigned char *functions)
{
	struct rt_calls *c = (struct rt_calls *)calls;
	struct rt_function *f = (struct rt_function *)functions;
	struct rt_scope s;
	int failed = 0;
	CUresult r = rt_begin_home(&s, c->context, c->home, c->id, 1);

	if (r)
		return r;
	if (!(r = rt_check_capturing((CUstream)c->stream))) {
		for (unsigned i = 0; i < c->n; i++) {
			f[i].made = !failed || f[i].always; /* it may be used again */
			if (!f[i].made)
				continue;
			call(&f[i]);
			failed |= f[i].result;
		}
	}
	rt_end_other(&s);
	return r;
}
