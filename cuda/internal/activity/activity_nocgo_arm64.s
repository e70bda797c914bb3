//go:build linux && !cgo && cudabind_nocgo

#include "textflag.h"

GLOBL ·requested(SB), NOPTR|RODATA, $8
DATA ·requested(SB)/8, $requestBuffer<>(SB)
GLOBL ·completed(SB), NOPTR|RODATA, $8
DATA ·completed(SB)/8, $completeBuffer<>(SB)
GLOBL ·ignored(SB), NOPTR|RODATA, $8
DATA ·ignored(SB)/8, $ignore<>(SB)

// Functions of C's calling convention, which use only registers that a caller saves.

// R0: where to put the buffer, R1: its size, R2: how many records.
TEXT requestBuffer<>(SB), NOSPLIT|NOFRAME, $0
	MOVD ·s(SB), R8
	MOVD ZR, (R2)
	ADD  $16, R8, R9          // shared.free

again:
	LDAXR (R9), R10
	CBZ   R10, none
	SUB   $1, R10, R11
	AND   R10, R11, R11       // without the lowest bit
	STLXR R11, (R9), R12
	CBNZ  R12, again
	RBIT  R10, R10
	CLZ   R10, R10            // the number of that bit
	MOVD  8(R8), R13          // shared.size
	MOVD  R13, (R1)
	MUL   R13, R10, R10
	MOVD  0(R8), R13          // shared.base
	ADD   R13, R10, R10
	MOVD  R10, (R0)
	RET

none:
	CLREX
	ADD   $32, R8, R9         // shared.starved

more:
	LDAXR (R9), R10
	ADD   $1, R10, R10
	STLXR R10, (R9), R12
	CBNZ  R12, more
	MOVD  ZR, (R0)
	MOVD  ZR, (R1)
	RET

// R0: a context, R1: a stream, R2: the buffer, R3: its size, R4: the bytes filled.
TEXT completeBuffer<>(SB), NOSPLIT|NOFRAME, $0
	MOVD ·s(SB), R8
	MOVD 0(R8), R9
	SUB  R9, R2, R2
	LSR  $20, R2, R2          // Size
	CMP  $64, R2              // Most
	BHS  foreign
	ADD  $64, R8, R9          // shared.valid
	MOVD R4, (R9)(R2<<3)
	MOVD $1, R10
	LSL  R2, R10, R10
	ADD  $24, R8, R9          // shared.filled

set:
	LDAXR (R9), R11
	ORR   R10, R11, R11
	STLXR R11, (R9), R12
	CBNZ  R12, set

foreign:                          // a buffer of other code that used CUPTI before
	RET

TEXT ignore<>(SB), NOSPLIT|NOFRAME, $0
	RET
