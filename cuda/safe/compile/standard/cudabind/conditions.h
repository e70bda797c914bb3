// Conditions of graphs, which the driver knows and NVRTC does not declare.
#pragma once
#if __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 3
typedef unsigned long long cudaGraphConditionalHandle;
#endif
extern "C" __device__ void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value);
