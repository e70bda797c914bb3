//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Stream attributes: priority, memory domains, L2 access policy. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

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
	least, greatest, err := x.StreamPriorityRange()
	require.NoError(t, err)
	assert.Equal(t, least, s.Priority())
	assert.ErrorIs(t, s.SetPriority(greatest-1), safe.ErrRange)
	assert.ErrorIs(t, s.SetPriority(least+1), safe.ErrRange)
	newer(t, s.SetPriority(greatest))
	assert.Equal(t, greatest, s.Priority())
	same, err := s.Borrow()
	require.NoError(t, err)
	require.NoError(t, same.SetPriority(least))
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

// persisting is how many bytes of the L2 cache are set aside for lines that persist.
const persisting = driver.CU_LIMIT_PERSISTING_L2_CACHE_SIZE

// windows sets a part of the L2 cache aside until the test ends, and returns the size of
// the largest window.
func windows(t *testing.T, x *safe.Context) (largest uint64) {
	t.Helper()
	p, err := x.Device().Properties()
	require.NoError(t, err)
	if p.MaxPersistingL2 == 0 || p.MaxAccessPolicyWindow == 0 {
		t.Skip("the device has no lines that persist")
	}
	before, err := x.Limit(persisting)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.SetLimit(persisting, before)) })
	return uint64(p.MaxAccessPolicyWindow)
}

func TestAccessPolicyWindow(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 1<<16)
	largest := windows(t, x)
	w := safe.AccessPolicyWindow{
		Address: b.Raw(), Size: b.Size(), HitRatio: 0.5,
		Hit: driver.CU_ACCESS_PROPERTY_PERSISTING, Miss: driver.CU_ACCESS_PROPERTY_STREAMING,
	}
	require.NoError(t, x.SetLimit(persisting, 0))
	err := s.SetAccessPolicyWindow(w)
	assert.ErrorIs(t, err, safe.ErrRange)
	assert.ErrorContains(t, err, "Context.SetLimit")
	got, err := s.AccessPolicyWindow()
	require.NoError(t, err)
	assert.Zero(t, got.Size)

	require.NoError(t, x.SetLimit(persisting, 1<<20))
	aside, err := x.Limit(persisting)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, aside, uint64(1<<20))
	require.NoError(t, s.SetAccessPolicyWindow(w))
	got, err = s.AccessPolicyWindow()
	require.NoError(t, err)
	assert.Equal(t, w, got)
	require.NoError(t, b.FillAsync(s, 1))

	for name, c := range map[string]struct {
		change func(w *safe.AccessPolicyWindow)
		want   error
	}{
		"too large":        {func(w *safe.AccessPolicyWindow) { w.Size = largest + 1 }, safe.ErrRange},
		"ratio above 1":    {func(w *safe.AccessPolicyWindow) { w.HitRatio = 1.5 }, safe.ErrRange},
		"ratio below 0":    {func(w *safe.AccessPolicyWindow) { w.HitRatio = -0.5 }, safe.ErrRange},
		"ratio no number":  {func(w *safe.AccessPolicyWindow) { w.HitRatio = float32(math.NaN()) }, safe.ErrRange},
		"misses persist":   {func(w *safe.AccessPolicyWindow) { w.Miss = driver.CU_ACCESS_PROPERTY_PERSISTING }, safe.ErrInvalidArgument},
		"unknown property": {func(w *safe.AccessPolicyWindow) { w.Hit = 9 }, safe.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := w
			c.change(&wrong)
			assert.ErrorIs(t, s.SetAccessPolicyWindow(wrong), c.want)
			got, err := s.AccessPolicyWindow()
			require.NoError(t, err)
			assert.Equal(t, w, got, "as it was")
		})
	}
	require.NoError(t, s.SetAccessPolicyWindow(safe.AccessPolicyWindow{}))
	got, err = s.AccessPolicyWindow()
	require.NoError(t, err)
	assert.Zero(t, got.Size)
	require.NoError(t, s.Synchronize())
	assert.NoError(t, x.ResetPersistingL2())
}

func TestCopyAttributes(t *testing.T) {
	x := open(t, 0)
	s, to := stream(t, x), stream(t, x)
	require.NoError(t, setPolicy(s, driver.CU_SYNC_POLICY_YIELD))
	require.NoError(t, to.CopyAttributes(s))
	p, err := policyOf(to)
	require.NoError(t, err)
	assert.Equal(t, driver.CU_SYNC_POLICY_YIELD, p)
	_, greatest, err := x.StreamPriorityRange()
	require.NoError(t, err)
	if err := s.SetPriority(greatest); err == nil {
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
