/* Unions. */
#define CUDA_VERSION 13050

typedef union CUvalue_un {
	int number;
	double real;
	char text[20];
	const void *pointer;
	struct {
		short x;
		struct {
			int deep;
		};
	} parts;
} CUvalue;

typedef union {
	short low;
	char high;
} CUsmall;

typedef struct CUholder_st {
	int kind;
	CUvalue value;
	union {
		int flags;
		struct {
			char first;
			int second;
		} both;
	};
	union {
		long word;
		CUsmall small[4];
	} either;
} CUholder;

/** \defgroup CUDA_THING Things @{ */
int cuThingHold(CUholder holder, CUvalue *value, CUsmall small);
/** @} */
