// Names of CUDA's types, for kernels that only pass them on.
struct __nv_fp8_e4m3 { unsigned char x; };
struct __nv_fp8_e5m2 { unsigned char x; };
