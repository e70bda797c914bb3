#include <stdlib.h>

#include "mylib.h"

struct mylibStack {
	size_t count, capacity;
	double values[];
};

mylibStatus mylibGetVersion(int *version)
{
	*version = 1020;
	return MYLIB_OK;
}

mylibStatus mylibCreate(mylibStack_t *stack, size_t capacity)
{
	if (capacity == 0)
		return MYLIB_BAD;
	*stack = malloc(sizeof(struct mylibStack) + capacity * sizeof(double));
	(*stack)->count = 0;
	(*stack)->capacity = capacity;
	return MYLIB_OK;
}

mylibStatus mylibPush(mylibStack_t stack, double value)
{
	if (stack->count == stack->capacity)
		return MYLIB_FULL;
	stack->values[stack->count++] = value;
	return MYLIB_OK;
}

mylibStatus mylibInfoOf(mylibStack_t stack, mylibInfo *info)
{
	info->full = stack->count == stack->capacity;
	info->shift = 5;
	info->below = -3;
	info->count = stack->count;
	return MYLIB_OK;
}

mylibStatus mylibEach(mylibStack_t stack, mylibVisit_t visit, void *user)
{
	for (size_t i = 0; i < stack->count; i++)
		visit(stack->values[i], user);
	return MYLIB_OK;
}

void mylibDestroy(mylibStack_t stack)
{
	free(stack);
}

mylibMark *mylibRaise(mylibMark *mark)
{
	mark->level++;
	mark->on = !mark->on;
	mark->of.weight *= 2;
	return mark;
}

float mylibHalf(float x)
{
	return x / 2;
}

mylibPoint mylibSwap(mylibPoint p)
{
	mylibPoint swapped = {p.y, p.x};

	return swapped;
}
