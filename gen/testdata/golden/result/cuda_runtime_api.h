/* What functions can return. */
#include <stddef.h>
#include "crt/host_defines.h"

enum __device_builtin__ cudaError {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1
};
typedef __device_builtin__ enum cudaError cudaError_t;
struct __device_builtin__ cudaThingDesc {
	int x;
	char name[4];
};

/**
 * \defgroup CUDART_THING Things
 * @{
 */

extern __host__ cudaError_t CUDARTAPI cudaThingStatus(void);
extern __host__ const char *CUDARTAPI cudaThingName(cudaError_t error);
extern __host__ struct cudaThingDesc CUDARTAPI cudaThingDescribe(struct cudaThingDesc *const *list);
extern __host__ size_t CUDARTAPI cudaThingSize(enum cudaError error);
extern __host__ void CUDARTAPI cudaThingReset(void);
extern __host__ void *CUDARTAPI cudaThingAddress(int x);

/** @} */
