// Package nvtx tells tools such as Nsight Systems of ranges and names, by the protocol of NVTX 3:
// the tool's library, which an environment variable names, fills tables of functions.
package nvtx

import (
	"os"
	"sync"

	"github.com/cudabind/cudabind/internal/trust"
)

// variable names the tool's library.
const variable = "NVTX_INJECTION64_PATH"

var secure = trust.Secure

// library returns the tool's library, "" for none. Who starts a program with elevated privileges must not choose its code.
func library() string {
	if secure() {
		return ""
	}
	return os.Getenv(variable)
}

// Wanted returns whether a tool has asked for ranges.
func Wanted() bool { return library() != "" }

// attached loads the tool at the first call, and returns whether it takes ranges.
var attached = sync.OnceValue(func() bool {
	path := library()
	return path != "" && attach(path)
})

// Push begins a range on this thread. It returns whether there is a tool, so that Pop must follow.
func Push(name string) bool {
	if !attached() {
		return false
	}
	var room [128]byte
	push(append(append(room[:0], name...), 0))
	return true
}

// Pop ends the last range of this thread.
func Pop() { pop() }

// NameStream names a stream of the driver.
func NameStream(stream uintptr, name string) {
	if attached() {
		nameStream(stream, append([]byte(name), 0))
	}
}

// NameThread names a thread by the system's number of it.
func NameThread(id uint32, name string) {
	if attached() {
		nameThread(id, append([]byte(name), 0))
	}
}
