package rt

import (
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// newCallback returns the address of a C function that calls f. It is never released.
func newCallback(f any) uintptr {
	expectCalls()
	return syscall.NewCallback(f)
}

// expectCalls starts a timer that never ends. Without any timer, Go ends a program whose
// goroutines all wait, since it does not know that the driver's thread will call it.
var expectCalls = sync.OnceFunc(func() { time.AfterFunc(math.MaxInt64, func() {}) })

var (
	kernel32      = syscall.NewLazyDLL("kernel32.dll")
	currentThread = kernel32.NewProc("GetCurrentThreadId")
	counter       = kernel32.NewProc("QueryPerformanceCounter")
	frequency     = kernel32.NewProc("QueryPerformanceFrequency")
)

// Thread returns the system's id of the current thread.
func Thread() int {
	id, _, _ := syscall.SyscallN(currentThread.Addr())
	return int(id)
}

// perSecond is how often the counter counts.
var perSecond = sync.OnceValue(func() int64 {
	var n int64
	syscall.SyscallN(frequency.Addr(), uintptr(unsafe.Pointer(&n)))
	return n
})

// now returns the nanoseconds of a clock that does not go backward. That of Go's timers counts
// in ticks, which are longer than the intervals of Poll.
func now() int64 {
	var n int64
	syscall.SyscallN(counter.Addr(), uintptr(unsafe.Pointer(&n)))
	const second = 1000 * 1000 * 1000
	return n/perSecond()*second + n%perSecond()*second/perSecond()
}

// woken ends a nap. Alarms share it: a nap that ends early does no harm, and one that is not
// ended soon ends by itself.
var woken = make(chan struct{}, 1)

// nap sleeps until ns have passed, or Wake changes the word. It uses a timer of Go, because
// the system's wait for a changed word counts in its clock's ticks, which are longer.
func (a *Alarm) nap(seen uint32, ns int64) {
	atomic.StoreUint32(&a.asleep, 1)
	defer atomic.StoreUint32(&a.asleep, 0)
	timer := time.NewTimer(time.Duration(ns))
	defer timer.Stop()
	for a.Seen() == seen {
		select {
		case <-timer.C:
			return
		case <-woken:
		}
	}
}

// doze sleeps until ns have passed.
func doze(ns int64) { time.Sleep(time.Duration(ns)) }

// Wake ends the current Poll, or the next one if its seen is older.
func (a *Alarm) Wake() {
	a.word.Add(1)
	if atomic.LoadUint32(&a.asleep) == 0 {
		return
	}
	select {
	case woken <- struct{}{}:
	default:
	}
}
