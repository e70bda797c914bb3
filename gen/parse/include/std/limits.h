/* What CUDA's headers need of limits.h, for parsing alone. */
#pragma once
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295U
