/* Handles. */
#define CUDA_VERSION 13050

typedef struct CUthing_st *CUthing;
typedef struct CUother_st *CUother_v1;
typedef CUother_v1 CUother;
typedef const struct CUthing_st *CUreader;

/* A record that no header defines, and a name for a pointer to it. */
typedef struct CUbox_st CUbox;
typedef CUbox *CUboxPtr;

#define CU_THING_DEFAULT ((CUthing)0x1)
#define CU_THING_INVALID ((CUthing)-1)

/** \defgroup CUDA_THING Things @{ */
int cuThingOpen(CUthing *thing, CUother other, const CUother *list, CUreader reader, CUother_v1 older);
int cuThingBoxes(CUboxPtr *boxes, const struct CUbox_st *box);
/** @} */
