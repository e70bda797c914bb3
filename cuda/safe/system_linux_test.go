//go:build (cgo || cudabind_nocgo) && (amd64 || arm64)

package safe_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownPages returns memory of the system.
func ownPages(t *testing.T, size int) []byte {
	t.Helper()
	p, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, syscall.Munmap(p)) })
	return p
}

// threads returns the number of threads of this process.
func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(tasks)
}

// inherited returns whether child processes inherit the file.
func inherited(t *testing.T, f *os.File) bool {
	t.Helper()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFD, 0)
	require.Zero(t, errno)
	return flags&syscall.FD_CLOEXEC == 0
}

// sharesFiles: CUDA shares memory by file descriptors.
const sharesFiles = true

// libraryName is the driver's.
const libraryName = "libcuda.so.1"
