//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cudart13"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/examples/tour/own"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillTheirs uses a context, a stream and memory that another library owns. Close
// destroys none of them.
func fillTheirs(context driver.CUcontext, stream driver.CUstream, memory driver.CUdeviceptr, n int) error {
	x, err := safe.BorrowContext(context, nil)
	if err != nil {
		return err
	}
	defer x.Close()
	s, err := safe.BorrowStream(stream, x, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	b, err := safe.BorrowBuffer[float32](x, memory, n, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	return b.FillAsync(s, 7)
}

// clearByRuntime clears memory with a call of the runtime API.
func clearByRuntime(x *safe.Context, s *safe.Stream, b *safe.Buffer[float32]) error {
	defer runtime.KeepAlive(b)
	defer runtime.KeepAlive(s)
	return x.WithCurrent(func() error {
		return cudart13.CudaMemsetAsync(ffi.Pointer(b.Raw()), 0, b.Size(), cudart13.CudaStream_t(s.Raw()))
	})
}

// inCapture captures calls of a library that allocates memory. In relaxed mode, that
// invalidates neither this capture nor others.
func inCapture(s *safe.Stream, library func() error) (*safe.Graph, error) {
	return s.Capture(func() error {
		return safe.WithCaptureMode(safe.CaptureRelaxed, library)
	})
}

// theirs are handles made by package driver, which plays the other library.
func theirs(t *testing.T, x *safe.Context, n int) (stream driver.CUstream, memory driver.CUdeviceptr) {
	t.Helper()
	require.NoError(t, x.WithCurrent(func() error {
		return errors.Join(driver.CuStreamCreate(&stream, driver.CU_STREAM_NON_BLOCKING), driver.CuMemAlloc(&memory, uint64(4*n)))
	}))
	t.Cleanup(func() {
		require.NoError(t, x.WithCurrent(func() error { return errors.Join(driver.CuStreamDestroy(stream), driver.CuMemFree(memory)) }))
	})
	return stream, memory
}

func TestMixing(t *testing.T) {
	const n = 1000
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, n)

	t.Run("borrowed objects", func(t *testing.T) {
		stream, memory := theirs(t, x, n)
		require.NoError(t, fillTheirs(x.Raw(), stream, memory, n))
		got := make([]float32, n)
		require.NoError(t, x.WithCurrent(func() error {
			return errors.Join(driver.CuStreamSynchronize(stream), driver.CuMemcpyDtoH(unsafe.Pointer(&got[0]), memory, 4*n))
		}))
		assert.EqualValues(t, 7, got[n-1])
		_, err := safe.BorrowStream(driver.CU_STREAM_LEGACY, x, nil)
		assert.EqualError(t, err, "cuda: BorrowStream: CUDA_ERROR_INVALID_HANDLE: no such object, or its handle is no longer valid: 0x1 is a default stream; use LegacyStream or NewStream")
		_, err = safe.BorrowBuffer[float32](x, memory, 1<<40, nil)
		assert.ErrorIs(t, err, safe.ErrRange)
	})
	t.Run("a library of one's own", func(t *testing.T) {
		require.NoError(t, b.Fill(1))
		require.NoError(t, own.Clear(x, s, b))
		require.NoError(t, s.Synchronize())
		assert.Zero(t, values(t, b)[n-1])
	})
	t.Run("the runtime", func(t *testing.T) {
		if dir := os.Getenv("CUDABIND_LIBCUDART_GPU"); dir != "" {
			require.NoError(t, cudart13.Open(dir))
		}
		require.NoError(t, b.Fill(1))
		err := clearByRuntime(x, s, b)
		if errors.As(err, new(*cudart13.LibraryError)) || err != nil && !onGPU {
			t.Skip(err) // NVIDIA's runtime does not work with the simulation
		}
		require.NoError(t, err)
		require.NoError(t, s.Synchronize())
		assert.Zero(t, values(t, b)[n-1])
	})
	t.Run("in a capture", func(t *testing.T) {
		var memory driver.CUdeviceptr
		g, err := inCapture(s, func() error {
			return x.WithCurrent(func() error {
				return errors.Join(driver.CuMemAlloc(&memory, 4), driver.CuMemsetD8Async(b.Raw(), 0, b.Size(), s.Raw()))
			})
		})
		require.NoError(t, err)
		require.NoError(t, g.Close())
		require.NoError(t, x.WithCurrent(func() error { return driver.CuMemFree(memory) }))
	})
}
