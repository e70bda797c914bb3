//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests share memory between processes. TestIPCBuffer needs a GPU, TestSimIPCBuffer
// the simulated driver, the others run on both.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	within["OpenIPCBuffer"] = []string{"Buffer.IPCHandle"}
	operations = append(operations, []operation{
		{"Buffer.IPCHandle", func(w *world) error { _, err := w.plain.IPCHandle(); return err }},
		{"OpenIPCBuffer", func(w *world) error {
			h, err := w.plain.IPCHandle()
			if err != nil {
				return err
			}
			c, err := safe.OpenIPCBuffer[int32](w.x, ofAnother(h), 64)
			_, err = also(w, c, err)
			return err
		}},
	}...)
}

// ofAnother makes the simulated driver believe that another process has made a handle.
func ofAnother(h driver.CUipcMemHandle) driver.CUipcMemHandle {
	h.Reserved[7] ^= 1
	return h
}

// TestIPCBuffer makes another process use memory of this one.
func TestIPCBuffer(t *testing.T) {
	if !onGPU {
		t.Skip("other processes are not simulated")
	}
	x := open(t, 0)
	var h driver.CUipcMemHandle
	if fromOther(t, h.Reserved[:]) {
		b, err := safe.OpenIPCBuffer[float32](x, h, sharedValues)
		require.NoError(t, err)
		closing(t, b)
		again, err := safe.OpenIPCBuffer[byte](x, h, 1)
		require.NoError(t, err)
		require.NoError(t, again.Close())
		exchange(t, b)
		_, err = b.IPCHandle()
		assert.ErrorIs(t, err, safe.ErrInvalidArgument, "it is for its owner to share")
		_, err = safe.OpenIPCBuffer[float32](x, h, 100*sharedValues)
		assert.ErrorIs(t, err, safe.ErrRange)
		return
	}
	b := plainBuffer[float32](t, x, sharedValues)
	require.NoError(t, b.CopyFromHost(count(sharedValues)))
	h, err := b.IPCHandle()
	require.NoError(t, err)
	toOther(t, h.Reserved[:])
	exchanged(t, b)
}

func TestIPCRefuses(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), plainBuffer[int32](t, x, sharedValues)
	h, err := b.IPCHandle()
	require.NoError(t, err)
	again, err := b.IPCHandle()
	require.NoError(t, err)
	assert.Equal(t, h, again)
	_, err = safe.OpenIPCBuffer[int32](x, h, sharedValues)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_CONTEXT, "this process's own")
	_, err = safe.OpenIPCBuffer[int32](x, h, 0)
	assert.ErrorIs(t, err, safe.ErrRange)
	async, err := safe.NewBufferAsync[int32](s, 10)
	require.NoError(t, err)
	closing(t, async)
	for _, c := range []struct {
		name string
		of   *safe.Buffer[int32]
		want error
		says string
	}{
		{"of a pool", async, safe.ErrInvalidArgument, "BufferOptions.Plain"},
		{"of NewBuffer", buffer[int32](t, x, 10), safe.ErrInvalidArgument, "BufferOptions.Plain"},
		{"managed", managed[int32](t, x, 10), safe.ErrInvalidArgument, "only memory of cuMemAlloc"},
		{"the end", slice(t, b, 1, sharedValues), safe.ErrRange, "only a whole allocation"},
		{"the beginning", slice(t, b, 0, 1), safe.ErrRange, "only a whole allocation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.of.IPCHandle()
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
		})
	}
	borrowed, err := safe.BorrowBuffer[int32](x, b.Raw(), sharedValues, b)
	require.NoError(t, err)
	defer borrowed.Close()
	again, err = borrowed.IPCHandle()
	require.NoError(t, err)
	assert.Equal(t, h, again)
}

func slice(t *testing.T, b *safe.Buffer[int32], i, j int) *safe.Buffer[int32] {
	t.Helper()
	part, err := b.Slice(i, j)
	require.NoError(t, err)
	return part
}

// TestSimIPCBuffer opens memory that the simulated driver attributes to another process.
func TestSimIPCBuffer(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, of := stream(t, x), plainBuffer[int32](t, x, 100)
	h, err := of.IPCHandle()
	require.NoError(t, err)
	before := simulated.Live("ipc")
	b, err := safe.OpenIPCBuffer[int32](x, ofAnother(h), 100)
	require.NoError(t, err)
	assert.Equal(t, before+1, simulated.Live("ipc"))
	_, err = b.IPCHandle()
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	_, err = safe.OpenIPCBuffer[int32](x, ofAnother(h), 101)
	assert.ErrorIs(t, err, safe.ErrRange)
	assert.ErrorContains(t, err, "404 bytes of an allocation of 400")
	assert.Equal(t, before+1, simulated.Live("ipc"), "an allocation that is too small is closed")
	_, err = safe.OpenIPCBuffer[int32](x, driver.CUipcMemHandle{}, 1)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_HANDLE)

	require.NoError(t, b.FillAsync(s, 3))
	got := make([]int32, 100)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 3, got[99])
	simulated.Hold(true)
	defer simulated.Reset()
	require.NoError(t, b.FillAsync(s, 4))
	calls := simulated.Calls("cuIpcCloseMemHandle")
	closed := make(chan error)
	go func() { closed <- b.Close() }()
	for !closedAlready(b) {
		drop()
	}
	assert.Equal(t, calls, simulated.Calls("cuIpcCloseMemHandle"), "the stream uses it")
	simulated.Hold(false)
	require.NoError(t, <-closed)
	assert.Equal(t, before, simulated.Live("ipc"))
	require.NoError(t, b.Close())
}

func closedAlready(b *safe.Buffer[int32]) bool {
	_, err := b.Slice(0, 1)
	return err != nil
}
