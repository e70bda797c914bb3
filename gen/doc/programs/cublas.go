package programs

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cudart13"
)

// Axpy adds 2*x to y on the GPU.
func Axpy(x, y []float32) error {
	runtime.LockOSThread() // the current device is the thread's
	defer runtime.UnlockOSThread()
	size := uint64(len(x)) * 4
	var dx, dy unsafe.Pointer
	err := errors.Join(cudart13.CudaMalloc(&dx, size), cudart13.CudaMalloc(&dy, size))
	defer func() { _, _ = cudart13.CudaFree(dx), cudart13.CudaFree(dy) }()
	var h cublas.CublasHandle_t
	if err = errors.Join(err, cublas.CublasCreate(&h)); err != nil {
		return err
	}
	defer cublas.CublasDestroy(h)
	alpha, n := float32(2), int32(len(x))
	return errors.Join(
		cublas.CublasSetVector(n, 4, unsafe.Pointer(&x[0]), 1, dx, 1),
		cublas.CublasSetVector(n, 4, unsafe.Pointer(&y[0]), 1, dy, 1),
		cublas.CublasSaxpy(h, n, &alpha, (*float32)(dx), 1, (*float32)(dy), 1),
		cublas.CublasGetVector(n, 4, dy, 1, unsafe.Pointer(&y[0]), 1)) // waits for the stream
}
