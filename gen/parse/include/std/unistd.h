/* What headers need of unistd.h, for parsing alone. */
#pragma once
#include <stddef.h>
#include <sys/types.h>
