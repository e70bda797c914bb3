//go:build !cgo && cudabind_nocgo && (amd64 || arm64)

package rt

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// newCallback returns the address of a C function that calls f. It is never released.
func newCallback(f any) uintptr { return purego.NewCallback(f) }

var started = time.Now().Add(-1) // so that now is never 0

// now returns the nanoseconds of a clock that does not go backward.
func now() int64 { return int64(time.Since(started)) }

const (
	futexWaitPrivate = 128
	futexWakePrivate = 129

	setTimerSlack = 29
	getTimerSlack = 30
)

// nap sleeps until ns have passed, or Wake changes the word. Timers of Go would end up to
// 1 ms late.
func (a *Alarm) nap(seen uint32, ns int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if slack, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, getTimerSlack, 0, 0); int(slack) > 1 {
		syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0) // by default a nap ends 50 µs late
		defer syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, slack, 0)
	}
	t := syscall.NsecToTimespec(ns)
	atomic.StoreUint32(&a.asleep, 1)
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&a.word)), futexWaitPrivate, uintptr(seen), uintptr(unsafe.Pointer(&t)), 0, 0)
	atomic.StoreUint32(&a.asleep, 0)
}

// doze sleeps until ns have passed.
func doze(ns int64) { new(Alarm).nap(0, ns) }

// Wake ends the current Poll, or the next one if its seen is older.
func (a *Alarm) Wake() {
	a.word.Add(1)
	if atomic.LoadUint32(&a.asleep) != 0 {
		syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&a.word)), futexWakePrivate, 1, 0, 0, 0)
	}
}
