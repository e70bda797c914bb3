//go:build linux && !cgo && cudabind_nocgo

#include "textflag.h"

GLOBL ·stepper(SB), NOPTR|RODATA, $8
DATA ·stepper(SB)/8, $step<>(SB)

// A function of C's calling convention, whose argument in DI is a steps.
TEXT step<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BP
	MOVQ  SP, BP
	PUSHQ BX
	PUSHQ R12
	PUSHQ R13
	PUSHQ R14
	MOVQ  DI, BX
	MOVQ  0(BX), R12          // steps.first
	MOVQ  8(BX), R13          // steps.n

next:
	TESTQ R13, R13
	JEQ   done
	MOVQ  48(R12), R14        // step.flags
	CMPQ  16(BX), $0          // steps.code
	JEQ   condition
	TESTQ $1, R14             // evenAfterEnd
	JEQ   after

condition:
	MOVQ  24(R12), AX         // step.word
	TESTQ AX, AX
	JEQ   call
	XORL  CX, CX
	MOVQ  0(AX), AX
	TESTQ $8, R14             // copied
	JNE   copy
	CMPQ  AX, 32(R12)         // step.value
	SETNE CL
	TESTQ $4, R14             // differs
	JEQ   met
	XORQ  $1, CX

met: // where CX is 0
	CMPQ  0(R12), $0          // step.fn
	JNE   skip
	TESTQ CX, CX
	JEQ   after
	MOVQ  40(R12), AX         // step.result
	JMP   end

copy:
	MOVQ 8(R12), CX           // step.args
	MOVQ AX, 0(CX)
	JMP  after

skip:
	TESTQ CX, CX
	JEQ   after

call:
	MOVQ 8(R12), R11          // step.args
	MOVQ 16(R12), CX          // step.words
	SUBQ $6, CX
	JLE  registers
	LEAQ 1(CX), AX
	ANDQ $~1, AX
	SHLQ $3, AX
	SUBQ AX, SP

word: // the last first
	MOVQ 40(R11)(CX*8), AX
	MOVQ AX, -8(SP)(CX*8)
	DECQ CX
	JNE  word

registers:
	MOVQ 0(R11), DI
	MOVQ 8(R11), SI
	MOVQ 16(R11), DX
	MOVQ 24(R11), CX
	MOVQ 32(R11), R8
	MOVQ 40(R11), R9
	XORL AX, AX
	MOVQ 0(R12), R10          // step.fn
	CALL R10
	LEAQ -32(BP), SP
	MOVL AX, AX
	MOVQ AX, 40(R12)          // step.result
	TESTQ AX, AX
	JEQ  after
	TESTQ $3, R14             // evenAfterEnd, anyResult
	JNE  after

end:
	MOVQ AX, 16(BX)           // steps.code
	MOVQ R13, 24(BX)          // steps.left

after:
	ADDQ $56, R12
	DECQ R13
	JMP  next

done:
	POPQ R14
	POPQ R13
	POPQ R12
	POPQ BX
	POPQ BP
	XORL AX, AX
	RET
