/* The type of cuda_fp16.h that functions of CUDA's libraries take, for parsing alone. */
#pragma once
typedef unsigned short __half;
#ifndef CUDA_NO_HALF
typedef __half half;
#endif
