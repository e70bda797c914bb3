//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Stream attributes: priority, memory domains, L2 access policy. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newer skips the test if err says that the driver is too old.
func newer(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, safe.ErrNotSupported) {
		assert.ErrorContains(t, err, "needs a driver for CUDA 12.0")
		t.Skip(err)
	}
	require.NoError(t, err)
}

func TestStreamPriority(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	least, greatest := priorities(t, x)
	assert.Equal(t, least, s.Priority())
	newer(t, prioritize(s, greatest))
	assert.Equal(t, greatest, s.Priority())
	same, err := s.Borrow()
	require.NoError(t, err)
	require.NoError(t, prioritize(same, least))
	assert.Equal(t, least, s.Priority(), "it is the same stream")
	require.NoError(t, same.Close())
}

// policyOf returns how a thread waits in SynchronizeBlocking.
func policyOf(s *safe.Stream) (driver.CUsynchronizationPolicy, error) {
	v, err := s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
	return *v.SyncPolicy(), err
}

func setPolicy(s *safe.Stream, p driver.CUsynchronizationPolicy) error {
	var v driver.CUstreamAttrValue
	*v.SyncPolicy() = p
	return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, v)
}

// TestBlockingWaitLeavesNothing tests that waits which sleep keep no event.
func TestBlockingWaitLeavesNothing(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s := stream(t, x)
	if err := setPolicy(s, driver.CU_SYNC_POLICY_BLOCKING_SYNC); errors.Is(err, safe.ErrNotSupported) {
		t.Skip(err)
	}
	wait := func() int {
		_, err := s.LaunchHostFunc(func() { time.Sleep(time.Millisecond) })
		require.NoError(t, errors.Join(err, s.SynchronizeBlocking()))
		return simulated.Live("event")
	}
	assert.Equal(t, wait(), wait())
}

func TestStreamAttribute(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	p, err := policyOf(s)
	require.NoError(t, err)
	if onGPU {
		assert.Negative(t, int32(p), "none was set")
	}
	for p := driver.CU_SYNC_POLICY_AUTO; p <= driver.CU_SYNC_POLICY_BLOCKING_SYNC; p++ {
		require.NoError(t, setPolicy(s, p))
		got, err := policyOf(s)
		require.NoError(t, err)
		assert.Equal(t, p, got)
		require.NoError(t, s.SynchronizeBlocking())
	}
	assert.ErrorIs(t, setPolicy(s, 99), driver.CUDA_ERROR_INVALID_VALUE)
	_, err = s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE, "an attribute of launches alone")
}

func TestMemSyncDomains(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	v, err := s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)
	newer(t, err)
	assert.Equal(t, driver.CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT, *v.MemSyncDomain())
	p, err := x.Device().Properties()
	require.NoError(t, err)
	if p.MemorySyncDomains < 2 {
		t.Skip("the device has no memory synchronization domains")
	}
	*v.MemSyncDomain() = driver.CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
	require.NoError(t, s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, v))
	v, err = s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)
	require.NoError(t, err)
	assert.Equal(t, driver.CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE, *v.MemSyncDomain())
}

// TestAccessPolicyWindow: a stream's window in the L2 cache is an attribute of the driver's.
func TestAccessPolicyWindow(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 1<<16)
	p, err := x.Device().Properties()
	require.NoError(t, err)
	if p.MaxAccessPolicyWindow == 0 {
		t.Skip("the device has no windows")
	}
	var v driver.CUstreamAttrValue
	*v.AccessPolicyWindow() = driver.CUaccessPolicyWindow{
		Base_ptr: ffi.Pointer(b.Raw()), Num_bytes: b.Size(), HitRatio: 0.5, MissProp: driver.CU_ACCESS_PROPERTY_STREAMING,
	}
	require.NoError(t, s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, v))
	got, err := s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
	require.NoError(t, err)
	assert.Equal(t, b.Size(), got.AccessPolicyWindow().Num_bytes)
	require.NoError(t, b.FillAsync(s, 1))
	require.NoError(t, s.Synchronize())
}

func TestCopyAttributes(t *testing.T) {
	x := open(t, 0)
	s, to := stream(t, x), stream(t, x)
	require.NoError(t, setPolicy(s, driver.CU_SYNC_POLICY_YIELD))
	require.NoError(t, to.CopyAttributes(s))
	p, err := policyOf(to)
	require.NoError(t, err)
	assert.Equal(t, driver.CU_SYNC_POLICY_YIELD, p)
	_, greatest := priorities(t, x)
	if err := prioritize(s, greatest); err == nil {
		require.NoError(t, to.CopyAttributes(s))
		assert.Equal(t, greatest, to.Priority())
	}
	assert.ErrorIs(t, stream(t, second(t)).CopyAttributes(s), safe.ErrContextMismatch)
}

// TestCopyAttributesBesideCapture: while CopyAttributes waits for one stream, it keeps no capture
// from beginning on another, although one of its own is the legacy stream.
func TestCopyAttributesBesideCapture(t *testing.T) {
	x := open(t, 0)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	busy, s := stream(t, x), blockingStream(t, x)
	inside, end := make(chan struct{}), make(chan struct{})
	enqueued, copied, captured := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		enqueued <- busy.EnqueueRaw(func(driver.CUstream) error { close(inside); <-end; return nil })
	}()
	<-inside
	go func() {
		err := safe.ErrCapturing
		for errors.Is(err, safe.ErrCapturing) {
			err = legacy.CopyAttributes(busy)
		}
		copied <- err
	}()
	go func() {
		for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
			g, err := s.Capture(func() error { return nil })
			if err = errors.Join(err, g.Close()); err != nil {
				captured <- err
				return
			}
		}
		captured <- nil
	}()
	select {
	case err := <-captured:
		assert.NoError(t, err)
	case <-time.After(atOnce):
		assert.Fail(t, "no capture begins")
	}
	close(end)
	assert.NoError(t, <-enqueued)
	assert.NoError(t, <-copied)
}

// TestAttributesInCapture: using attributes of a capturing stream does not invalidate the
// capture.
func TestAttributesInCapture(t *testing.T) {
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureGlobal}, func() error {
		_, err := policyOf(s)
		return first(
			func() error { return err },
			func() error { return setPolicy(s, driver.CU_SYNC_POLICY_SPIN) },
			func() error { return other.CopyAttributes(s) },
			func() error { s.Priority(); return nil },
		)
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
}
