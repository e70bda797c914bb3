/* What headers need of sys/socket.h, for parsing alone. */
#pragma once
#include <sys/types.h>
struct sockaddr;
