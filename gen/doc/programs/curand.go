package programs

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Normals fills device memory with n normal numbers of mean 0 and deviation 1. n is even, as
// they are made in pairs. The caller has locked the thread and set the device.
func Normals(out *float32, n uint64, stream driver.CUstream) error {
	var g curand.CurandGenerator_t
	if err := curand.CurandCreateGenerator(&g, curand.CURAND_RNG_PSEUDO_PHILOX4_32_10); err != nil {
		return err
	}
	err := errors.Join(
		curand.CurandSetStream(g, stream),
		curand.CurandSetPseudoRandomGeneratorSeed(g, 42),
		curand.CurandGenerateNormal(g, out, n, 0, 1),
		driver.CuStreamSynchronize(stream))
	return errors.Join(err, curand.CurandDestroyGenerator(g))
}
