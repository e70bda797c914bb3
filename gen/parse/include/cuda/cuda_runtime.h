/* What headers of CUDA's libraries need of cuda_runtime.h, for parsing alone. */
#pragma once
#include <cuda_runtime_api.h>
#ifndef __CUDA_EGL_INTEROP_H__ /* a header of the runtime itself, which needs no types of libraries */
#include <library_types.h>
#endif
