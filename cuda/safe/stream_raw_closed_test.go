//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Handles of objects that are closed while a call uses them. Runs on any driver.

package safe_test

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRawOfClosedStream tests that a function of EnqueueRaw gets the handle of a stream that was
// closed while EnqueueRaw waited for it.
func TestRawOfClosedStream(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	want := s.Raw()
	unlock := safe.LockStream(s)
	var got driver.CUstream
	done := make(chan error)
	go func() {
		done <- safe.EnqueueRaw(func() error { got = s.Raw(); return nil }, safe.RawWork{Stream: s})
	}()
	inside(t, "safe.EnqueueRaw", "sync.(*Mutex).Lock") // it waits for the stream
	require.NoError(t, s.Close())
	unlock()
	require.NoError(t, <-done)
	assert.Equal(t, want, got, "0 is the legacy default stream")
	assert.Zero(t, s.Raw())
}

// TestRawOfClosedBuffer tests that a function of EnqueueRaw gets the address of memory in uses that
// is closed meanwhile.
func TestRawOfClosedBuffer(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	b := buffer[uint32](t, x, 10)
	want := b.Raw()
	var got driver.CUdeviceptr
	done := make(chan struct{})
	require.NoError(t, s.EnqueueRaw(func(driver.CUstream) error {
		go func() {
			defer close(done)
			assert.NoError(t, b.Close())
		}()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // Close waits for the stream
		}
		got = b.Raw()
		return nil
	}, b.Arg()))
	assert.Equal(t, want, got)
	<-done
	assert.Zero(t, b.Raw())
}
