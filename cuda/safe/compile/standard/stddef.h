// Definitions of C, for kernels. NVRTC has size_t and ptrdiff_t by itself.
#pragma once
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) ((size_t)&(((type *)0)->member))
#endif
