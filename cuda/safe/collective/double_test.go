//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/require"
)

// control has the fields of testdata/nccl/control.h.
type control struct {
	Busy, Async, Fail, Hang, Absent                            int32
	HangsInit, HangsFinal, HangsDestroy                        int32
	Live, Destroyed, Aborted, Finalized                        int32
	Overlapped, Polled, Element, Operations, Groups, Multicast int32
	Skips, Registered, Deregistered, Cleaned, Stale, Used      int32
	Identified, Freed, Waiting, Nothing, Strict                int32
}

// told is what the double of NCCL in this process is told. On a GPU it stays zero.
var told = new(control)

// newControl maps a file, whose name the double finds in its environment.
func newControl(path string) (*control, error) {
	if err := os.WriteFile(path, make([]byte, unsafe.Sizeof(control{})), 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(control{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	os.Setenv("NCCL_DOUBLE", path)
	return (*control)(unsafe.Pointer(unsafe.SliceData(m))), nil
}

func (*control) get(field *int32) int32 { return atomic.LoadInt32(field) }

// needsDouble skips a test on a GPU. It comes first: later, work may wait for a rank that never comes.
func needsDouble(t *testing.T) {
	t.Helper()
	if onGPU {
		t.Skip("needs the double of NCCL")
	}
}

// tell sets a field until the end of the test, which needs the double.
func tell(t testing.TB, field *int32, value int32) {
	t.Helper()
	require.False(t, onGPU)
	atomic.StoreInt32(field, value)
	t.Cleanup(func() { atomic.StoreInt32(field, 0) })
}

const olderVariable = "CUDABIND_NCCL_OLD"

// onOlder runs the test in a process of its own on an older NCCL, and returns false there. It skips
// the test on a GPU.
func onOlder(t *testing.T, define string) bool {
	t.Helper()
	if os.Getenv(olderVariable) != "" {
		return false
	}
	needsDouble(t)
	library, err := buildDouble(t.TempDir(), define)
	require.NoError(t, err)
	return apart(t, "CUDABIND_NCCL_DOUBLE="+library)
}

// onOlderDriver is onOlder for a simulated driver of an older version.
func onOlderDriver(t *testing.T, version string) bool {
	t.Helper()
	if os.Getenv(olderVariable) != "" {
		return false
	}
	needsDouble(t)
	return apart(t, "CUDABIND_SIM=", "CUDABIND_SIM_DRIVER="+version)
}

// apart runs the test in a process of its own.
func apart(t *testing.T, environment ...string) bool {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	child := command.Built(self, "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(append(os.Environ(), olderVariable+"=1"), environment...)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return true
}
