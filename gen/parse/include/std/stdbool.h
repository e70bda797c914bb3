/* What headers need of stdbool.h, for parsing alone. */
#pragma once
#define bool _Bool
#define true 1
#define false 0
