/* Functions in the forms that CUDA's headers give them. */
#define CUDA_VERSION 13050

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define __CUDA_API_PTSZ(api) api##_ptsz
#else
#define __CUDA_API_PTSZ(api) api
#endif
#define __CUDA_DEPRECATED __attribute__((deprecated))

#define cuThingAlloc cuThingAlloc_v2
#define cuThingCopy __CUDA_API_PTSZ(cuThingCopy_v3)

typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2
} CUresult;
typedef struct CUthing_st *CUthing;
typedef struct CUpair_st {
	double weight;
	int index[2][3];
} CUpair;

/**
 * \defgroup CUDA_THING Things
 * @{
 */

/**
 * \return
 * ::CUDA_SUCCESS,
 * ::CUDA_ERROR_INVALID_VALUE
 * \sa ::cuThingFree, ::cuNowhere
 */
CUresult cuThingInit(unsigned int Flags);

__CUDA_DEPRECATED CUresult cuThingFree(CUthing thing);

/**
 * \return ::CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult cuThingAlloc(CUthing *thing, size_t bytes);

CUresult cuThingCopy(CUthing to, const void *from, size_t bytes, CUthing stream);

/* A record by value, floats, names that are Go's, names left out. */
CUresult cuThingSet(CUpair pair, float range, double type, const int *const *byte, int (*grid)[4], char[8], signed char);

CUresult cuThingMany(char a, unsigned char b, short c, unsigned short d, int e, unsigned f, long g, unsigned long h,
	long long i, unsigned long long j, float k, double l, uint8_t m, uint64_t n, void **o);

/** @} */

#ifdef __CUDA_API_VERSION_INTERNAL
#undef cuThingAlloc
#undef cuThingCopy
CUresult cuThingAlloc(CUthing *thing, unsigned int bytes);
CUresult cuThingCopy(CUthing to, const void *from, unsigned int bytes);
CUresult cuThingCopy_v2(CUthing to, const void *from, unsigned int bytes, CUthing stream);
CUresult cuThingCopy_v3_ptsz(CUthing to, const void *from, size_t bytes, CUthing stream);
#endif
