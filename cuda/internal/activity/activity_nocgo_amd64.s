//go:build linux && !cgo && cudabind_nocgo

#include "textflag.h"

GLOBL ·requested(SB), NOPTR|RODATA, $8
DATA ·requested(SB)/8, $requestBuffer<>(SB)
GLOBL ·completed(SB), NOPTR|RODATA, $8
DATA ·completed(SB)/8, $completeBuffer<>(SB)
GLOBL ·ignored(SB), NOPTR|RODATA, $8
DATA ·ignored(SB)/8, $ignore<>(SB)

// Functions of C's calling convention, which use only registers that a caller saves.

// DI: where to put the buffer, SI: its size, DX: how many records.
TEXT requestBuffer<>(SB), NOSPLIT|NOFRAME, $0
	MOVQ ·s(SB), R8
	MOVQ $0, 0(DX)
	MOVQ 16(R8), AX           // shared.free

again:
	BSFQ AX, CX               // the lowest bit
	JEQ  none
	LEAQ -1(AX), R9
	ANDQ AX, R9               // without that bit
	LOCK
	CMPXCHGQ R9, 16(R8)       // else AX is what is there
	JNE  again
	MOVQ 8(R8), R10           // shared.size
	MOVQ R10, 0(SI)
	IMULQ CX, R10
	ADDQ 0(R8), R10           // shared.base
	MOVQ R10, 0(DI)
	RET

none:
	LOCK
	INCQ 32(R8)               // shared.starved
	MOVQ $0, 0(DI)
	MOVQ $0, 0(SI)
	RET

// DI: a context, SI: a stream, DX: the buffer, CX: its size, R8: the bytes filled.
TEXT completeBuffer<>(SB), NOSPLIT|NOFRAME, $0
	MOVQ ·s(SB), R9
	SUBQ 0(R9), DX
	SHRQ $20, DX              // Size
	CMPQ DX, $64              // Most
	JCC  foreign
	MOVQ R8, 64(R9)(DX*8)     // shared.valid
	LOCK
	BTSQ DX, 24(R9)           // shared.filled

foreign:                          // a buffer of other code that used CUPTI before
	RET

TEXT ignore<>(SB), NOSPLIT|NOFRAME, $0
	RET
