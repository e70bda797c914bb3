//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// callbacks counts the marked threads. While there are none, InCallback need not ask for
// the thread.
var callbacks atomic.Int32

// marked holds the ids of the threads on which InCallback is true. A goroutine stays on a
// marked thread, so that no other goroutine takes the mark for its own.
var marked = struct {
	sync.RWMutex             // a leaf: guards threads
	threads      map[int]int // how many times
}{threads: map[int]int{}}

func mark() {
	thread := Thread()
	marked.Lock()
	marked.threads[thread]++
	marked.Unlock()
	callbacks.Add(1)
}

func unmark() {
	thread := Thread()
	callbacks.Add(-1)
	marked.Lock()
	if marked.threads[thread]--; marked.threads[thread] == 0 {
		delete(marked.threads, thread)
	}
	marked.Unlock()
}

// InCallback returns whether this goroutine must not wait: it runs on the driver's thread,
// in OnHostFunc or OnStatus, or its thread has entered the mode [Foreign].
func InCallback() bool {
	if callbacks.Load() == 0 {
		return false
	}
	runtime.LockOSThread() // else another goroutine could mark the thread in between
	defer runtime.UnlockOSThread()
	thread := Thread()
	marked.RLock()
	defer marked.RUnlock()
	return marked.threads[thread] > 0
}

// The C functions that the driver calls, made once: there is no way to release one.
var (
	hostFunction = sync.OnceValue(func() uintptr {
		return newCallback(func(token uintptr) uintptr {
			mark()
			defer unmark()
			OnHostFunc(token)
			return 0
		})
	})
	statusFunction = sync.OnceValue(func() uintptr {
		return newCallback(func(_, code, token uintptr) uintptr {
			mark()
			defer unmark()
			OnStatus(token, driver.CUresult(uint32(code)))
			return 0
		})
	})
)

// HostFunction returns the address of the C function for host nodes of graphs, whose
// argument is a token.
func HostFunction() uintptr { return hostFunction() }
