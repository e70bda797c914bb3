/* What headers need of stdlib.h, for parsing alone. */
#pragma once
#include <stddef.h>
