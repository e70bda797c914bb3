/* Structs. */
#define CUDA_VERSION 13050

#include <stddef.h>

struct CUlater_st;

typedef struct CUsimple_st {
	char letter;
	double number;
	short half; /* four bytes follow */
} CUsimple;

typedef struct CUarray_st {
	unsigned char bytes[16];
	CUsimple simple[2];
	const char *names[3];
	int grid[2][3];
} CUarrays;

typedef struct CUnested_st {
	int first;
	struct {
		char x;
		long y;
	} inner;
	struct {
		short z;
	} list[3];
	union {
		int w;
		char bytes[8];
	} table[2][3];
	struct CUlater_st *later;
	struct CUnested_st *next;
	int _reserved;
} CUnested;

typedef struct {
	int tag;
	struct {
		char a_b;
		int b;
	}; /* reached through the record around it */
	struct CUlater_st { int x; } *missing_name;
} CUunnamed;

struct CUtagged {
	size_t size;
};

/** \defgroup CUDA_THING Things @{ */
int cuThingTake(CUnested nested, CUarrays arrays, CUunnamed *unnamed, struct CUtagged *tagged);
/** @} */
