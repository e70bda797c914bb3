/* Second names of types. */
#define CUDA_VERSION 13050

typedef struct CUbox_v1_st {
	int width;
} CUbox_v1;
typedef CUbox_v1 CUbox;

typedef struct CUlid_st {
	int width;
} CUlid;
typedef CUlid CUcover;
typedef CUcover CUroof;

typedef unsigned int CUsize_v2;
typedef CUsize_v2 CUsize;

typedef struct CUfirst CUfirst;
struct CUfirst {
	CUfirst *next;
};
typedef struct CUsecond_st CUsecond;
struct CUsecond_st {
	CUsecond *next;
};

typedef enum CUmode_enum { CU_MODE_A } CUmode;
#define CUstate CUmode
#define CU_MODE_FIRST CU_MODE_A

/** \defgroup CUDA_THING Things @{ */
int cuThingBox(CUbox box, CUbox_v1 *older, CUroof *roof, CUsize size, CUsize_v2 *sizes, CUfirst *first, struct CUsecond_st *second, CUstate state);
/** @} */
