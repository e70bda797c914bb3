/* The functions again, each form with the version that introduced it. */
#include "cuda.h"

typedef CUresult (*PFN_cuThingInit_v2000)(unsigned int Flags);
typedef CUresult (*PFN_cuThingAlloc_v2000)(CUthing *thing, unsigned int bytes);
typedef CUresult (*PFN_cuThingAlloc_v3020)(CUthing *thing, size_t bytes);
typedef PFN_cuThingAlloc_v3020 PFN_cuThingAlloc;
