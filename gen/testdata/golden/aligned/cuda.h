/* Records that want more alignment than Go gives. */
#define CUDA_VERSION 13050

typedef struct __attribute__((aligned(128))) CUmap_st {
	unsigned long long words[16];
} CUmap;

typedef struct CUholder_st {
	char kind;
	CUmap map;
} CUholder;

typedef struct __attribute__((aligned(8))) CUtwo_st {
	int x, y;
} CUtwo;

typedef union CUwide_un {
	_Alignas(16) char bytes[16];
	int number;
} CUwide;

/** \defgroup CUDA_THING Things @{ */
int cuThingMap(const CUmap *map, CUholder *holder, CUtwo two, CUwide *wide);
/** @} */
