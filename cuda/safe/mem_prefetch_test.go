//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests prefetch managed memory and give advice on it. They run on the simulated
// driver and on a GPU with concurrent managed access.

package safe_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// concurrent skips the test if host and device cannot use managed memory concurrently.
func concurrent(t *testing.T, x *safe.Context) {
	t.Helper()
	n, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
	require.NoError(t, err)
	if n == 0 {
		t.Skip("needs concurrent access to managed memory")
	}
}

const pages = 64 << 10 // a multiple of every page size, in bytes

// aboutRange returns an attribute of a range of managed memory.
func aboutRange(t *testing.T, b *safe.Buffer[float32], id driver.CUmem_range_attribute) (v int32) {
	t.Helper()
	require.NoError(t, b.Context().WithCurrent(func() error {
		return driver.CuMemRangeGetAttribute(unsafe.Pointer(&v), 4, id, b.Raw(), b.Size())
	}))
	return v
}

// lastPrefetch returns the device of the range's last prefetch, or CU_DEVICE_CPU or CU_DEVICE_INVALID.
func lastPrefetch(t *testing.T, b *safe.Buffer[float32]) driver.CUdevice {
	t.Helper()
	return driver.CUdevice(aboutRange(t, b, driver.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION))
}

// TestPrefetch migrates managed memory there and back, and asks for its location.
func TestPrefetch(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	const n = 4 * pages / 4
	s, b, fill := stream(t, x), managed[float32](t, x, n), kernel(t, x, "fill")
	device := safe.DeviceLocation(x.Device())
	assert.Equal(t, driver.CU_DEVICE_INVALID, lastPrefetch(t, b))
	copy(b.Data(), count(n))
	require.NoError(t, b.PrefetchAsync(s, device))
	assert.Equal(t, x.Device().Raw(), lastPrefetch(t, b))
	require.NoError(t, fill.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(float32(-1)), b.Arg()))
	require.NoError(t, b.PrefetchAsync(s, safe.HostLocation))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, driver.CU_DEVICE_CPU, lastPrefetch(t, b))
	assert.EqualValues(t, -1, b.Data()[9])
	assert.EqualValues(t, n-1, b.Data()[n-1])

	part, err := b.Slice(n/2, n)
	require.NoError(t, err)
	require.NoError(t, part.PrefetchAsync(s, device))
	assert.Equal(t, x.Device().Raw(), lastPrefetch(t, part))
	assert.Equal(t, driver.CU_DEVICE_INVALID, lastPrefetch(t, b), "not all of it")
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	require.NoError(t, b.PrefetchAsync(legacy, device))

	plain := buffer[float32](t, x, 10)
	assert.ErrorIs(t, plain.PrefetchAsync(s, device), safe.ErrInvalidArgument)
	assert.ErrorIs(t, b.PrefetchAsync(s, safe.Location{}), safe.ErrInvalidArgument)
	assert.Error(t, b.PrefetchAsync(s, safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: 1000}))
	g, err := s.Capture(func() error {
		assert.ErrorIs(t, b.PrefetchAsync(s, device), safe.ErrCapturing)
		return nil
	})
	require.NoError(t, err, "the capture goes on")
	require.NoError(t, g.Close())
	require.NoError(t, s.Synchronize())
}

// TestPrefetchNUMA: a NUMA node can be named from CUDA 12.2 on.
func TestPrefetchNUMA(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	s, b := stream(t, x), managed[float32](t, x, pages/4)
	node := safe.NUMALocation(0)
	if driver.Find("cuMemPrefetchAsync_v2") != nil {
		assert.ErrorIs(t, b.PrefetchAsync(s, node), safe.ErrNotSupported)
		assert.ErrorIs(t, b.Advise(driver.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node), safe.ErrNotSupported)
		return
	}
	require.NoError(t, b.PrefetchAsync(s, node))
	require.NoError(t, b.Advise(driver.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node))
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, driver.CU_MEM_LOCATION_TYPE_HOST_NUMA, aboutRange(t, b, driver.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE))
	assert.Zero(t, aboutRange(t, b, driver.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)) // a driver for CUDA 13.0 does not report a node as the preferred location
}

func TestAdvise(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	b := managed[float32](t, x, 2*pages/4)
	device := safe.DeviceLocation(x.Device())
	advise := func(a driver.CUmem_advise, at safe.Location) {
		t.Helper()
		require.NoError(t, b.Advise(a, at), a)
	}
	advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, safe.Location{})
	advise(driver.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device)
	advise(driver.CU_MEM_ADVISE_SET_ACCESSED_BY, device)
	readMostly := func(b *safe.Buffer[float32]) bool {
		return aboutRange(t, b, driver.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) != 0
	}
	preferred := func() driver.CUdevice {
		return driver.CUdevice(aboutRange(t, b, driver.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION))
	}
	accessedBy := func() driver.CUdevice {
		return driver.CUdevice(aboutRange(t, b, driver.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY))
	}
	assert.True(t, readMostly(b))
	assert.Equal(t, x.Device().Raw(), preferred())
	assert.Equal(t, x.Device().Raw(), accessedBy())
	advise(driver.CU_MEM_ADVISE_UNSET_ACCESSED_BY, device)
	advise(driver.CU_MEM_ADVISE_SET_ACCESSED_BY, safe.HostLocation)
	assert.Equal(t, driver.CU_DEVICE_CPU, accessedBy())
	advise(driver.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, safe.HostLocation)
	assert.Equal(t, driver.CU_DEVICE_CPU, preferred())

	advise(driver.CU_MEM_ADVISE_UNSET_READ_MOSTLY, safe.Location{})
	advise(driver.CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, safe.Location{})
	advise(driver.CU_MEM_ADVISE_UNSET_ACCESSED_BY, safe.HostLocation)
	assert.False(t, readMostly(b))
	assert.Equal(t, driver.CU_DEVICE_INVALID, preferred())
	assert.Equal(t, driver.CU_DEVICE_INVALID, accessedBy())

	half, err := b.Slice(0, pages/4)
	require.NoError(t, err)
	require.NoError(t, half.Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, safe.Location{}))
	assert.True(t, readMostly(half))
	assert.False(t, readMostly(b), "not all of it")

	assert.ErrorIs(t, b.Advise(driver.CU_MEM_ADVISE_SET_ACCESSED_BY, safe.Location{}), safe.ErrInvalidArgument)
	assert.ErrorIs(t, buffer[float32](t, x, 10).Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, device), safe.ErrInvalidArgument)
	assert.ErrorIs(t, b.Advise(99, device), driver.CUDA_ERROR_INVALID_VALUE)
}
