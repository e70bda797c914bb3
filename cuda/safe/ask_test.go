//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What tests ask the driver about objects of package safe.

package safe_test

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

// priorities returns the range of priorities of streams.
func priorities(t *testing.T, x *safe.Context) (least, greatest int) {
	t.Helper()
	var low, high int32
	require.NoError(t, x.WithCurrent(func() error { return driver.CuCtxGetStreamPriorityRange(&low, &high) }))
	return int(low), int(high)
}

// inUse returns whether the device's primary context is active.
func inUse(t *testing.T, d safe.Device) bool {
	t.Helper()
	var flags driver.CUctx_flags
	var active int32
	require.NoError(t, driver.CuDevicePrimaryCtxGetState(d.Raw(), &flags, &active))
	return active != 0
}

// aboutPointer returns an attribute of an address, which has up to eight bytes; 0 if the address has none.
func aboutPointer(t *testing.T, x *safe.Context, at driver.CUdeviceptr, id driver.CUpointer_attribute) (v uint64) {
	t.Helper()
	var pinner runtime.Pinner // CUDA finds v by way of the place
	defer pinner.Unpin()
	pinner.Pin(&v)
	place := unsafe.Pointer(&v)
	require.NoError(t, x.WithCurrent(func() error { return driver.CuPointerGetAttributes(1, &id, &place, at) }))
	return v
}

// aboutGraphs returns an amount of graph memory on the context's device.
func aboutGraphs(t *testing.T, x *safe.Context, id driver.CUgraphMem_attribute) (bytes uint64) {
	t.Helper()
	require.NoError(t, driver.CuDeviceGetGraphMemAttribute(x.Device().Raw(), id, unsafe.Pointer(&bytes)))
	return bytes
}

// aboutPool returns how many bytes of a pool are reserved and how many are used.
func aboutPool(t *testing.T, p *safe.Pool) (reserved, used uint64) {
	t.Helper()
	reserved, err := p.Attribute(driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
	require.NoError(t, err)
	used, err = p.Attribute(driver.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
	require.NoError(t, err)
	return reserved, used
}

// accessOf returns what kernels on a device may do with a pool's memory.
func accessOf(t *testing.T, p *safe.Pool, x *safe.Context) (flags driver.CUmemAccess_flags) {
	t.Helper()
	at := driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE}
	*at.Id() = int32(x.Device().Raw())
	require.NoError(t, driver.CuMemPoolGetAccess(&flags, p.Raw(), &at))
	return flags
}

// prioritize sets the priority of kernels that are enqueued on the stream from now on.
func prioritize(s *safe.Stream, priority int) error {
	var v driver.CUstreamAttrValue
	*v.Priority() = int32(priority)
	return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, v)
}
