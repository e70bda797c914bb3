package programs

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// RoundTrip transforms n complex numbers in device memory forward and back, which multiplies
// them by n. The caller has locked the thread and set the device.
func RoundTrip(data unsafe.Pointer, n int32, stream driver.CUstream) error {
	var plan cufft.CufftHandle
	if err := cufft.CufftPlan1d(&plan, n, cufft.CUFFT_C2C, 1); err != nil {
		return err
	}
	x := (*cufft.CufftComplex)(data)
	err := errors.Join(
		cufft.CufftSetStream(plan, stream),
		cufft.CufftExecC2C(plan, x, x, cufft.CUFFT_FORWARD),
		cufft.CufftExecC2C(plan, x, x, cufft.CUFFT_INVERSE),
		driver.CuStreamSynchronize(stream))
	return errors.Join(err, cufft.CufftDestroy(plan))
}
