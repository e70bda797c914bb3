//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests prefetch managed memory and give advice on it. They run on the simulated
// driver and on a GPU with concurrent managed access.

package safe_test

import (
	"testing"

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

func attributes(t *testing.T, b *safe.Buffer[float32]) safe.RangeAttributes {
	t.Helper()
	a, err := b.RangeAttributes()
	require.NoError(t, err)
	return a
}

// TestPrefetch migrates managed memory there and back, and asks for its location.
func TestPrefetch(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	const n = 4 * pages / 4
	s, b, fill := stream(t, x), managed[float32](t, x, n), kernel(t, x, "fill")
	device := safe.DeviceLocation(x.Device())
	assert.Equal(t, safe.RangeAttributes{}, attributes(t, b))
	copy(b.Data(), count(n))
	require.NoError(t, b.PrefetchAsync(s, device))
	assert.Equal(t, safe.RangeAttributes{LastPrefetch: device}, attributes(t, b))
	require.NoError(t, fill.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(float32(-1)), b.Arg()))
	require.NoError(t, b.PrefetchAsync(s, safe.HostLocation))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, safe.HostLocation, attributes(t, b).LastPrefetch)
	assert.EqualValues(t, -1, b.Data()[9])
	assert.EqualValues(t, n-1, b.Data()[n-1])

	part, err := b.Slice(n/2, n)
	require.NoError(t, err)
	require.NoError(t, part.PrefetchAsync(s, device))
	assert.Equal(t, device, attributes(t, part).LastPrefetch)
	assert.Zero(t, attributes(t, b).LastPrefetch, "not all of it")
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	require.NoError(t, b.PrefetchAsync(legacy, device))

	plain := buffer[float32](t, x, 10)
	assert.ErrorIs(t, plain.PrefetchAsync(s, device), safe.ErrInvalidArgument)
	assert.ErrorIs(t, b.PrefetchAsync(s, safe.Location{}), safe.ErrInvalidArgument)
	assert.Error(t, b.PrefetchAsync(s, safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: 1000}))
	_, err = plain.RangeAttributes()
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
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
	assert.Equal(t, node, attributes(t, b).LastPrefetch) // a driver for CUDA 13.0 does not report a node as the preferred location
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
	advise(driver.CU_MEM_ADVISE_SET_ACCESSED_BY, safe.HostLocation)
	got := attributes(t, b)
	assert.True(t, got.ReadMostly)
	assert.Equal(t, device, got.PreferredLocation)
	assert.ElementsMatch(t, []safe.Location{device, safe.HostLocation}, got.AccessedBy)
	advise(driver.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, safe.HostLocation)
	assert.Equal(t, safe.HostLocation, attributes(t, b).PreferredLocation)

	advise(driver.CU_MEM_ADVISE_UNSET_READ_MOSTLY, safe.Location{})
	advise(driver.CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, safe.Location{})
	advise(driver.CU_MEM_ADVISE_UNSET_ACCESSED_BY, device)
	advise(driver.CU_MEM_ADVISE_UNSET_ACCESSED_BY, safe.HostLocation)
	assert.Equal(t, safe.RangeAttributes{}, attributes(t, b))

	half, err := b.Slice(0, pages/4)
	require.NoError(t, err)
	require.NoError(t, half.Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, safe.Location{}))
	assert.True(t, attributes(t, half).ReadMostly)
	assert.False(t, attributes(t, b).ReadMostly, "not all of it")

	assert.ErrorIs(t, b.Advise(driver.CU_MEM_ADVISE_SET_ACCESSED_BY, safe.Location{}), safe.ErrInvalidArgument)
	assert.ErrorIs(t, buffer[float32](t, x, 10).Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, device), safe.ErrInvalidArgument)
	assert.ErrorIs(t, b.Advise(99, device), driver.CUDA_ERROR_INVALID_VALUE)
}

func TestLocation(t *testing.T) {
	for want, l := range map[string]safe.Location{
		"no location": {}, "host": safe.HostLocation, "NUMA node 3": safe.NUMALocation(3), "device 0": safe.DeviceLocation(safe.Device{}),
	} {
		assert.Equal(t, want, l.String())
	}
	assert.Contains(t, safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}.String(), "HOST_NUMA_CURRENT")
}
