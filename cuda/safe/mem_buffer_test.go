//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests copy, fill, register and close Buffers and Pinneds. They run on the
// simulated driver and on a GPU; TestPeers needs two devices.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCopies(t *testing.T) {
	x := open(t, 0)
	const n = 1000
	s, a, b := stream(t, x), buffer[float32](t, x, n), buffer[float32](t, x, n)
	h, back := host[float32](t, x, n), host[float32](t, x, n)
	copy(h.Data(), count(n))
	require.NoError(t, a.CopyFromHostAsync(s, h))
	require.NoError(t, b.CopyFromAsync(s, a))
	require.NoError(t, b.CopyToHostAsync(s, back))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, count(n), back.Data())

	require.NoError(t, b.Fill(0))
	part, err := b.Slice(10, 20)
	require.NoError(t, err)
	from, err := a.Slice(100, 110)
	require.NoError(t, err)
	require.NoError(t, part.CopyFrom(from))
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 0, got[9])
	assert.EqualValues(t, 100, got[10])
	assert.EqualValues(t, 109, got[19])
	assert.EqualValues(t, 0, got[20])
	require.NoError(t, part.Close(), "a slice is not the owner")
	require.NoError(t, b.CopyFromHost(got[:1]))

	overlap, err := a.Slice(105, 115)
	require.NoError(t, err)
	assert.ErrorIs(t, overlap.CopyFrom(from), safe.ErrOverlap)
	assert.ErrorIs(t, overlap.CopyFromAsync(s, from), safe.ErrOverlap)
	assert.ErrorIs(t, part.CopyFromHost(got), safe.ErrRange)
	assert.ErrorIs(t, b.CopyToHost(got[:n-1]), safe.ErrRange)
	assert.ErrorIs(t, part.CopyFromHostAsync(s, h), safe.ErrRange)
	assert.ErrorIs(t, part.CopyFrom(a), safe.ErrRange)
	for _, r := range [][2]int{{-1, 2}, {3, 2}, {0, n + 1}, {n + 1, n + 1}} {
		_, err := a.Slice(r[0], r[1])
		assert.ErrorIs(t, err, safe.ErrRange)
		_, err = h.Slice(r[0], r[1])
		assert.ErrorIs(t, err, safe.ErrRange)
	}
}

func TestFill(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	fill(t, x, s, uint8(7))
	fill(t, x, s, int16(-3))
	fill(t, x, s, float32(1.5))
	b := buffer[float64](t, x, 3)
	require.NoError(t, b.FillAsync(s, 0))
	got := []float64{1, 1, 1}
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, make([]float64, 3), got)
}

func fill[T any](t *testing.T, x *safe.Context, s *safe.Stream, v T) {
	b := buffer[T](t, x, 9)
	require.NoError(t, b.Fill(*new(T)))
	half, err := b.Slice(0, 5)
	require.NoError(t, err)
	require.NoError(t, half.Fill(v))
	rest, err := b.Slice(5, 8)
	require.NoError(t, err)
	require.NoError(t, rest.FillAsync(s, v))
	got := make([]T, 9)
	require.NoError(t, b.CopyToHost(got), "after the fill on the stream")
	var zero T
	assert.Equal(t, []T{v, v, v, v, v, v, v, v, zero}, got)
}

func TestBufferTypes(t *testing.T) {
	x := open(t, 0)
	_, err := safe.NewBuffer[*int](x, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	_, err = safe.NewBuffer[struct{ s string }](x, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	_, err = safe.NewBuffer[struct{}](x, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	for _, n := range []int{-1, 1 << 62} {
		_, err = safe.NewBuffer[[2]int32](x, n)
		assert.ErrorIs(t, err, safe.ErrRange)
	}
	_, err = safe.NewBuffer[byte](x, 1<<50)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
	b := buffer[[2]int32](t, x, 4)
	c, err := safe.Cast[int16](b)
	require.NoError(t, err)
	assert.Equal(t, 16, c.Len())
	borrowed, err := safe.BorrowBuffer[int64](x, b.Raw(), 4, b)
	require.NoError(t, err)
	require.NoError(t, borrowed.Close())
	_, err = safe.BorrowBuffer[int64](x, b.Raw(), 1<<40, b)
	assert.ErrorIs(t, err, safe.ErrRange)
}

func TestRegisterPinned(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 1<<14)
	data := count(1 << 14)
	h, err := safe.RegisterPinned(x, data)
	require.NoError(t, err)
	_, err = safe.RegisterPinned(x, data)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
	require.NoError(t, b.CopyFromHostAsync(s, h))
	require.NoError(t, h.Close(), "after the copy")
	got := make([]float32, len(data))
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, data, got)
	assert.Nil(t, h.Data())
	assert.ErrorIs(t, b.CopyFromHostAsync(s, h), safe.ErrClosed)
}

// TestReleaseAfterUse closes and drops Buffers while work on several streams still uses
// them.
func TestReleaseAfterUse(t *testing.T) {
	x := open(t, 0)
	const n, streams = 1 << 12, 6
	g, fill, copies := newGate(t, x), kernel(t, x, "fill"), kernel(t, x, "copy")
	gated := stream(t, x)
	out := make([]*safe.Buffer[float32], streams)
	for i := range out {
		out[i] = buffer[float32](t, x, n)
	}
	g.shut(t, gated)
	closed := event(t, x)
	require.NoError(t, gated.Record(closed))
	for i := range streams {
		b, err := safe.NewBufferAsync[float32](gated, n)
		require.NoError(t, err)
		require.NoError(t, fill.Launch(gated, perValue(n), safe.Val(uint32(n)), safe.Val(float32(i+1)), b.Arg()))
		filled := event(t, x)
		require.NoError(t, gated.Record(filled))
		other, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		require.NoError(t, other.WaitEvent(filled))
		require.NoError(t, copies.Launch(other, perValue(n), out[i].Arg(), b.Arg(), safe.Val(uint32(n))))
		if i%2 == 0 {
			require.NoError(t, b.Close())
		}
		require.NoError(t, other.Close(), "its work goes on")
	}
	drop()
	last := stream(t, x)
	again, err := safe.NewBufferAsync[float32](last, n)
	require.NoError(t, err)
	require.NoError(t, again.FillAsync(last, -1))
	g.open()
	got := make([]float32, n)
	for i := range out {
		require.NoError(t, out[i].CopyToHost(got), "after the copy of a stream that is closed")
		assert.EqualValues(t, i+1, got[0])
		assert.EqualValues(t, i+1, got[n-1])
	}
	require.NoError(t, again.Close())
}

func TestPeers(t *testing.T) {
	x := open(t, 0)
	y := second(t)
	const n = 1000
	a, b, s := buffer[float32](t, x, n), buffer[float32](t, y, n), stream(t, y)
	require.NoError(t, a.CopyFromHost(count(n)))
	require.NoError(t, b.CopyFrom(a))
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, count(n), got)
	require.NoError(t, a.Fill(0))
	require.NoError(t, a.CopyFromAsync(s, b))
	require.NoError(t, a.CopyToHost(got), "after the copy on a stream of the other device")
	assert.Equal(t, count(n), got)

	e, f := event(t, x), event(t, y)
	assert.ErrorIs(t, s.Record(e), safe.ErrContextMismatch)
	require.NoError(t, s.Record(f))
	require.NoError(t, stream(t, x).WaitEvent(f))
	assert.ErrorIs(t, a.FillAsync(s, 1), safe.ErrContextMismatch)
	fill := kernel(t, y, "fill")
	args := []safe.Arg{safe.Val(uint32(n)), safe.Val(float32(3)), a.Arg()}
	assert.ErrorIs(t, fill.Launch(stream(t, x), perValue(n), args...), safe.ErrContextMismatch)
	assert.ErrorIs(t, fill.Launch(s, perValue(n), args...), safe.ErrContextMismatch)
	can, err := y.Device().CanAccessPeer(x.Device())
	require.NoError(t, err)
	if !can {
		t.Skip("the devices cannot reach each other's memory")
	}
	require.NoError(t, y.EnablePeerAccess(x))
	require.NoError(t, y.EnablePeerAccess(x), "again")
	require.NoError(t, fill.Launch(s, perValue(n), args...))
	require.NoError(t, a.CopyToHost(got))
	assert.EqualValues(t, 3, got[n-1])
	require.NoError(t, y.DisablePeerAccess(x))
	require.NoError(t, y.DisablePeerAccess(x), "again")
}
