/* A header of our own in the manner of many libraries: what Go can have of it is bound, the rest is left out. */
#ifndef ANY_H
#define ANY_H
#include <stdarg.h>
#include <stddef.h>
#include <sys/select.h>
#include <time.h>

#define ANY_EXPORT(type, name, args) extern type name args

/* Used in front of their definitions. */
typedef struct anyNode_st *anyNode;
size_t anyLength(const struct anyNode_st *node);
struct anyNode_st {
	anyNode next;
	enum { ANY_RED, ANY_BLUE } colour;
};

/* An enum of eight bytes. */
enum anyWide { ANY_NARROW = 1, ANY_WIDE = 0x123456789a };
enum anyWide anyTwice(enum anyWide w);

/* Packed enums, of the size that their values need. */
typedef enum { ANY_BYTE = -1, ANY_BYTES = 127 } __attribute__((packed)) anyByte;
enum __attribute__((packed)) anyShort { ANY_SHORT = 256 };
struct anyPacked {
	anyByte a;
	enum anyShort b;
	enum { ANY_IN = 1 } __attribute__((packed)) c;
	anyByte bits : 3;
	int d;
};
anyByte anyPackedOf(enum anyShort s, anyByte b, struct anyPacked p, int last);

/* An array without a length. */
struct anyText {
	int n;
	char text[];
};
int anySum(const struct anyText *t);

/* A name for an array of records. */
struct anyCell { int a; };
typedef struct anyCell anyRow[2];
int anyRowSum(const anyRow *row);

/* Pointers to functions without a typedef. */
int (*anyPick(int n))(int);
int anyApply(int (*)(int), int x);
struct anyTable {
	int (*entry[2])(int);
	int (*last)(int);
};
void anyFill(struct anyTable *t);

/* Called like types that C has no names for, but Go has. */
struct anyNest {
	struct { struct { int a; } in; } part;
	int (*run)(int x);
};
int anyTable_last(int x);
int anyNest_part(const struct anyNest *n);
extern const int anyNest_run;
#define anyApply_p0 7

/* A type of the library's own, whose name headers of the system have, too: those that the calls of the package include. */
typedef struct { long a; } Elf64_Rel;
long anyRel(const Elf64_Rel *r);
long anyRelOf(Elf64_Rel r);

/* Data. */
extern const int anyCount;
extern const char anyName[];
static const double anyRatio = 0.25;
static const struct anyTable anyNoTable = {{0, 0}, 0};

/* Numbers that Go lacks: by pointer alone. */
void anySquare(long double *x);
long double anyRoot(long double x);

/* A record whose layout the generator does not know, and what holds it. */
struct anyOdd {
	char c;
	int *__attribute__((aligned(32))) p;
};
struct anyPair {
	struct anyOdd a, b;
};
struct anyOdd *anyOddOf(int n);
int anyOddGet(const struct anyOdd *o);
int anyOddTake(struct anyOdd o);
int anyPairGet(struct anyPair *p);

/* Variable arguments. */
int anyPrint(const char *format, ...);
int anyPrintList(const char *format, va_list list);
typedef int (*anyPrinter)(const char *format, ...);
int anyUse(anyPrinter p);

/* Records of the system. */
int anyYear(const struct tm *t);
int anyDay(struct tm t);
int anySelect(fd_set *set);
long anySeconds(struct timeval t);

/* Declared by a macro, and with attributes. */
ANY_EXPORT(int, anyMacro, (int x));
[[nodiscard]] __attribute__((visibility("default"), const)) int anyMarked(int x);

/* One name in Go, and what a quirk leaves out. */
typedef int AnyThing;
AnyThing anyThing(AnyThing x);
int anySkipped(int x);
typedef struct anyHidden_st { int a; } anyHidden;
int anyHide(anyHidden *h, int x);
#endif
