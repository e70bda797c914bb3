package ffi

import (
	"os"
	"syscall"
	"unsafe"
)

// action is Linux's struct sigaction, with room for all architectures. On MIPS, where the flags come first, sigaction fails.
type action struct {
	handler uintptr
	rest    [7]uint64 // flags, signals to block
}

const (
	signals  = 64
	setBytes = signals / 8
	template = syscall.SIGFPE // the Go runtime handles it in all programs, and package os/signal leaves it alone
	needs    = 0x08000004     // SA_ONSTACK and SA_SIGINFO
)

// RestoreSignals restores how the Go runtime handles signals after a C function has changed that. Call it after
// nvrtcCompileProgram of NVRTC before CUDA 13.1, and every few milliseconds during the call. This NVRTC leaves Go's handlers
// of SIGINT, SIGTERM and SIGXFSZ without the flag SA_ONSTACK: the program ends with a fatal error if such a signal arrives
// on a thread that runs Go code.
//
// It returns the signals that it has restored. Signals that the program or a C library handles or ignores stay as they
// are. It does nothing on other systems than Linux. Any goroutine may call it. Source: rt_sigaction.
func RestoreSignals() (restored []os.Signal) {
	var want action
	if !sigaction(template, nil, &want) || want.rest[0]&needs != needs {
		return nil
	}
	for s := syscall.Signal(1); s <= signals; s++ {
		var now action
		if sigaction(s, nil, &now) && now.handler == want.handler && now != want && sigaction(s, &want, nil) {
			restored = append(restored, s)
		}
	}
	return restored
}

// sigaction sets and gets what the process does on a signal.
func sigaction(s syscall.Signal, set, get *action) bool {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), setBytes, 0, 0)
	return errno == 0
}
