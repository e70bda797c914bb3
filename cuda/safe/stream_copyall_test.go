//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Stream.CopyAll. Runs on any driver; tests named Sim need the simulated one.

package safe_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCopyBatch copies values in all directions, with each of the driver's functions.
func TestCopyBatch(t *testing.T) {
	x := open(t, 0)
	const n, copies = 64, 50
	s, a, b := stream(t, x), buffer[float32](t, x, n*copies), managed[float32](t, x, n*copies)
	h, back := host[float32](t, x, n*copies), host[float32](t, x, n*copies)
	r, err := safe.RegisterPinned(x, make([]float32, n*copies))
	require.NoError(t, err)
	closing(t, r)
	part := func(m interface {
		Slice(i, j int) (*safe.Pinned[float32], error)
	}, i int) *safe.Pinned[float32] {
		p, err := m.Slice(n*i, n*(i+1))
		require.NoError(t, err)
		return p
	}
	of := func(m *safe.Buffer[float32], i int) *safe.Buffer[float32] {
		p, err := m.Slice(n*i, n*(i+1))
		require.NoError(t, err)
		return p
	}
	for range 2 {
		copy(h.Data(), count(n*copies))
		clear(back.Data())
		clear(r.Data())
		var in, across, out []safe.CopyOp
		for i := range copies {
			to := copies - 1 - i // the parts end up in reverse
			in = append(in, safe.NewCopyOp(of(a, i), part(h, i)))
			across = append(across, safe.NewCopyOp(of(b, to), of(a, i)))
			if i%2 == 0 {
				out = append(out, safe.NewCopyOp(part(back, i), of(b, i)))
			} else {
				out = append(out, safe.NewCopyOp(part(r, i), of(b, i)))
			}
		}
		require.NoError(t, s.CopyAll(in))
		require.NoError(t, s.CopyAll(across))
		require.NoError(t, s.CopyAll(out))
		require.NoError(t, s.Synchronize())
		for i := range copies {
			got := back.Data()
			if i%2 != 0 {
				got = r.Data()
			}
			want := count(n * copies)[n*(copies-1-i) : n*(copies-i)]
			require.Equal(t, want, got[n*i:n*(i+1)], "part %d", i)
		}
	}
	require.NoError(t, s.CopyAll(nil))
	one := []safe.CopyOp{safe.NewCopyOp(of(a, 0), part(h, 3))}
	require.NoError(t, s.CopyAll(one))
	got := make([]float32, n)
	require.NoError(t, of(a, 0).CopyToHost(got), "after the batch")
	assert.EqualValues(t, 3*n, got[0])
}

func TestCopyBatchRefused(t *testing.T) {
	x := open(t, 0)
	s, a, h := stream(t, x), buffer[int32](t, x, 100), host[int32](t, x, 100)
	small := buffer[int32](t, x, 10)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	closed, err := safe.NewBuffer[int32](x, 10)
	require.NoError(t, err)
	gone := safe.NewCopyOp(closed, small)
	require.NoError(t, closed.Close())
	slice := func(i, j int) *safe.Buffer[int32] {
		p, err := a.Slice(i, j)
		require.NoError(t, err)
		return p
	}
	wide, tiny := buffer[int32](t, x, 50), buffer[int32](t, x, 5)
	good := safe.NewCopyOp[int32](small, slice(0, 10))
	for _, c := range []struct {
		name   string
		copies []safe.CopyOp
		want   error
		says   string
	}{
		{"too large", []safe.CopyOp{good, safe.NewCopyOp[int32](small, h)}, safe.ErrRange, "copy 1: 100 values do not fit into 10"},
		{"host to host", []safe.CopyOp{safe.NewCopyOp[int32](h, h)}, safe.ErrInvalidArgument, "copy 0: source and destination are both host memory"},
		{"closed", []safe.CopyOp{good, good, safe.NewCopyOp[int32](slice(0, 10), closed)}, safe.ErrClosed, "copy 2"},
		{"closed since", []safe.CopyOp{gone}, safe.ErrClosed, "copy 0"},
		{"nil", []safe.CopyOp{safe.NewCopyOp[int32](nil, a)}, safe.ErrClosed, "copy 0"},
		{"a nil buffer", []safe.CopyOp{safe.NewCopyOp[int32](a, (*safe.Pinned[int32])(nil))}, safe.ErrClosed, "copy 0"},
		{"an empty buffer", []safe.CopyOp{safe.NewCopyOp[int32](&safe.Buffer[int32]{}, a)}, safe.ErrClosed, "copy 0"},
		{"no copy", make([]safe.CopyOp, 1), safe.ErrClosed, "copy 0"},
		{"onto itself", []safe.CopyOp{safe.NewCopyOp[int32](slice(5, 15), slice(10, 20))}, safe.ErrOverlap, "copy 0"},
		{"to one place", []safe.CopyOp{safe.NewCopyOp[int32](slice(0, 10), small), safe.NewCopyOp[int32](slice(9, 19), small)}, safe.ErrOverlap, ""},
		{"from a destination", []safe.CopyOp{safe.NewCopyOp[int32](slice(0, 10), slice(50, 60)), safe.NewCopyOp[int32](slice(20, 30), slice(9, 19))}, safe.ErrOverlap, "copy 0"},
		{"into a larger destination", []safe.CopyOp{safe.NewCopyOp[int32](slice(0, 50), wide), safe.NewCopyOp[int32](slice(40, 45), tiny)}, safe.ErrOverlap, "copy 1"},
		{"from a larger destination", []safe.CopyOp{safe.NewCopyOp[int32](slice(0, 50), wide), safe.NewCopyOp[int32](small, slice(40, 45))}, safe.ErrOverlap, "copy 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := s.CopyAll(c.copies)
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, "Stream.CopyAll")
			assert.ErrorContains(t, err, c.says)
		})
	}
	assert.ErrorIs(t, legacy.CopyAll([]safe.CopyOp{good}), safe.ErrInvalidArgument)
	require.NoError(t, s.CopyAll([]safe.CopyOp{
		safe.NewCopyOp[int32](slice(10, 20), slice(0, 10)), safe.NewCopyOp[int32](slice(30, 40), slice(0, 10)), safe.NewCopyOp[int32](slice(20, 30), slice(40, 50)),
	}), "beside each other, and one source twice")
	g, err := s.Capture(func() error {
		assert.ErrorIs(t, s.CopyAll([]safe.CopyOp{good}), safe.ErrCapturing)
		return nil
	})
	require.NoError(t, err, "the capture lives on")
	require.NoError(t, g.Close())
	require.NoError(t, s.Synchronize())
	y := second(t)
	assert.ErrorIs(t, s.CopyAll([]safe.CopyOp{safe.NewCopyOp[int32](buffer[int32](t, y, 1), slice(0, 1))}), safe.ErrContextMismatch)
	assert.ErrorIs(t, s.CopyAll([]safe.CopyOp{safe.NewCopyOp[int32](slice(0, 1), buffer[int32](t, y, 1))}), safe.ErrContextMismatch)
}

// TestSimCopyBatchFailure: the error names the copy if the driver does.
func TestSimCopyBatchFailure(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s, a, b := stream(t, x), buffer[int32](t, x, 10), buffer[int32](t, x, 10)
	two := []safe.CopyOp{safe.NewCopyOp(a, b)}
	for _, function := range []string{"cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync", "cuMemcpyAsync"} {
		if driver.Find(function) != nil {
			continue
		}
		before := simulated.Calls(function)
		require.NoError(t, s.CopyAll(two))
		assert.Equal(t, before+1, simulated.Calls(function), "the newest that there is")
		simulated.Fail(function, 1, uint32(driver.CUDA_ERROR_INVALID_VALUE))
		err := s.CopyAll(two)
		assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
		var e *safe.Error
		require.True(t, errors.As(err, &e))
		if function == "cuMemcpyAsync" {
			assert.Contains(t, e.Detail, "copy 0")
		}
		break
	}
	require.NoError(t, s.Synchronize())
}

// TestSimCopyAllPart: the error has the index among all copies, of which the driver gets a part at once.
func TestSimCopyAllPart(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	const n = 300
	s, a, b := greenStream(t, green(t, x, splitInto(t, 1)[0])), buffer[int32](t, x, n), buffer[int32](t, x, n)
	var all []safe.CopyOp
	for i := range n {
		to, err := a.Slice(i, i+1)
		require.NoError(t, err)
		from, err := b.Slice(i, i+1)
		require.NoError(t, err)
		all = append(all, safe.NewCopyOp(to, from))
	}
	simulated.Fail("cuMemcpyAsync", 251, uint32(driver.CUDA_ERROR_INVALID_VALUE))
	err := s.CopyAll(all)
	simulated.Reset()
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	assert.ErrorContains(t, err, "copy 250")
	require.NoError(t, s.Synchronize())
}
