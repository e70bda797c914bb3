//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests ask CUDA about addresses. They run on the simulated driver and on a GPU;
// TestPointerInfoOfPeers needs two devices.

package safe_test

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	operations = append(operations, []operation{
		{"Context.PointerInfo", func(w *world) error { _, err := w.x.PointerInfo(w.a.Raw()); return err }},
		{"Buffer.SetSyncMemops", func(w *world) error { return w.plain.SetSyncMemops(true) }},
	}...)
}

func TestPointerInfo(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	plain, pinned, both := plainBuffer[int32](t, x, sharedValues), host[int32](t, x, 1000), managed[int32](t, x, 1000)
	async := bufferFrom[int32](t, pool(t, x, shared), s, 1000)
	registered, err := safe.RegisterPinned(x, make([]int32, 1<<14))
	require.NoError(t, err)
	closing(t, registered)
	local := make([]int32, 1000)
	address := func(p *int32) driver.CUdeviceptr { return driver.CUdeviceptr(uintptr(unsafe.Pointer(p))) }
	var id uint64
	for _, c := range []struct {
		name  string
		at    driver.CUdeviceptr
		kind  safe.PointerKind
		host  bool
		check func(t *testing.T, i safe.PointerInfo)
	}{
		{"device", plain.Raw(), safe.DeviceMemory, false, func(t *testing.T, i safe.PointerInfo) {
			assert.Equal(t, x.Raw(), i.Context)
			assert.Equal(t, plain.Raw(), i.Start)
			assert.Equal(t, plain.Size(), i.Size)
			assert.True(t, i.IPC)
			assert.True(t, i.Mapped)
			assert.False(t, i.SyncMemops)
			assert.NotZero(t, i.BufferID)
			id = i.BufferID
			assert.Zero(t, i.Pool)
		}},
		{"the middle", plain.Raw() + 1000, safe.DeviceMemory, false, func(t *testing.T, i safe.PointerInfo) {
			assert.Equal(t, plain.Raw(), i.Start)
			assert.Equal(t, plain.Raw()+1000, i.Address)
			assert.Equal(t, id, i.BufferID, "of the same buffer")
		}},
		{"a pool's", async.Raw(), safe.DeviceMemory, false, func(t *testing.T, i safe.PointerInfo) {
			assert.Zero(t, i.Context)
			assert.NotZero(t, i.Pool)
			assert.False(t, i.IPC)
			assert.NotEqual(t, id, i.BufferID)
		}},
		{"NewBuffer's", buffer[int32](t, x, 1000).Raw(), safe.DeviceMemory, false, func(t *testing.T, i safe.PointerInfo) {
			assert.NotZero(t, i.Pool)
			assert.False(t, i.IPC)
			var current driver.CUmemoryPool
			require.NoError(t, driver.CuDeviceGetMemPool(&current, x.Device().Raw()))
			assert.NotEqual(t, current, i.Pool, "it is the context's own")
		}},
		{"managed", both.Raw(), safe.ManagedMemory, true, func(t *testing.T, i safe.PointerInfo) { assert.False(t, i.IPC) }},
		{"pinned", address(&pinned.Data()[0]), safe.HostMemory, true, nil},
		{"registered", address(&registered.Data()[0]), safe.HostMemory, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			i, err := x.PointerInfo(c.at)
			require.NoError(t, err)
			assert.Equal(t, c.kind, i.Kind)
			assert.Zero(t, i.Device)
			assert.NotZero(t, i.Address)
			assert.Equal(t, c.host, i.Host != 0)
			if c.check != nil {
				c.check(t, i)
			}
		})
	}
	for name, at := range map[string]driver.CUdeviceptr{"Go's": address(&local[0]), "unknown": 8, "none": 0} {
		t.Run(name, func(t *testing.T) {
			i, err := x.PointerInfo(at)
			require.NoError(t, err, "an answer, not an error")
			assert.Equal(t, safe.PointerInfo{Device: -1}, i)
			assert.Equal(t, safe.UnregisteredMemory, i.Kind)
		})
	}
	runtime.KeepAlive(local)
	var names []string
	for k := safe.PointerKind(-1); k < 5; k++ {
		names = append(names, k.String())
	}
	assert.Equal(t, []string{"PointerKind(-1)", "unregistered", "host", "device", "managed", "PointerKind(4)"}, names)
}

// TestPointerInfoOfPeers: what kernels may do depends on the context that asks.
func TestPointerInfoOfPeers(t *testing.T) {
	x := open(t, 0)
	y := second(t)
	b := plainBuffer[int32](t, y, 10)
	i, err := x.PointerInfo(b.Raw())
	require.NoError(t, err)
	assert.Equal(t, 1, i.Device)
	assert.Equal(t, y.Raw(), i.Context)
}

func TestSetSyncMemops(t *testing.T) {
	x := open(t, 0)
	for _, b := range []*safe.Buffer[int32]{buffer[int32](t, x, 10), plainBuffer[int32](t, x, 10)} {
		for _, on := range []bool{true, false} {
			require.NoError(t, b.SetSyncMemops(on))
			i, err := x.PointerInfo(b.Raw())
			require.NoError(t, err)
			assert.Equal(t, on, i.SyncMemops)
		}
	}
}
