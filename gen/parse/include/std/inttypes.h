/* What headers need of inttypes.h, for parsing alone. */
#pragma once
#include <stdint.h>
