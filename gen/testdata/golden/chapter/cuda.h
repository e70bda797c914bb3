/* Chapters: each becomes a file. */
#define CUDA_VERSION 13050

#define __CUDA_DEPRECATED __attribute__((deprecated))
#define cuThingMake cuThingMake_v2

/**
 * \defgroup CUDA_DRIVER All of it
 * @{
 */

/**
 * \defgroup CUDA_TWO_WORDS Things
 * @{
 */
int cuThingMake(long size);
/** @} */ /* END CUDA_TWO_WORDS */

/** \defgroup CUDA_BOX Boxes
 * @{ */
int cuBoxMake(void);

/** \defgroup CUDA_BOX_DEPRECATED Old boxes @{ */
__CUDA_DEPRECATED int cuBoxFold(void);
/** @} */

int cuBoxOpen(void);
/** @} */

int cuThingLast(void);
/** @} */

int cuGetExportTable(void); /* a quirk row says where it belongs */

#ifdef __CUDA_API_VERSION_INTERNAL
#undef cuThingMake
int cuThingMake(int size);
#endif
