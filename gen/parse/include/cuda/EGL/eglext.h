/* The handles of EGL that CUDA's functions take, for parsing alone. */
#pragma once
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
