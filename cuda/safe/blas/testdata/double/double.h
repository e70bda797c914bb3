// What the doubles of cuBLAS and cuBLASLt share: numbers of every type, work on the
// simulated driver's streams, and a log of calls. It is a test double: what passes on it
// shows which arguments cuBLAS gets, and nothing about cuBLAS.

#pragma once
#include <complex.h>
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef double complex number;

enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, C_32F = 4, C_64F = 5, R_32I = 10, R_16BF = 14, E4M3 = 28, E5M2 = 29 };

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, INTERNAL_ERROR = 14, NOT_SUPPORTED = 15 };

static inline size_t size_of(unsigned type)
{
	switch (type) {
	case C_64F: return 16;
	case R_64F: case C_32F: return 8;
	case R_32F: case R_32I: return 4;
	case R_16F: case R_16BF: return 2;
	}
	return 1;
}

// small is the number of a format with mantissa bits and a bias.
static inline double small(unsigned bits, int exponents, int mantissa, int bias)
{
	unsigned e = bits >> mantissa & ((1u << exponents) - 1), m = bits & ((1u << mantissa) - 1);
	double v = e ? ldexp((1 << mantissa) + m, (int)e - bias - mantissa) : ldexp(m, 1 - bias - mantissa);
	return bits >> (exponents + mantissa) & 1 ? -v : v;
}

// bfloat is the number of R_16BF, which is the upper half of a float.
static inline double bfloat(unsigned bits)
{
	union { uint32_t bits; float number; } f = {bits << 16};
	return f.number;
}

static inline double decode(unsigned type, unsigned bits)
{
	switch (type) {
	case R_16F: return small(bits, 5, 10, 15);
	case R_16BF: return bfloat(bits);
	case E4M3: return small(bits, 4, 3, 7);
	}
	return small(bits, 5, 2, 15);
}

// encode finds the nearest number, the even one of two. Results stay within the range.
static inline unsigned encode(unsigned type, double v)
{
	unsigned top = type == R_16F ? 0x7bff : type == R_16BF ? 0x7f7f : type == E4M3 ? 0x7e : 0x7b;
	unsigned low = 0, high = top;
	while (low < high) { // the largest that is not above |v|
		unsigned mid = (low + high + 1) / 2;
		if (decode(type, mid) <= fabs(v))
			low = mid;
		else
			high = mid - 1;
	}
	if (low < top) {
		double below = fabs(v) - decode(type, low), above = decode(type, low + 1) - fabs(v);
		if (above < below || (above == below && low & 1))
			low++;
	}
	return low | (signbit(v) ? (size_of(type) == 2 ? 0x8000 : 0x80) : 0);
}

static inline number load(unsigned type, const void *p, int64_t i)
{
	switch (type) {
	case R_32F: return ((const float *)p)[i];
	case R_64F: return ((const double *)p)[i];
	case C_32F: return ((const float complex *)p)[i];
	case C_64F: return ((const double complex *)p)[i];
	case R_32I: return ((const int32_t *)p)[i];
	case R_8I: return ((const int8_t *)p)[i];
	case R_16F: case R_16BF: return decode(type, ((const uint16_t *)p)[i]);
	}
	return decode(type, ((const uint8_t *)p)[i]);
}

// scalar loads alpha or beta, where the library loads a complex128 by instructions that fault unless it is aligned.
static inline number scalar(unsigned type, const void *p)
{
	if (type == C_64F && (uintptr_t)p % 16)
		__builtin_trap();
	return load(type, p, 0);
}

static inline void store(unsigned type, void *p, int64_t i, number v)
{
	switch (type) {
	case R_32F: ((float *)p)[i] = creal(v); return;
	case R_64F: ((double *)p)[i] = creal(v); return;
	case C_32F: ((float complex *)p)[i] = v; return;
	case C_64F: ((double complex *)p)[i] = v; return;
	case R_32I: ((int32_t *)p)[i] = (int32_t)creal(v); return;
	case R_8I: ((int8_t *)p)[i] = (int8_t)fmax(-128, fmin(127, rint(creal(v)))); return;
	case R_16F: case R_16BF: ((uint16_t *)p)[i] = encode(type, creal(v)); return;
	}
	((uint8_t *)p)[i] = encode(type, creal(v));
}

// element is op(A)(i, j) of a matrix that is stored by column.
static inline number element(unsigned type, const void *a, int64_t ld, unsigned op, int64_t i, int64_t j)
{
	number v = load(type, a, op ? j + i * ld : i + j * ld);
	return op == 2 ? conj(v) : v;
}

// matrix loads op(A), which has m rows and n columns: its rows, or if columns is not 0 its columns, one after another.
static inline number *matrix(unsigned type, const void *a, int64_t ld, unsigned op, int64_t m, int64_t n, int columns)
{
	number *all = malloc(m * n * sizeof *all + 1);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++)
			all[columns ? i + j * m : i * n + j] = element(type, a, ld, op, i, j);
	return all;
}

// dot is the sum of the products of n numbers. The parts of real numbers that are 0 are left out, as that is much faster.
static inline number dot(int real, const number *x, const number *y, int64_t n)
{
	double part = 0;
	number sum = 0;
	for (int64_t i = 0; i < n && real; i++)
		part += creal(x[i]) * creal(y[i]);
	for (int64_t i = 0; i < n && !real; i++)
		sum += x[i] * y[i];
	return real ? part : sum;
}

static inline int is_real(unsigned type) { return type != C_32F && type != C_64F; }

// The driver's functions, of the library that is loaded already.
static inline void *driver_function(const char *name)
{
	void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
	return driver ? dlsym(driver, name) : NULL;
}

// enqueue makes run(job) work of a stream. A job that is part of a graph is never freed.
static inline unsigned enqueue(void *stream, void (*run)(void *), const void *job, size_t size)
{
	unsigned (*launch)(void *, void (*)(void *), void *) = driver_function("cuLaunchHostFunc");
	void *copy = malloc(size);
	if (!launch || !copy)
		return INTERNAL_ERROR;
	memcpy(copy, job, size);
	return launch(stream, run, copy) ? EXECUTION_FAILED : SUCCESS;
}

// has_context tells whether a context is current.
static inline int has_context(void)
{
	unsigned (*get)(void **) = driver_function("cuCtxGetCurrent");
	void *current = NULL;
	return get && !get(&current) && current;
}

// note appends a line to the log.
static inline void note(const char *op, const void *handle, const void *stream, const void *workspace, size_t size)
{
	char line[200];
	int n = snprintf(line, sizeof line, "%s %p %p %p %zu\n", op, handle, stream, workspace, size);
	FILE *f = fopen(LOG, "a");
	if (!f)
		return;
	fwrite(line, 1, n, f);
	fclose(f);
}
