// Names of CUDA's types, for kernels that only pass them on.
struct __nv_bfloat16 { unsigned short x; };
