package admit

import (
	"sync/atomic"
	"syscall"
	"time"
)

// exact counts the goroutines in napExactly.
var exact atomic.Int32

// napExactly sleeps by the system's call, or returns false if enough goroutines do: each blocks a
// thread, and perhaps a processor, of which others need at least one. In a process that does
// nothing else, time.Sleep takes a millisecond at least, as epoll counts in these. The work that
// was pending on a GPU may be over long before.
func napExactly(d time.Duration) bool {
	processors := Processors.Load()
	if processors == 1 {
		return false
	}
	defer exact.Add(-1)
	if exact.Add(1) > max(1, processors/4) {
		return false
	}
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // ends early if a signal comes
	return true
}
