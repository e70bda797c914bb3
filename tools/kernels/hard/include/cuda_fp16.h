// Names of CUDA's types, for kernels that only pass them on.
struct __half { unsigned short x; };
struct __half2 { __half x, y; };
