#ifndef MYLIB_H
#define MYLIB_H

#include <stddef.h>

#define MYLIB_VERSION_TEXT "1.2"
#define MYLIB_SCALE 2.5f

typedef enum mylibStatus {
	MYLIB_OK = 0,
	MYLIB_BAD = -2,
	MYLIB_FULL = 1000
} mylibStatus;

typedef struct mylibStack *mylibStack_t;

typedef struct mylibPoint {
	double x, y;
} mylibPoint;

/* A count of elements and marks beside it. */
typedef struct mylibInfo {
	unsigned int full : 1;
	unsigned int shift : 3;
	int below : 4;
	size_t count;
} mylibInfo;

/* A bit field behind a smaller member, and members that packing moves. */
typedef struct mylibMark {
	char kind;
	int level : 3;
	_Bool on : 1;
	struct __attribute__((packed)) {
		char unit;
		double weight;
	} of;
} mylibMark;

typedef void (*mylibVisit_t)(double value, void *user);

mylibStatus mylibGetVersion(int *version);
mylibStatus mylibCreate(mylibStack_t *stack, size_t capacity);
mylibStatus mylibPush(mylibStack_t stack, double value);
mylibStatus mylibInfoOf(mylibStack_t stack, mylibInfo *info);
mylibStatus mylibEach(mylibStack_t stack, mylibVisit_t visit, void *user);
void mylibDestroy(mylibStack_t stack);
mylibMark *mylibRaise(mylibMark *mark);
float mylibHalf(float x);
mylibPoint mylibSwap(mylibPoint p);
int mylibInternal(void);

#endif
