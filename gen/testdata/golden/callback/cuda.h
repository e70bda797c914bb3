/* Types of callbacks. They are real ones: each needs a quirk row. */
#define CUDA_VERSION 13050

#include <stddef.h>

typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;
typedef struct CUuserObject_st *CUuserObject;

typedef void (*CUhostFn)(void *userData);
typedef size_t (*CUoccupancyB2DSize)(int blockSize);

/** \defgroup CUDA_THING Things @{ */
CUresult cuThingNotify(CUhostFn fn, void *userData);
CUresult cuThingSizes(int *size, CUoccupancyB2DSize sizes);
CUresult cuThingOptions(unsigned int numOptions, int *options, void **optionValues);
/** @} */

/** \defgroup CUDA_USER Another chapter: a quirk is about this function @{ */
CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount);
/** @} */
