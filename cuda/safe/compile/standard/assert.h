// C's assert, for kernels: a false one ends the kernel with CUDA_ERROR_ASSERT.
#undef assert
#ifdef NDEBUG
#define assert(e) ((void)0)
#else
extern "C" __device__ void __assertfail(const char *message, const char *file, unsigned line, const char *function, size_t size);
#define assert(e) ((e) ? (void)0 : __assertfail(#e, __FILE__, __LINE__, __func__, sizeof(char)))
#endif
