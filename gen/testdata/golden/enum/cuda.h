/* Enumerations. */
#define CUDA_VERSION 13050

typedef enum CUplain_enum {
	CU_PLAIN_NONE,
	CU_PLAIN_ONE = 1,
	CU_PLAIN_TWO = 2,
	CU_PLAIN_LAST = CU_PLAIN_TWO, /* a second name */
	CU_PLAIN_ALL = 0xffffffff
} CUplain;

typedef enum CUsigned_enum {
	CU_SIGNED_LOW = -2,
	CU_SIGNED_HIGH = 0x7fffffff
} CUsigned;

enum CUtagged {
	CU_TAGGED = 1 << 4
};

enum CUsmall : signed char {
	CU_SMALL = -1
};

typedef enum CUbig_enum {
	CU_BIG = 0x100000000
} CUbig;

enum {
	CU_UNNAMED = 7,
	CU_UNNAMED_LOW = -7
};

/** \defgroup CUDA_THING Things @{ */
int cuThingPick(CUplain plain, CUsigned *low, enum CUtagged tagged);
int cuThingSize(enum CUsmall small, CUbig big);
/** @} */
