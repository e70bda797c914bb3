package fft

import (
	lib "github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// ComplexFloat16 is a complex number of half precision.
type ComplexFloat16 struct{ Re, Im dtype.Float16 }

// NewComplexFloat16 returns v with both parts rounded to half precision.
func NewComplexFloat16(v complex64) ComplexFloat16 {
	return ComplexFloat16{dtype.NewFloat16(real(v)), dtype.NewFloat16(imag(v))}
}

// Complex64 returns the number, exactly.
func (c ComplexFloat16) Complex64() complex64 { return complex(c.Re.Float32(), c.Im.Float32()) }

// Real is a type of real numbers that plans transform.
type Real interface {
	float32 | float64 | dtype.Float16
}

// Complex is a type of complex numbers that plans transform.
type Complex interface {
	complex64 | complex128 | ComplexFloat16
}

// Number is a type that plans transform from.
type Number interface{ Real | Complex }

// kind is what a plan needs to know about a type.
type kind struct {
	data    lib.CudaDataType
	complex bool
	bits    int // of a real number
	name    string
}

func kindOf[T Number]() kind {
	switch any(*new(T)).(type) {
	case float32:
		return kind{lib.CUDA_R_32F, false, 32, "float32"}
	case float64:
		return kind{lib.CUDA_R_64F, false, 64, "float64"}
	case dtype.Float16:
		return kind{lib.CUDA_R_16F, false, 16, "Float16"}
	case complex64:
		return kind{lib.CUDA_C_32F, true, 32, "complex64"}
	case complex128:
		return kind{lib.CUDA_C_64F, true, 64, "complex128"}
	}
	return kind{lib.CUDA_C_16F, true, 16, "ComplexFloat16"}
}
