//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newBLAS creates a handle of cuBLAS that works on a stream.
func newBLAS(x *safe.Context, s *safe.Stream) (blas cublas.CublasHandle_t, err error) {
	err = x.WithoutCaptures(func() error {
		if err := cublas.CublasCreate(&blas); err != nil {
			return err
		}
		return cublas.CublasSetStream(blas, s.Raw())
	})
	return blas, err
}

// multiply enqueues c = a * b for square matrices of n columns, stored by column.
func multiply(blas cublas.CublasHandle_t, s *safe.Stream, n int, a, b, c *safe.Buffer[float32]) error {
	one, zero, size := float32(1), float32(0), int32(n)
	return s.EnqueueRaw(func(driver.CUstream) error {
		return cublas.CublasSgemm(blas, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, size, size, size,
			&one, onDevice(a), size, onDevice(b), size, &zero, onDevice(c), size)
	}, a.Arg(), b.Arg(), c.Arg())
}

// onDevice returns the device address of b as a function of C takes it. Go must not use it.
func onDevice(b *safe.Buffer[float32]) *float32 { return (*float32)(ffi.Pointer(b.Raw())) }

// sum enqueues the all-reduce of one buffer of each stream, in one group of NCCL.
func sum(ranks []nccl.NcclComm_t, streams []*safe.Stream, buffers []*safe.Buffer[float32]) error {
	var on []safe.RawWork
	for i, s := range streams {
		on = append(on, safe.RawWork{Stream: s, Uses: []safe.Arg{buffers[i].Arg()}})
	}
	return safe.EnqueueRaw(func() error {
		err := nccl.NcclGroupStart()
		for i, b := range buffers {
			in := ffi.Pointer(b.Raw())
			err = errors.Join(err, nccl.NcclAllReduce(in, in, uint64(b.Len()), nccl.NcclFloat32, nccl.NcclSum, ranks[i], streams[i].Raw()))
		}
		return errors.Join(err, nccl.NcclGroupEnd())
	}, on...)
}

// TestMultiply needs cuBLAS and a GPU.
func TestMultiply(t *testing.T) {
	if !onGPU {
		t.Skip("needs cuBLAS and a GPU")
	}
	x := open(t)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer s.Close()
	blas, err := newBLAS(x, s)
	if err != nil {
		t.Skip(err)
	}
	var m [3]*safe.Buffer[float32]
	for i, values := range [][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}, {0, 0, 0, 0}} {
		m[i], err = safe.NewBuffer[float32](x, 4)
		require.NoError(t, err)
		defer m[i].Close()
		require.NoError(t, m[i].CopyFromHost(values))
	}
	require.NoError(t, multiply(blas, s, 2, m[0], m[1], m[2]))
	got := make([]float32, 4)
	err = m[2].CopyToHost(got)
	err = errors.Join(err, x.WithoutCaptures(func() error { return cublas.CublasDestroy(blas) }))
	require.NoError(t, err)
	assert.Equal(t, []float32{23, 34, 31, 46}, got)
}
