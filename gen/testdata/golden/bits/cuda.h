/* Bit fields, packing, and records that systems lay out in their own ways. */
#define CUDA_VERSION 13050

typedef enum CUmode_enum { CU_MODE_OFF, CU_MODE_ON } CUmode;

typedef struct CUbits_st {
	unsigned int first : 3;
	int second : 5; /**< with a sign */
	_Bool on : 1;
	CUmode mode : 2;
	unsigned long long count;
} CUbits;

typedef struct CUsame_st {
	unsigned int low : 20;
	unsigned int high : 20;
} CUsame;

typedef struct __attribute__((packed)) CUtight_st {
	char letter;
	int number;
	const char *name;
	CUsame same;
} CUtight;

#pragma pack(push, 4)
typedef union CUpacked_un {
	char bytes[12];
	long long wide;
	int number;
} CUpacked;
#pragma pack(pop)

typedef struct CUgap_st {
	char a;
	int : 4;
	char b;
	struct {
		int c : 3;
		_Bool d;
	};
} CUgap;

typedef struct CUhole_st {
	char a;
	int : 4;
	char b;
} CUhole;

/** \defgroup CUDA_THING Things @{ */
int cuThingBits(CUbits *bits, CUsame same);
int cuThingTight(CUtight *tight, CUpacked *packed, CUgap *gap, CUhole *hole);
/** @} */
