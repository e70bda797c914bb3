//go:build (cgo || cudabind_nocgo) && (amd64 || arm64)

package compile

import (
	"context"
	"os/signal"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// action is Linux's struct sigaction.
type action struct{ handler, flags, restorer, mask uint64 }

func on(t *testing.T, s syscall.Signal) (a action) {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&a)), 8, 0, 0)
	require.Zero(t, errno)
	return a
}

// TestSignalsDuringCompilation: the Go runtime handles signals again soon after NVRTC has read the source, which it then
// compiles for seconds. A signal that the program begins to ignore meanwhile is ignored.
func TestSignalsDuringCompilation(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		if version != "12.9" {
			t.Skip("NVRTC from CUDA 13.1 on leaves signals alone")
		}
		for !compileBesideSignals(t) {
		}
	})
}

// compileBesideSignals returns false if it has not seen NVRTC read the source.
func compileBesideSignals(t *testing.T) bool {
	before := on(t, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		o := own(t)
		o.NoCache = true
		_, err := Compile(context.Background(), slow, o)
		assert.NoError(t, err)
	}()
	for on(t, syscall.SIGTERM).handler == before.handler { // until NVRTC handles it
		select {
		case <-done:
			return false
		case <-time.After(100 * time.Microsecond):
		}
	}
	signal.Ignore(syscall.SIGINT)
	defer signal.Reset(syscall.SIGINT)
	for on(t, syscall.SIGTERM).handler != before.handler { // until NVRTC has read the source
		time.Sleep(100 * time.Microsecond)
	}
	read := time.Now()
	for on(t, syscall.SIGTERM) != before {
		time.Sleep(100 * time.Microsecond)
	}
	restored := time.Now()
	<-done
	assert.EqualValues(t, 1, on(t, syscall.SIGINT).handler, "SIG_IGN")
	assert.Less(t, restored.Sub(read), time.Since(restored), "it should not be restored after the compilation")
	return true
}
