package safe

import (
	"runtime"
	"sync"
)

// A thread makes calls on one thread of the operating system. Some of CUDA's calls crash if they come from several, even one
// after the other, and goroutines move from thread to thread.
type thread chan<- func()

// newThread starts a thread. Its method end ends it.
func newThread() thread {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
}

// do calls f on the thread, after the calls of before, and returns what it returns.
func (t thread) do(f func() error) error {
	done := make(chan error)
	t <- func() { done <- f() }
	return <-done
}

// end lets the thread go. No call may be in progress.
func (t thread) end() { close(t) }

// greenThread creates and destroys all green contexts of the process: where several threads do, driver 580 crashes while
// CUPTI records, as Nsight Systems does.
var greenThread = sync.OnceValue(newThread)
