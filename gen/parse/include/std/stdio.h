/* What headers need of stdio.h, for parsing alone. */
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>
typedef struct _IO_FILE FILE;
#define EOF (-1)
