// What is hard to bind, in one file.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include "shared.h"
typedef unsigned long long u64;
typedef unsigned char uchar_t;

enum Color { Red, Green = 5, Blue };
enum class Mode : signed char { Fast = -1, Exact = 3 };
enum class Wide : u64 { Big = 0xFFFFFFFFFFFFFFFFull, Small = 1 };
enum Byte : unsigned char { Last = 200 };

struct Empty {};
struct Base { int id; double w; };
class Derived : public Base {
	float x; bool ok;
public:
	__device__ __host__ Derived() : x(0), ok(false) {}
	__device__ float get() const { return x + ok; }
};
struct Virtual { int a; __device__ virtual int f() { return a; } };
struct alignas(32) Aligned { float v[3]; char c; };
struct __align__(8) A8 { int i; };
#pragma pack(push, 1)
struct Packed { char c; int i; double d; };
#pragma pack(pop)
struct Bits { unsigned a : 3; unsigned b : 5; int c : 24; int tail; bool on : 1; };
union Union { int i; float f; double d; };
struct Anonymous { int k; union { int i; float f; }; struct { short a, b; } in[2]; };
struct Half { __half h; __half2 h2; __nv_bfloat16 b; float3 f3; double4 d4; longlong2 l2; uchar4 c4; };
struct Pointers { const float *in; float *out; Base *bases; void *any; float **pp; int n; };
struct Nested { Pointers p; Aligned a; Mode m[3]; bool flag; float mat[3][4]; Base base; };
struct Function { int (*f)(int); int n; };
struct Self { Self *next; int v; };
struct Multiple : Base, A8 { short s; };
struct EmptyBase : Empty { int q; };
struct HasEmpty { Empty e; int v; Empty f; };
struct WithStatic { static const int N = 4; int v[N]; };
template<class T, int N> struct Vec { T v[N]; __device__ T sum() const { T s = 0; for (int i = 0; i < N; i++) s += v[i]; return s; } };
template<class T> struct Box { T v; };
namespace geo {
struct Point { float x, y; };
namespace inner { struct Corner { double x, y, z; }; }
}
struct Words { int type; int func; int _range; int Map; };
struct Copied { int a; __device__ __host__ Copied(const Copied &o) : a(o.a) {} __device__ __host__ ~Copied() {} };
struct Undefined;

/* A block comment
   above block. */
extern "C" __global__ void block(const float *__restrict__ a, float *b, int n) { if (n) b[0] = a[0]; }

// Unused and unnamed parameters.
__global__ void unused(int a, float *, double) {}
__global__ void none() {}
static __global__ void local(int *p) { *p = 1; }
namespace { __global__ void unnamed(int *p) { *p = 2; } }
namespace geo { __global__ void move(Point *p, inner::Corner q, const inner::Corner *r) { p->x = q.x + r->y; } }
__global__ void over(int *p) { *p = 1; }
__global__ void over(float *p) { *p = 1; }

/// \brief Multiplies.
/// \param[in,out] x the values
template<typename T, int N>
__global__ void scaled(T *x, T s, Vec<T, N> v) { x[threadIdx.x * N] *= s + v.sum(); }
template __global__ void scaled<double, 4>(double *, double, Vec<double, 4>);
template __global__ void scaled<float, 2>(float *, float, Vec<float, 2>);
template<class T> __global__ void asked(T *x, Box<T> b) { *x = b.v; }
template<class... A> __device__ int count(A...) { return sizeof...(A); }
template<class... A> __global__ void many(int *o, A... a) { *o = count(a...); }
template __global__ void many<int, float>(int *, int, float);

__global__ void __launch_bounds__(256, 2) bounds(int *p) { *p = threadIdx.x; }
__global__ void __cluster_dims__(2, 1, 1) clusters(int *o) { *o = 1; }
__global__ void grid_constant(const __grid_constant__ Nested n, float *o) { *o = n.mat[1][2] + n.p.in[0]; }
__global__ void values(Base b, Derived d, Aligned a, A8 a8, Packed pk, Bits bi, Union u, Anonymous an, float *o) { *o = b.w + d.get() + a.v[1] + a8.i + pk.d + bi.b + u.f + an.i; }
__global__ void values2(Half h, Pointers p, Nested n, Multiple m, EmptyBase e, WithStatic w, Self s, float *o) { *o = h.f3.x + p.n + n.flag + m.s + e.q + w.v[2] + s.v; }
__global__ void empty(Empty e, HasEmpty h, int n, int *o) { *o = n + h.v; }
__global__ void function(int (*f)(int), Function fn, int *o) { *o = fn.n; }
__global__ void references(int *o, const int &r) { *o = r; }
__global__ void enums(Color c, Mode m, Wide w, Byte y, bool b, int *o) { *o = c + (int)m + (int)w + y + b; }
__global__ void integers(char a, signed char b, unsigned char c, short d, unsigned short e, int f, unsigned g, long long j, u64 k, size_t l, float n, double o, uchar_t q, u64 *out) { *out = a + b + c + d + e + f + g + j + k + l + n + o + q; }
__global__ void wide(__int128 a, unsigned __int128 b, int *o) { *o = (int)a; }
__global__ void vectors(float2 a, float3 b, float4 c, double2 d, double4 e, int3 f, uchar4 g, dim3 h, uint2 i, const uchar3 *p, float *o) { *o = a.x + b.x + c.x + d.x + e.x + f.x + g.x + h.x + i.x + p->x; }
__global__ void halves(__half a, __half2 b, __nv_bfloat16 c, __nv_fp8_e4m3 e, const __nv_fp8_e5m2 *f, const __half *p, unsigned short *o) { *o = a.x + b.y.x + c.x + e.x + f->x + p->x; }
__global__ void textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float *o, u64 plain) { *o = tex2D<float>(t, 1, 1); surf2Dwrite(1.f, s, 4, 4); }
__global__ void pointers(float **pp, void *v, const void *cv, const float *const *cc, volatile int *vi, Base *b, float (*arr)[4], Self *self) { *pp = (float *)v; vi[0] = 1; b->id = 2; arr[1][2] = 3; }
__global__ void array(float a[16], float *o) { *o = a[1]; }
__global__ void opaque(Undefined *u, Virtual *v, int *o) { *o = u != 0; }
__global__ void words(int type, int func, int range, int stream, int k, int _, int err, float *map, Words t) { *map = type + func + range + stream + k + t.type; }
__global__ void copied(Copied n, int *o) { *o = n.a; }
__global__ void pairs(const Pair *p, Pair one, int *o) { *o = p->first + one.first; }
auto __global__ trailing(int *o) -> void { *o = 1; }

// coefficients of the filter.
__constant__ float coefficients[16];
__constant__ Base base;
__device__ int counter;
__device__ Nested *where;
extern "C" { __device__ double matrix[2][3]; }
__managed__ int managed;
namespace geo { __constant__ Point origin; }
static __device__ int hidden;
__device__ Undefined *nothing;
__global__ void variables(int *o) {
	__shared__ float sh[32];
	extern __shared__ char dyn[];
	*o = coefficients[1] + base.id + counter + (where != 0) + matrix[1][1] + managed + geo::origin.x + hidden;
	sh[threadIdx.x] = dyn[0];
	o[1] = sh[0];
}
