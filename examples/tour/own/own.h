#pragma once
#include <stddef.h>

/*
 * A library in C that puts work on a stream it is given, as CUDA's own do. A
 * cudaStream_t is the same pointer.
 */
typedef struct CUstream_st *own_stream;

/* own_clear clears memory of the device, in the current context. It returns a CUresult. */
int own_clear(own_stream stream, unsigned long long memory, size_t bytes);
