/* Macros that are constants, and some that are not ours to bind. */
#define CUDA_VERSION 13050

#include <stddef.h>

typedef int CUdev_v1;
typedef CUdev_v1 CUdev;
typedef unsigned long long CUptr;
typedef enum CUmode_enum { CU_MODE_A = 3 } CUmode;

#define CU_PLAIN 17
#define CU_HEX 0x80000000
#define CU_UNSIGNED 0xffffffffu
#define CU_NEGATIVE (-CU_PLAIN)
#define CU_WIDE 0xffffffffffffffffull
#define CU_LETTER 'A'
#define CU_SHIFTED (1 << 4 | 1)
#define CU_SIZE sizeof(CUptr)

#define CU_CAST ((CUdev)-2)
#define CU_CAST_UNSIGNED ((CUptr)-1)
#define CU_CAST_BYTE ((unsigned char)-1)
#define CU_CAST_SIZE ((size_t)-1)
#define CU_CAST_ENUM ((CUmode)-1)
#define CU_CAST_POINTER ((void *)-1)
#define CU_CAST_POINTER_SMALL ((void *)0x02)

#define CU_OF_ENUM CU_MODE_A
#define CU_OF_MACRO CU_CAST

#define CU_EMPTY
#define CU_LIKE_A_FUNCTION(x) (x + 1)
#define _CU_PRIVATE 1
