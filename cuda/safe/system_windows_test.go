//go:build amd64

package safe_test

import (
	"os"
	"runtime/pprof"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
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

// sharesFiles: CUDA shares memory by file descriptors.
const sharesFiles = false

// libraryName is the driver's.
const libraryName = "nvcuda.dll"

func init() {
	shared.HandleTypes = 0
	operations = slices.DeleteFunc(operations, func(o operation) bool {
		switch o.name {
		case "Pool.Export", "ImportPool", "ImportBuffer", "Buffer.ExportPointer", "PhysicalMemory.Export", "ImportPhysicalMemory",
			"ImportExternalMemory", "NewExternalBuffer", "ImportExternalSemaphore", "Stream.SignalExternal", "Stream.WaitExternal":
			return true
		}
		return false
	})
}

// TestNoFiles: calls that share by file descriptors are refused.
func TestNoFiles(t *testing.T) {
	x := open(t, 0)
	f, _, err := os.Pipe()
	require.NoError(t, err)
	defer f.Close()
	for name, call := range map[string]func() error{
		"PhysicalMemory": func() error {
			_, err := safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{Shareable: true})
			return err
		},
		"ImportPhysicalMemory": func() error { _, err := safe.ImportPhysicalMemory(x, f, 1<<21); return err },
		"Pool":                 func() error { _, err := safe.NewPoolWith(x, safe.PoolOptions{HandleTypes: fileDescriptor}); return err },
		"ImportPool":           func() error { _, err := safe.ImportPool(x, f); return err },
		"ImportExternalMemory": func() error {
			_, err := safe.ImportExternalMemory(x, f, 4096, safe.ExternalMemoryOptions{})
			return err
		},
		"ImportExternalSemaphore": func() error {
			_, err := safe.ImportExternalSemaphore(x, f, safe.ExternalSemaphoreOptions{})
			return err
		},
	} {
		assert.ErrorIs(t, call(), safe.ErrNotSupported, name)
	}
}

// TestAllWaitForHostFunc: Go does not take a program for dead in which all goroutines wait for
// a host function. The child has no timer, as tests with a timeout have.
func TestAllWaitForHostFunc(t *testing.T) {
	const alone = "CUDABIND_TEST_ALONE"
	if os.Getenv(alone) == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := command.Built(self, "-test.v", "-test.run=^TestAllWaitForHostFunc$", "-test.timeout=0")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	x := open(t, 0)
	s, b, told := stream(t, x), newBatch(t, x), make(chan bool)
	require.NoError(t, b.Launch(kernel(t, x, "spin"), one, safe.Val(uint64(300*time.Millisecond))))
	require.NoError(t, b.LaunchHostFunc(func() { told <- true }))
	require.NoError(t, b.Submit(s))
	<-told
}
