/* What headers need of stdio.h, for parsing alone. */
#pragma once
typedef struct _IO_FILE FILE;
