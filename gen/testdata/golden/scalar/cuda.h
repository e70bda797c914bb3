/* Numbers with names. */
#define CUDA_VERSION 13050

#include <stdint.h>

typedef uint32_t cuuint32_t;
typedef int CUdev;
typedef unsigned long long CUptr;
typedef cuuint32_t CUmask;
typedef float CUratio;
typedef unsigned char CUsmall;

/** \defgroup CUDA_THING Things @{ */
int cuThingCount(CUdev dev, CUptr *ptr, CUmask mask, CUratio ratio, cuuint32_t plain, const CUsmall *bytes);
int cuThingHalf(const _Float16 *x);
/** @} */
