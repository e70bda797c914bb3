// What NVRTC 12.9 can tell of, and 12.4 cannot.

// Big makes for more than 4 KiB of parameters.
struct Big { float v[1200]; };
__global__ void large(Big b, int *o) { *o = b.v[5]; }

#define KERNEL(name, T) extern "C" __global__ void name(T *x) { *x = 1; }
// Made by a macro.
KERNEL(macro_f, float)
KERNEL(macro_i, int)

struct TwoHalves { union { struct { int lo, hi; }; long long all; }; };
__global__ void halved(TwoHalves t, int *o) { *o = (int)t.all; }
