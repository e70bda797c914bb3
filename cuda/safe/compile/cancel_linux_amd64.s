#include "textflag.h"

GLOBL ·stopped(SB), NOPTR|RODATA, $8
DATA ·stopped(SB)/8, $stop<>(SB)

// int stop(int32_t *flag, void *reserved), of C's calling convention.
TEXT stop<>(SB), NOSPLIT|NOFRAME, $0
	XORL  AX, AX
	CMPL  0(DI), $0
	SETNE AX
	RET
