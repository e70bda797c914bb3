/* What headers need of wchar.h, for parsing alone. */
#pragma once
#include <stddef.h>
#include <stdio.h>
typedef unsigned int wint_t;
