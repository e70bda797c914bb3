/* What headers need of stdarg.h, for parsing alone: Go cannot make a va_list, and a function that takes one stops the generator. */
#pragma once
typedef struct __va_list_tag {
	unsigned int offsets[2];
	void *areas[2];
} va_list[1];
