#include "any.h"

const int anyCount = 7;
const char anyName[] = "any";

size_t anyLength(const struct anyNode_st *node)
{
	size_t n = 0;
	for (; node; node = node->next)
		n += 1 + 10 * (node->colour == ANY_BLUE);
	return n;
}

enum anyWide anyTwice(enum anyWide w) { return 2 * w; }

anyByte anyPackedOf(enum anyShort s, anyByte b, struct anyPacked p, int last)
{
	return s == ANY_SHORT && b == ANY_BYTE && p.a == ANY_BYTES && p.b == ANY_SHORT && p.c == ANY_IN && p.bits == ANY_BYTE && p.d == 5 && last == 6
		? ANY_BYTE : 0;
}

int anySum(const struct anyText *t)
{
	int sum = 0;
	for (int i = 0; i < t->n; i++)
		sum += t->text[i];
	return sum;
}

int anyRowSum(const anyRow *row) { return (*row)[0].a + (*row)[1].a; }

static int next(int x) { return x + 1; }
static int before(int x) { return x - 1; }
int (*anyPick(int n))(int) { return n > 0 ? next : before; }
int anyApply(int (*f)(int), int x) { return f(x); }
void anyFill(struct anyTable *t)
{
	t->entry[0] = next;
	t->entry[1] = t->last = before;
}

long anyRel(const Elf64_Rel *r) { return r->a; }
long anyRelOf(Elf64_Rel r) { return r.a; }

long anySeconds(struct timeval t) { return t.tv_sec; }

int anyTable_last(int x) { return x + 2; }
int anyNest_part(const struct anyNest *n) { return n->part.in.a + 1; }
const int anyNest_run = 4;

void anySquare(long double *x) { *x *= *x; }

int anyOddGet(const struct anyOdd *o) { return *o->p; }
struct anyOdd *anyOddOf(int n)
{
	static int place;
	static struct anyOdd o = {'o', &place};
	place = n;
	return &o;
}
int anyPairGet(struct anyPair *p) { return p == 0; }

int anyYear(const struct tm *t) { return t == 0; }
int anySelect(fd_set *set) { return set == 0; }
int anyMacro(int x) { return 3 * x; }
int anyMarked(int x) { return 4 * x; }
AnyThing anyThing(AnyThing x) { return 5 * x; }
int anyHide(anyHidden *h, int x) { return h ? 0 : 6 * x; }
int anyUse(anyPrinter p) { return p == 0; }
