/* What headers need of arpa/inet.h, for parsing alone. */
#pragma once
#include <sys/socket.h>
