/* The type of cuda_bf16.h that functions of CUDA's libraries take, for parsing alone. */
#pragma once
typedef unsigned short __nv_bfloat16;
