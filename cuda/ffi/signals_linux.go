package ffi

import (
	"os"
	"syscall"
	"unsafe"
)

// action is Linux's struct sigaction, with room for what an architecture adds.
type action struct {
	handler uintptr
	rest    [7]uint64 // flags, signals to block
}

const (
	signals   = 64
	setBytes  = signals / 8
	preempted = syscall.SIGURG // the Go runtime handles it in every program
)

// RestoreSignals restores how the Go runtime handles signals after a C function has changed that. Call it after
// nvrtcCompileProgram of NVRTC before CUDA 13.1, which leaves Go's handlers of SIGINT, SIGTERM and SIGXFSZ without the
// flag SA_ONSTACK: the Go runtime ends the program with a fatal error if such a signal arrives while Go code runs.
//
// It returns the signals that it has restored. Signals that the program or a C library handles or ignores stay as they
// are. It does nothing on other systems than Linux. Any goroutine may call it. Source: rt_sigaction.
func RestoreSignals() (restored []os.Signal) {
	var runtime action
	if !sigaction(preempted, nil, &runtime) {
		return nil
	}
	for s := syscall.Signal(1); s <= signals; s++ {
		var now action
		if sigaction(s, nil, &now) && now.handler == runtime.handler && now != runtime && sigaction(s, &runtime, nil) {
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
