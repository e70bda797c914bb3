/* What headers need of errno.h, for parsing alone: the numbers depend on the system, and are left out. */
#pragma once
