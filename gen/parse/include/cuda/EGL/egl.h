/* The type of egl.h that CUDA's functions take, for parsing alone. */
#pragma once
#include <stdint.h>
typedef int32_t EGLint;
