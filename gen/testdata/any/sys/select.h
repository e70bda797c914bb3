/* Types that headers of the system have, too: those that the calls of the package include. */
#ifdef __VERSION__
#include_next <sys/select.h>
#else
typedef struct { long __fds_bits[16]; } fd_set;
struct timeval { long tv_sec, tv_usec; };
#endif
