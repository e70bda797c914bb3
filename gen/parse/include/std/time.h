/* What headers need of time.h, for parsing alone: the LP64 model. */
#pragma once
#include <stddef.h>
typedef long time_t;
typedef long clock_t;
struct timespec;
struct tm;
