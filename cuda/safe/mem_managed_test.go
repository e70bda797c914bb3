//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests use managed memory from the host and the device. They run on the simulated
// driver and on a GPU.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func managed[T any](t *testing.T, x *safe.Context, n int) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.NewManagedBuffer[T](x, n)
	require.NoError(t, err)
	closing(t, b)
	return b
}

// TestManagedBuffer: host and device use the same memory.
func TestManagedBuffer(t *testing.T) {
	x := open(t, 0)
	const n = 1000
	s, b, fill := stream(t, x), managed[float32](t, x, n), kernel(t, x, "fill")
	copy(b.Data(), count(n))
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, count(n), got)
	part, err := b.Slice(10, 20)
	require.NoError(t, err)
	assert.EqualValues(t, 10, part.Data()[0])
	assert.Len(t, part.Data(), 10)
	require.NoError(t, fill.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(float32(-1)), part.Arg()))
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 9, b.Data()[9])
	assert.EqualValues(t, -1, b.Data()[19])
	assert.EqualValues(t, 20, b.Data()[20])
	assert.Nil(t, buffer[float32](t, x, 1).Data(), "memory of the device")

	words := managed[uint32](t, x, 1)
	assert.ErrorIs(t, safe.WriteValue(s, words.At(0), 1), safe.ErrInvalidArgument)
	_, err = safe.NewManagedBuffer[*int](x, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	require.NoError(t, b.Close())
	assert.Nil(t, b.Data())
	assert.Nil(t, part.Data())
}

func TestAttachAsync(t *testing.T) {
	x := open(t, 0)
	s, b, fill := stream(t, x), managed[float32](t, x, 100), kernel(t, x, "fill")
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	for _, to := range []driver.CUmemAttach_flags{driver.CU_MEM_ATTACH_SINGLE, driver.CU_MEM_ATTACH_HOST, driver.CU_MEM_ATTACH_GLOBAL} {
		require.NoError(t, b.AttachAsync(s, to), to)
	}
	require.NoError(t, b.AttachAsync(s, driver.CU_MEM_ATTACH_SINGLE))
	require.NoError(t, fill.Launch(s, perValue(100), safe.Val(uint32(100)), safe.Val(float32(3)), b.Arg()))
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 3, b.Data()[99])
	require.NoError(t, b.AttachAsync(legacy, driver.CU_MEM_ATTACH_GLOBAL))

	part, err := b.Slice(0, 50)
	require.NoError(t, err)
	bytes, err := safe.Cast[byte](b)
	require.NoError(t, err)
	require.NoError(t, bytes.AttachAsync(s, driver.CU_MEM_ATTACH_GLOBAL), "all of the block")
	plain := buffer[float32](t, x, 1)
	for _, c := range []struct {
		name   string
		attach func() error
		want   error
		says   string
	}{
		{"single on the default stream", func() error { return b.AttachAsync(legacy, driver.CU_MEM_ATTACH_SINGLE) }, safe.ErrInvalidArgument, "default stream"},
		{"a part", func() error { return part.AttachAsync(s, driver.CU_MEM_ATTACH_HOST) }, safe.ErrRange, "200 bytes of an allocation of 400"},
		{"memory of the device", func() error { return plain.AttachAsync(s, driver.CU_MEM_ATTACH_HOST) }, safe.ErrInvalidArgument, "not managed"},
		{"no way", func() error { return b.AttachAsync(s, 0) }, safe.ErrInvalidArgument, ""},
		{"two ways", func() error { return b.AttachAsync(s, 3) }, safe.ErrInvalidArgument, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.attach()
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
		})
	}

	g, err := s.Capture(func() error {
		assert.ErrorIs(t, b.AttachAsync(s, driver.CU_MEM_ATTACH_SINGLE), safe.ErrCapturing)
		return nil
	})
	require.NoError(t, err, "the capture goes on")
	require.NoError(t, g.Close())
	require.NoError(t, s.Synchronize())
}
