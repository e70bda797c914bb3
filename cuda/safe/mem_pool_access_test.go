//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests check which devices and hosts can access the memory of pools. They run on
// the simulated driver and on a GPU; TestPoolAccess needs two devices.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoolRefuses(t *testing.T) {
	x := open(t, 0)
	p, s := pool(t, x, safe.PoolOptions{}), stream(t, x)
	elsewhere := safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: 1}
	make := func(o safe.PoolOptions) error { _, err := safe.NewPoolWith(x, o); return err }
	for _, c := range []struct {
		name string
		call func() error
		want error
		says string
	}{
		{"another device", func() error { return make(safe.PoolOptions{Location: elsewhere}) }, safe.ErrInvalidArgument, "device 1"},
		{"a number that CUDA cannot take", func() error {
			return make(safe.PoolOptions{Location: safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: int(uint64(1) << 32)}})
		}, safe.ErrInvalidArgument, "not a location"},
		{"a thread's node", func() error {
			return make(safe.PoolOptions{Location: safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}})
		}, safe.ErrInvalidArgument, "HOST_NUMA_CURRENT"},
		{"a Windows handle", func() error { return make(safe.PoolOptions{HandleTypes: driver.CU_MEM_HANDLE_TYPE_WIN32}) }, safe.ErrNotSupported, "handle types 0x2"},
		{"negative size", func() error { _, err := safe.NewBufferFrom[int](p, s, -1); return err }, safe.ErrRange, "-1 values"},
		{"pointers", func() error { _, err := safe.NewBufferFrom[*int](p, s, 1); return err }, safe.ErrInvalidArgument, "Go pointers"},
		{"the own device", func() error { return p.SetAccess(x.Device(), noAccess) }, safe.ErrInvalidArgument, "device 0"},
		{"a pool that is not shared", func() error { _, err := p.Export(); return err }, driver.CUDA_ERROR_INVALID_VALUE, ""},
		{"no file", func() error { _, err := safe.ImportPool(x, nil); return err }, safe.ErrInvalidArgument, "no file"},
		{"a pool of this process", func() error {
			_, err := safe.ImportBuffer[int32](p, driver.CUmemPoolPtrExportData{}, 1)
			return err
		}, safe.ErrInvalidArgument, "belongs to this process"},
		{"memory of no pool", func() error { _, err := buffer[int32](t, x, 1).ExportPointer(); return err }, safe.ErrInvalidArgument, "NewBufferFrom"},
		{"memory that is not shared", func() error { _, err := bufferFrom[int32](t, p, s, 1).ExportPointer(); return err }, driver.CUDA_ERROR_INVALID_VALUE, ""},
		{"a part", func() error {
			part, err := bufferFrom[int32](t, p, s, 4).Slice(1, 4)
			require.NoError(t, err)
			_, err = part.ExportPointer()
			return err
		}, safe.ErrRange, "12 bytes of an allocation of 16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
		})
	}
	assert.Equal(t, readWrite, accessOf(t, p, x))
}

// TestPoolAccess: the pool's own access settings decide whether kernels of another device
// can use its memory, and not the peer access of contexts.
func TestPoolAccess(t *testing.T) {
	x := open(t, 0)
	y := second(t)
	can, err := y.Device().CanAccessPeer(x.Device())
	require.NoError(t, err)
	if !can {
		t.Skip("the devices cannot reach each other's memory")
	}
	const n = 100
	s, other, fill := stream(t, x), stream(t, y), kernel(t, y, "fill")
	p := pool(t, x, safe.PoolOptions{})
	byDefault, err := safe.DefaultPool(x)
	require.NoError(t, err)
	closing(t, byDefault)
	async, err := safe.NewBufferAsync[float32](s, n)
	require.NoError(t, err)
	closing(t, async)
	own := bufferFrom[float32](t, p, s, n)
	require.NoError(t, s.Synchronize())
	borrowed, err := safe.BorrowBuffer[float32](x, own.Raw(), n, own)
	require.NoError(t, err)
	closing(t, borrowed)
	require.NoError(t, y.EnablePeerAccess(x))
	defer func() { require.NoError(t, y.DisablePeerAccess(x)) }()
	for _, c := range []struct {
		name string
		pool *safe.Pool
		of   *safe.Buffer[float32]
	}{{"a pool of our own", p, own}, {"the default pool", byDefault, async}, {"borrowed", p, borrowed}} {
		t.Run(c.name, func(t *testing.T) {
			launch := func(v float32) error {
				return fill.Launch(other, perValue(n), safe.Val(uint32(n)), safe.Val(v), c.of.Arg())
			}
			assert.Equal(t, noAccess, accessOf(t, c.pool, y))
			assert.ErrorIs(t, launch(1), safe.ErrContextMismatch)
			require.NoError(t, c.pool.SetAccess(y.Device(), readWrite))
			assert.Equal(t, readWrite, accessOf(t, c.pool, y))
			require.NoError(t, launch(2))
			require.NoError(t, other.Synchronize())
			got := make([]float32, n)
			require.NoError(t, c.of.CopyToHost(got))
			assert.EqualValues(t, 2, got[n-1])
			require.NoError(t, c.pool.SetAccess(y.Device(), noAccess))
			assert.ErrorIs(t, launch(3), safe.ErrContextMismatch)
		})
	}
	_, err = safe.NewBufferFrom[int32](p, other, 1)
	assert.ErrorIs(t, err, safe.ErrContextMismatch)
	assert.ErrorContains(t, err, "the pool belongs to a context of device 0, the stream to one of device 1")
}

// TestPoolsForTheHost: host and device use the same memory.
func TestPoolsForTheHost(t *testing.T) {
	for _, c := range []struct {
		name string
		o    safe.PoolOptions
		host bool
	}{
		{"host", safe.PoolOptions{Location: safe.HostLocation}, true},
		{"managed", safe.PoolOptions{Managed: true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			const n = 100
			x := open(t, 0)
			s, fill := stream(t, x), kernel(t, x, "fill")
			p := pool(t, x, c.o)
			assert.ErrorIs(t, p.MakeCurrent(), safe.ErrInvalidArgument)
			b := bufferFrom[float32](t, p, s, n)
			require.NoError(t, s.Synchronize())
			b.Data()[0] = 5
			part, err := b.Slice(10, n)
			require.NoError(t, err)
			require.NoError(t, fill.Launch(s, perValue(n-10), safe.Val(uint32(n-10)), safe.Val(float32(7)), part.Arg()))
			require.NoError(t, s.Synchronize())
			assert.EqualValues(t, 5, b.Data()[0])
			assert.EqualValues(t, 7, part.Data()[0])
			assert.Equal(t, c.host, aboutPointer(t, x, b.Raw(), driver.CU_POINTER_ATTRIBUTE_IS_MANAGED) == 0)
			assert.EqualValues(t, p.Raw(), aboutPointer(t, x, b.Raw(), driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE))
			if c.host {
				assert.ErrorIs(t, b.AttachAsync(s, driver.CU_MEM_ATTACH_HOST), safe.ErrInvalidArgument)
			}
			require.NoError(t, b.Close())
			assert.Nil(t, b.Data())
			if !sharesFiles {
				return
			}
			c.o.HandleTypes = fileDescriptor
			_, err = safe.NewPoolWith(x, c.o)
			assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE, "it cannot be shared")
		})
	}
}
