//go:build cgo && linux && (amd64 || arm64)

#include "rt_internal.h"

/* rt_enqueue_launch calls cuLaunchKernel or cuLaunchKernelEx. Each argument is its size in words, and its value. */
CUresult rt_enqueue_launch(unsigned long long *w, CUstream stream)
{
	unsigned *dims = (unsigned *)(w + 1), nargs = dims[7], count = dims[8];
	CUfunction f = (CUfunction)w[0];
	void *params[nargs ? nargs : 1];
	unsigned long long *attributes = w + 6, *arg = attributes + RT_ATTRIBUTE_WORDS * count;

	for (unsigned i = 0; i < nargs; i++, arg += 1 + *arg)
		params[i] = arg + 1;
	if (count) {
		struct rt_config c = {{dims[0], dims[1], dims[2]}, {dims[3], dims[4], dims[5]}, dims[6], stream, attributes, count};

		return rt_cu.cuLaunchKernelEx((const CUlaunchConfig *)&c, f, params, 0);
	}
	return rt_cu.cuLaunchKernel(f, dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], dims[6], stream, params, 0);
}

static CUresult one(unsigned long long head, unsigned long long *w, CUstream stream)
{
	switch ((unsigned)head) {
	case RT_LAUNCH:
		return rt_enqueue_launch(w, stream);
	case RT_CALL: { /* the function and, in the upper half, which argument is the stream; the arguments */
		unsigned long long args[6] = {0};

		for (unsigned i = 0; i < 6 && i + 2 < head >> 32; i++)
			args[i] = w[1 + i];
		args[w[0] >> 32] = (uintptr_t)stream;
		return rt_function((unsigned)w[0], args);
	}
	default: /* RT_NOTHING */
		return 0;
	}
}

/*
 * rt_batch makes the first n calls of a list on a stream, up to the first error. It returns the
 * code, and in the upper half how many calls have succeeded. With outside, it makes none if the
 * stream is capturing.
 */
unsigned long long rt_batch(uintptr_t context, uintptr_t stream, unsigned char *list, unsigned n, unsigned outside)
{
	unsigned long long *w = (unsigned long long *)list, done = 0;
	CUstream s = (CUstream)stream;
	struct rt_scope scope;
	CUresult r = rt_begin(&scope, context, 1);

	if (r)
		return r;
	if (!(r = outside ? rt_check_capturing(s) : rt_legacy(s)))
		for (; done < n && !(r = one(w[0], w + 1, s)); done++)
			w += w[0] >> 32;
	rt_end(&scope);
	return done << 32 | r;
}
