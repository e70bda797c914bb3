/* What headers need of sys/types.h, for parsing alone: as on Linux. */
#pragma once
#include <stddef.h>
typedef long ssize_t;
typedef long off_t;
typedef long loff_t;
typedef long time_t;
typedef long clock_t;
typedef int clockid_t;
typedef int pid_t;
typedef unsigned int id_t;
typedef unsigned int uid_t;
typedef unsigned int gid_t;
typedef unsigned int mode_t;
typedef unsigned long dev_t;
typedef unsigned long ino_t;
