//go:build linux && !cgo && cudabind_nocgo

#include "textflag.h"

GLOBL ·stepper(SB), NOPTR|RODATA, $8
DATA ·stepper(SB)/8, $step<>(SB)

// A function of C's calling convention, whose argument in R0 is a steps.
TEXT step<>(SB), NOSPLIT|NOFRAME, $0
	STP.W (R29, R30), -48(RSP)
	STP   (R19, R20), 16(RSP)
	STP   (R21, R22), 32(RSP)
	MOVD  RSP, R29
	MOVD  R0, R19
	LDP   0(R19), (R20, R21)  // steps.first, steps.n

next:
	CBZ  R21, done
	MOVD 48(R20), R22         // step.flags
	MOVD 16(R19), R9          // steps.code
	CBZ  R9, condition
	TBZ  $0, R22, after       // evenAfterEnd

condition:
	MOVD 24(R20), R9          // step.word
	CBZ  R9, call
	MOVD 0(R9), R9
	TBNZ $3, R22, copy        // copied
	MOVD 32(R20), R10         // step.value
	CMP  R9, R10
	CSET NE, R11
	TBZ  $2, R22, met         // differs
	EOR  $1, R11

met: // where R11 is 0
	MOVD 0(R20), R9           // step.fn
	CBNZ R9, skip
	CBZ  R11, after
	MOVD 40(R20), R0          // step.result
	B    end

copy:
	MOVD 8(R20), R10          // step.args
	MOVD R9, 0(R10)
	B    after

skip:
	CBZ R11, after

call:
	LDP 8(R20), (R9, R10)     // step.args, step.words
	SUBS $8, R10
	BLE registers
	ADD $1, R10, R11
	AND $~1, R11
	LSL $3, R11
	MOVD RSP, R12
	SUB R11, R12
	MOVD R12, RSP
	ADD $64, R9, R13

word:
	MOVD.P 8(R13), R14
	MOVD.P R14, 8(R12)
	SUB    $1, R10
	CBNZ   R10, word

registers:
	LDP   0(R9), (R0, R1)
	LDP   16(R9), (R2, R3)
	LDP   32(R9), (R4, R5)
	LDP   48(R9), (R6, R7)
	MOVD  0(R20), R10         // step.fn
	CALL  (R10)
	MOVD  R29, RSP
	MOVWU R0, R0
	MOVD  R0, 40(R20)         // step.result
	CBZ   R0, after
	AND   $3, R22, R9         // evenAfterEnd, anyResult
	CBNZ  R9, after

end:
	MOVD R0, 16(R19)          // steps.code
	MOVD R21, 24(R19)         // steps.left

after:
	ADD $56, R20
	SUB $1, R21
	B   next

done:
	LDP   16(RSP), (R19, R20)
	LDP   32(RSP), (R21, R22)
	LDP.P 48(RSP), (R29, R30)
	MOVD  ZR, R0
	RET
