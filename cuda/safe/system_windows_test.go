//go:build amd64

package safe_test

import (
	"os"
	"runtime/pprof"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	kernel32     = syscall.NewLazyDLL("kernel32.dll")
	virtualAlloc = kernel32.NewProc("VirtualAlloc")
	virtualFree  = kernel32.NewProc("VirtualFree")
)

// ownPages returns memory of the system.
func ownPages(t *testing.T, size int) []byte {
	t.Helper()
	const commit, reserve, readWrite, release = 0x1000, 0x2000, 4, 0x8000
	at, _, err := virtualAlloc.Call(0, uintptr(size), commit|reserve, readWrite)
	require.NotZero(t, at, err)
	t.Cleanup(func() {
		ok, _, err := virtualFree.Call(at, 0, release)
		assert.NotZero(t, ok, err)
	})
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size)
}

// threads returns the number of threads that Go has made.
func threads(*testing.T) int { return pprof.Lookup("threadcreate").Count() }

func inherited(*testing.T, *os.File) bool { return false }

// needsFiles skips a test where CUDA shares nothing by file descriptors.
func needsFiles(t *testing.T) {
	t.Helper()
	t.Skip("Windows has no file descriptors")
}
