/* What headers need of sys/types.h, for parsing alone. */
#pragma once
typedef long ssize_t;
typedef long off_t;
typedef long loff_t;
